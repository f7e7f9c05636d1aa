package run_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/standin"
)

func shards(t *testing.T, cfg setup, count int, dir string) (dirs []string) {
	t.Helper()
	for i := 1; i <= count; i++ {
		cfg.Shard, cfg.Output = &run.Shard{Index: i, Count: count}, filepath.Join(dir, fmt.Sprint("shard-", i))
		ran(t, cfg)
		dirs = append(dirs, cfg.Output)
	}
	return dirs
}

func merge(t *testing.T, dirs []string, to string, sign *record.Key) record.MergeReport {
	t.Helper()
	report, err := record.Merge(t.Context(), dirs, to, record.MergeOptions{Sign: sign})
	must.Do(t, err)
	return report
}

// TestMerge: shards become one run, with the same verdicts as a run that is not sharded. The merged run
// can be verified and judged again, and does not depend on the order in which the shards are named.
func TestMerge(t *testing.T) {
	var rows []string
	for i := range 5 {
		rows = append(rows, row(fmt.Sprint("right-", i), "do it right", ""), row(fmt.Sprint("wrong/", i), "do it wrong", ""))
	}
	cfg, _ := config(t, append(rows, row("flood", "flood and fail", ""))...)
	cfg.Attempts = 2
	ran(t, cfg)
	all := outcomes(records(t, cfg))

	dir := t.TempDir()
	dirs := shards(t, cfg, 3, dir)
	merged := filepath.Join(dir, "merged")
	first := merge(t, dirs[1:], merged, nil)
	if len(first.Missing) != 1 || first.Missing[0] != "shard 1 of 3" || first.Attempts >= first.Planned {
		t.Errorf("%+v", first)
	}
	verified(t, merged)
	must.Do(t, os.Remove(filepath.Join(merged, record.RecordsFile))) // as if the merge had been interrupted
	key := newKey(t)
	slices.Reverse(dirs)
	report := merge(t, dirs, merged, key)
	if report.Attempts != 22 || report.Planned != 22 || report.Shards != 3 || len(report.Missing) > 0 {
		t.Errorf("%+v", report)
	}
	if v, err := record.Verify(t.Context(), merged, key.Public()); err != nil || !v.OK() || !v.Signed {
		t.Errorf("%+v, %v", v, err)
	}
	cfg.Output = merged
	got := outcomes(records(t, cfg))
	slices.Sort(all)
	slices.Sort(got)
	must.Equal(t, all, got)

	again := filepath.Join(dir, "again")
	merge(t, []string{dirs[1], dirs[2], dirs[0]}, again, nil)
	for _, name := range []string{record.ManifestFile, record.RecordsFile, record.SealFile} {
		a := must.Read(t, filepath.Join(merged, name))
		b := must.Read(t, filepath.Join(again, name))
		if !bytes.Equal(a, b) {
			t.Errorf("%s depends on the order of the shards", name)
		}
	}
	cfg.Output, cfg.Shard, cfg.Resume, cfg.Version.Version = filepath.Join(dir, "regraded"), nil, true, "2"
	for _, resumed := range []int{0, 22} {
		summary, err := judgeAgain(cfg, merged)
		if err != nil || summary.Passed != 10 || summary.Total != 22 || summary.Resumed != resumed {
			t.Errorf("%+v, %v", summary, err)
		}
	}
	verified(t, cfg.Output) // the log of the flood stays with the old run
	for _, r := range records(t, cfg) {
		if r.Provenance.Sbench.Version != "2" {
			t.Errorf("%s, not judged again, is of version %q", r.TaskID, r.Provenance.Sbench.Version)
		}
	}
}

// TestMergeGraded: shards of a run that judged workspaces again are merged, too. The workspaces stay where they are.
func TestMergeGraded(t *testing.T) {
	cfg, _ := config(t, row("one", "do it right", ""), row("two", "do it wrong", ""), row("fails", "exit with 3", ""))
	ran(t, cfg)
	old, dir := cfg.Output, t.TempDir()
	var dirs []string
	for i := range 2 {
		cfg.Shard = &run.Shard{Index: i + 1, Count: 2}
		cfg.Output = filepath.Join(dir, cfg.Shard.Dir())
		_, err := judgeAgain(cfg, old)
		must.Do(t, err)
		dirs = append(dirs, cfg.Output)
	}
	cfg.Output = filepath.Join(dir, "merged")
	must.Equal(t, 3, merge(t, dirs, cfg.Output, nil).Attempts)
	verified(t, cfg.Output)
}

// TestMergeKilled: a shard that was killed, with or without a record of its session, has not ended.
func TestMergeKilled(t *testing.T) {
	cfg, _ := config(t, row("a", "do it right", ""), row("b", "do it right", ""))
	dir := t.TempDir()
	dirs := shards(t, cfg, 2, dir)
	killed := filepath.Join(dir, "killed")
	cfg.Shard, cfg.Output = &run.Shard{Index: 2, Count: 2}, dirs[1]
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.RunStart {
			must.Do(t, os.RemoveAll(killed))
			must.Do(t, exec.Command("cp", "-a", cfg.Output, killed).Run())
		}
	}
	for _, resume := range []bool{true, false} {
		if cfg.Resume = resume; !resume {
			must.Do(t, os.RemoveAll(cfg.Output))
		}
		ran(t, cfg)
		must.Equal(t, []string{"shard 2 of 2, which has not ended"}, merge(t, []string{dirs[0], killed}, filepath.Join(dir, fmt.Sprint("merged-", resume)), nil).Missing)
	}
}

// TestMergeRefuses: the error names a shard that is damaged or of another run, and the earlier merge
// stays.
func TestMergeRefuses(t *testing.T) {
	cfg, _ := config(t, row("a", "do it right", ""), row("b", "do it wrong", ""), row("c", "do it right", ""), row("d", "do it right", ""))
	dir := t.TempDir()
	dirs := shards(t, cfg, 2, dir)
	other, _ := config(t, row("a", "do it right", ""), row("b", "do it wrong", ""), row("c", "do it right", ""), row("d", "do it right", ""), row("e", "do it right", ""))
	others := shards(t, other, 2, t.TempDir())
	whole := cfg
	whole.Output = filepath.Join(dir, "whole")
	ran(t, whole)
	version := cfg
	version.Version.Version = "2"
	versions := shards(t, version, 2, t.TempDir())
	thirds := shards(t, cfg, 3, t.TempDir())
	damaged := filepath.Join(dir, "damaged")
	must.Do(t, os.CopyFS(damaged, os.DirFS(dirs[1])))
	spoil(t, filepath.Join(damaged, record.RecordsFile), `"passed"`, `"failed"`)
	torn := filepath.Join(dir, "torn")
	must.Do(t, os.CopyFS(torn, os.DirFS(dirs[1])))
	must.Do(t, os.RemoveAll(filepath.Join(torn, record.WorkspacesDir)))
	must.Do(t, os.Mkdir(filepath.Join(torn, record.WorkspacesDir), 0o755))
	changed := func(name string, change func(dir string)) string {
		to := filepath.Join(dir, name)
		must.Do(t, exec.Command("cp", "-a", dirs[1], to).Run())
		change(to)
		return to
	}
	nested := changed("nested", func(dir string) {
		rewrite(t, dir, func(r *record.Record) {
			*r.CandidateWorkspace = record.WorkspacesDir + "/" + record.WorkspaceName("a", 1, 1) + "/x"
		})
	})
	log := changed("log", func(dir string) {
		rewrite(t, dir, func(r *record.Record) { r.Logs = []record.Log{{Path: record.LogDir("a", 1, 1) + "/prompt.txt"}} })
	})
	egress := changed("egress", func(dir string) {
		must.Do(t, os.WriteFile(filepath.Join(dir, record.EgressFile), []byte(firstOf(t, dirs[0])), 0o644))
	})
	pipe := changed("pipe", func(dir string) {
		must.Do(t, os.RemoveAll(filepath.Join(dir, record.WorkspacesDir)))
		rewrite(t, dir, func(r *record.Record) {
			must.Do(t, os.MkdirAll(filepath.Join(dir, record.WorkspacesDir), 0o755))
			must.Do(t, unix.Mkfifo(filepath.Join(dir, *r.CandidateWorkspace), 0o644))
		})
	})
	numbered := func(name, index, other string) string { // without a record
		return changed(name, func(dir string) {
			must.Do(t, errors.Join(os.Remove(filepath.Join(dir, record.SealFile)), os.Truncate(filepath.Join(dir, record.RecordsFile), 0)))
			spoil(t, filepath.Join(dir, record.ManifestFile), index, other)
			rewrite(t, dir, nil)
		})
	}
	for _, tt := range []struct {
		name string
		dirs []string
		want string
	}{
		{"part 3 of 2", []string{dirs[0], numbered("third", `"index": 2`, `"index": 3`)}, "is no shard of a run"},
		{"too many parts", []string{numbered("many", `"count": 2`, `"count": 1048577`)}, "is no shard of a run"},
		{"workspace in another shard's", []string{dirs[0], nested}, "is not the attempt's own"},
		{"log of another attempt", []string{dirs[0], log}, "is not in the attempt's own directory"},
		{"egress of another shard's attempt", []string{dirs[0], egress}, "which does not belong to it"},
		{"workspace is a pipe", []string{dirs[0], pipe}, pipe + ": records are damaged: workspaces/"},
		{"damaged record", []string{dirs[0], damaged}, damaged + ": records are damaged: candidates.jsonl:"},
		{"workspace is missing", []string{dirs[0], torn}, torn + ": records are damaged: workspaces/"},
		{"twice", []string{dirs[0], dirs[0]}, "are both shard 1"},
		{"another pack", []string{dirs[0], others[1]}, `inputs.tasks is "sha256:`},
		{"another version", []string{dirs[0], versions[1]}, `sbench.version is "" in ` + dirs[0] + `, and "2" in ` + versions[1]},
		{"another count", []string{dirs[0], thirds[1]}, "shard.count is 2 in " + dirs[0] + ", and 3 in " + thirds[1]},
		{"no shard", []string{dirs[0], whole.Output}, whole.Output + ": is no shard of a run"},
		{"none", nil, "none of them has ended"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output := filepath.Join(t.TempDir(), "merged")
			_, err := record.Merge(t.Context(), tt.dirs, output, record.MergeOptions{})
			if !errors.Is(err, record.ErrShards) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%v, want %s", err, tt.want)
			}
			if _, err := os.Stat(output); err == nil {
				t.Error("something was written")
			}
		})
	}
	_, err := record.Merge(t.Context(), dirs, whole.Output, record.MergeOptions{})
	must.Is(t, err, record.ErrExists)        // merged over another run
	foreign := filepath.Join(dir, "foreign") // as SecureBench leaves it, without a manifest
	must.Do(t, os.Mkdir(foreign, 0o755))
	must.Do(t, os.WriteFile(filepath.Join(foreign, record.RecordsFile), []byte("{}\n"), 0o644))
	_, err = record.Merge(t.Context(), dirs, foreign, record.MergeOptions{})
	must.Is(t, err, record.ErrExists) // merged over records without a manifest
	must.Equal(t, "{}\n", string(must.Read(t, filepath.Join(foreign, record.RecordsFile))))
	if _, err := record.Merge(t.Context(), dirs, filepath.Join(dir, "signed"), record.MergeOptions{Key: newKey(t).Public()}); !errors.Is(err, record.ErrShards) || !strings.Contains(err.Error(), record.SignatureFile) {
		t.Errorf("unsigned shards: %v", err)
	}
	merged := filepath.Join(dir, "merged")
	merge(t, dirs, merged, nil)
	if _, err := record.Merge(t.Context(), dirs[:1], merged, record.MergeOptions{}); err == nil || !strings.Contains(err.Error(), "shard 2 was merged before") {
		t.Errorf("a shard was dropped: %v", err)
	}
	verified(t, merged)
	more := cfg
	more.Output, more.Shard, more.Resume, more.Attempts = merged, nil, true, 2
	ran(t, more)
	_, err = record.Merge(t.Context(), dirs, merged, record.MergeOptions{})
	must.Is(t, err, record.ErrExists) // merged over attempts that were made after the merge
	must.Equal(t, 8, verified(t, merged).Records)
	cfg.Output, cfg.Shard, cfg.Resume = dirs[0], &run.Shard{Index: 2, Count: 2}, true
	if _, err := runs(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "belongs to shard 1 of 2") {
		t.Errorf("another shard's directory was resumed: %v", err)
	}
}

// TestMergedHeads: records of a merged run that differ from the records of its shards are noticed, even
// if they form a chain.
func TestMergedHeads(t *testing.T) {
	cfg, _ := config(t, row("a", "do it right", ""), row("b", "do it wrong", ""), row("c", "do it wrong", ""), row("d", "do it right", ""))
	dir := t.TempDir()
	merged := filepath.Join(dir, "merged")
	merge(t, shards(t, cfg, 2, dir), merged, newKey(t))
	forge(t, merged)
	v, err := record.Verify(t.Context(), merged, nil)
	if err != nil || v.OK() || !strings.Contains(fmt.Sprint(v.Findings), "not those that were merged") {
		t.Errorf("%+v, %v", v, err)
	}
}

func firstOf(t *testing.T, dir string) (entry string) {
	t.Helper()
	_, _, err := record.Read(dir, record.Trust{}, func(r record.Record) error {
		entry = fmt.Sprintf(`{"task":%q,"attempt":%d,"try":7}`+"\n", r.TaskID, r.Attempt)
		return nil
	})
	must.Do(t, err)
	return entry
}

func spoil(t *testing.T, name, old, text string) {
	t.Helper()
	data := must.Read(t, name)
	if !bytes.Contains(data, []byte(old)) {
		t.Fatalf("%s has no %s", name, old)
	}
	must.Do(t, os.WriteFile(name, bytes.Replace(data, []byte(old), []byte(text), 1), 0o644))
}

// TestShardsThatFail: whatever happens to the machines of shards, each attempt is recorded exactly once.
// With SBENCH_SOAK there are 100,000 attempts in 500 shards.
func TestShardsThatFail(t *testing.T) {
	tasks, attempts, count := 60, 10, 12
	if os.Getenv("SBENCH_SOAK") != "" {
		tasks, attempts, count = 2000, 50, 500
	}
	var rows []string
	for i := range tasks {
		rows = append(rows, choice(fmt.Sprint("task-", i)))
	}
	cfg, _ := config(t, rows...)
	cfg.StandIn, cfg.Producer, cfg.Attempts, cfg.Jobs = standin.Reference, nil, attempts, 4
	dir, luck := t.TempDir(), rand.New(rand.NewPCG(1, 2))
	var dirs []string
	for i := 1; i <= count; i++ {
		cfg.Shard, cfg.Output, cfg.Resume = &run.Shard{Index: i, Count: count}, filepath.Join(dir, fmt.Sprintf("shard-%03d", i)), true
		dirs = append(dirs, cfg.Output)
		for luck.IntN(3) == 0 { // the machine fails
			cfg := cfg
			ctx, fail := context.WithCancel(t.Context())
			after := luck.IntN(2 * tasks * attempts / count)
			cfg.Progress = func(e run.Event) {
				if e.Kind == run.TaskDone {
					if after--; after == 0 {
						fail()
					}
				}
			}
			_, _ = runs(ctx, cfg)
			fail()
			lose(t, luck, cfg.Output)
		}
		ran(t, cfg)
	}
	merged := filepath.Join(dir, "merged")
	start := time.Now()
	report := merge(t, dirs, merged, nil)
	t.Logf("merged in %.1f s", time.Since(start).Seconds())
	if report.Attempts != tasks*attempts || report.Planned != tasks*attempts || len(report.Missing) > 0 {
		t.Errorf("%d of %d, missing %v", report.Attempts, report.Planned, report.Missing)
	}
	seen := map[string]int{}
	_, _, err := record.Read(merged, record.Trust{}, func(r record.Record) error {
		if r.VerificationStatus == record.Passed {
			seen[fmt.Sprint(r.TaskID, " ", r.Attempt)]++
		}
		return nil
	})
	must.Do(t, err)
	for attempt, n := range seen {
		if n != 1 {
			t.Errorf("%s was measured %d times", attempt, n)
		}
	}
	if len(seen) != tasks*attempts {
		t.Errorf("%d attempts passed", len(seen))
	}
}

func choice(id string) string {
	return fmt.Sprintf(`{"id": %q, "family": "multiple_choice", "input": {"question": "?", "choices": ["one", "two"]}, "eval": {"answer": "B"}, "environment": {"image": "base"}}`, id)
}

// lose damages a shard's directory as the end of a machine may.
func lose(t *testing.T, luck *rand.Rand, dir string) {
	t.Helper()
	name := filepath.Join(dir, record.RecordsFile)
	info, err := os.Stat(name)
	if err != nil {
		return // it ended before the first record
	}
	must.Do(t, os.RemoveAll(filepath.Join(dir, record.SealFile)))
	switch luck.IntN(3) {
	case 0: // all of it, with the disk
		must.Do(t, os.RemoveAll(dir))
	case 1: // what was not on disk yet
		must.Do(t, os.Truncate(name, max(0, info.Size()-int64(luck.IntN(3000)))))
	}
}

// TestDeal: every attempt is in one shard, and all shards have equally many, or one less.
func TestDeal(t *testing.T) {
	var rows []string
	for i := range 40 {
		rows = append(rows, choice(fmt.Sprint("task-", i)))
	}
	cfg, _ := config(t, rows...)
	cfg.StandIn, cfg.Producer, cfg.Attempts = standin.Reference, nil, 3
	seen, loads := map[string]int{}, make([]int, 7)
	for i := range loads {
		cfg.Shard = &run.Shard{Index: i + 1, Count: len(loads)}
		all, _, err := todo(t.Context(), cfg)
		must.Do(t, err)
		loads[i] = len(all)
		for _, a := range all {
			seen[fmt.Sprint(a.Task, " ", a.Attempt)]++
		}
	}
	if len(seen) != 120 || slices.Max(slices.Collect(maps.Values(seen))) != 1 {
		t.Errorf("%d attempts of 120, or one of them twice", len(seen))
	}
	if slices.Max(loads)-slices.Min(loads) > 1 {
		t.Errorf("%v", loads)
	}
	cfg.Shard, cfg.Output = &run.Shard{Index: 130, Count: 200}, filepath.Join(t.TempDir(), "empty")
	if summary, err := runs(t.Context(), cfg); err != nil || summary.Total != 0 {
		t.Errorf("a shard without attempts: %+v, %v", summary, err)
	}
}

// TestParseShard reads values of --shard, with the variables of Slurm and Kubernetes.
func TestParseShard(t *testing.T) {
	array := map[string]string{"SLURM_ARRAY_TASK_ID": "3"}
	indexed := map[string]string{"JOB_COMPLETION_INDEX": "0"}
	for _, tt := range []struct {
		text, want string
		env        map[string]string
	}{
		{"1/4", "1/4", nil},
		{"4/4", "4/4", array},
		{"auto/8", "3/8", array},
		{"auto/8", "1/8", indexed},
		{"auto", "expected I/N", array},
		{"auto/2", "there is no part 3 of 2", array},
		{"auto/2", "neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX", nil},
		{"0/4", "parts are counted from 1", nil},
		{"5/4", "there is no part 5 of 4", nil},
		{"1/1048577", "there are at most 1048576", nil},
		{"4", "expected I/N", nil},
		{"a/b", "expected I/N", nil},
		{"1/4/2", "expected I/N", nil},
	} {
		shard, err := run.ParseShard(tt.text, func(name string) string { return tt.env[name] })
		got := fmt.Sprintf("%d/%d", shard.Index, shard.Count)
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, tt.want) {
			t.Errorf("%s with %v: %s, want %s", tt.text, tt.env, got, tt.want)
		}
	}
}
