package record_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace"
)

// What the names of the sample's files begin with.
const (
	aLog     = "logs/a-ca978112ca1bbdca/1/agent-trace.log"
	cPrivate = "private/c-2e7d2c03a9507ae2/1.json"
	cPlace   = "workspaces/c-2e7d2c03a9507ae2"
)

// sample makes a run's directory with everything that records refer to.
func sample(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) string {
		must.Do(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
		return record.Digest([]byte(text))
	}
	tester := filepath.Join(t.TempDir(), "tester.yaml")
	must.Do(t, os.WriteFile(tester, []byte("x"), 0o644))
	l, err := record.Create(dir, record.Manifest{RunID: "r", Inputs: map[string]record.Input{"tester": {Path: tester, Digest: record.Digest([]byte("x"))}}})
	must.Do(t, err)
	text, patch, place := "42", "diff", string(cPlace)
	egress := `{"task":"a","attempt":1,"try":1,"host":"x"}` + "\n"
	write("egress.jsonl", egress)
	log := write(aLog, "said\n")
	tree, attributes := kept(t, filepath.Join(dir, place))
	for _, r := range []record.Record{
		{TaskID: "a", CandidateText: &text, CandidateDigest: record.Digest([]byte(text)), EgressDigest: record.Digest([]byte(egress)),
			Logs: []record.Log{{Path: aLog, Bytes: 5, Digest: log}}},
		{TaskID: "b", CandidatePatch: &patch, CandidateDigest: record.Digest([]byte(patch))},
		{TaskID: "c", CandidateWorkspace: &place, CandidateDigest: tree.Digest, WorkspaceDigest: tree.Digest, WorkspaceAttributes: attributes},
	} {
		r.RunID, r.Attempt, r.Try, r.VerificationStatus = "r", 1, 1, record.Passed
		r.Provenance.Policy.WorkspaceBytes = 100
		if r.TaskID == "c" {
			must.Do(t, record.WritePrivate(l.Root(), &r, record.Private{Stdout: "expected 42"}))
		}
		_, err := l.Append(r)
		must.Do(t, err)
	}
	must.Do(t, l.Seal(record.Seal{At: time.Unix(1, 0).UTC()}, nil))
	must.Do(t, l.Close())
	return dir
}

// kept makes a workspace with a file that has lost its mode, and the attributes file.
func kept(t *testing.T, dir string) (report workspace.TreeReport, attributes string) {
	t.Helper()
	src := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(src, "answer.txt"), []byte("44\n"), 0o644))
	must.Do(t, os.WriteFile(filepath.Join(src, "locked"), []byte("x"), 0o200)) // not readable by its owner
	must.Do(t, os.MkdirAll(dir, 0o755))
	from, err := os.OpenRoot(filepath.Dir(src))
	must.Do(t, err)
	to, err := os.OpenRoot(dir)
	must.Do(t, err)
	list, err := workspace.NewAttributesWriter(dir + workspace.AttributesSuffix)
	must.Do(t, err)
	report, err = workspace.StoredTree{Root: from, Name: filepath.Base(src)}.Copy(t.Context(), to, workspace.TreeOptions{Lost: list.Add})
	must.Do(t, errors.Join(err, from.Close(), to.Close()))
	attributes, err = list.Close()
	must.Do(t, err)
	return report, attributes
}

func verify(t *testing.T, dir string) record.Verification {
	t.Helper()
	v, err := record.Verify(context.Background(), dir, nil)
	must.Do(t, err)
	return v
}

// TestEveryByteSoak flips every byte of every file, one after the other. In short mode,
// it flips every seventh.
func TestEveryByteSoak(t *testing.T) {
	step := 7
	if os.Getenv("SBENCH_SOAK") != "" {
		step = 1
	}
	dir := sample(t)
	if v := verify(t, dir); !v.OK() || !v.Sealed || v.Records != 3 || len(v.Findings) > 0 {
		t.Fatalf("the sample: %+v", v)
	}
	flipped := 0
	must.Do(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || d.Name() == ".lock" {
			return err
		}
		data := must.Read(t, path)
		for i := 0; i < len(data); i += step {
			changed := slices.Clone(data)
			changed[i] ^= 1 << (i % 7)
			must.Do(t, os.WriteFile(path, changed, 0o644))
			if v := verify(t, dir); v.OK() {
				t.Errorf("%s: byte %d (%q) as %q: nothing is wrong", path, i, data[i], changed[i])
			}
			flipped++
		}
		return os.WriteFile(path, data, 0o644)
	}))
	if flipped < 500 {
		t.Errorf("only %d flips", flipped)
	}
}

// TestTampered makes changes of more than one byte.
func TestTampered(t *testing.T) {
	lines := func(f func([]string) []string) func(string) string {
		return func(text string) string { return strings.Join(f(strings.SplitAfter(text, "\n")), "") }
	}
	tests := []struct {
		name, file string
		change     func(string) string
		want       string // in a finding; "" if the change is allowed
	}{
		{"last line removed", record.RecordsFile, lines(func(l []string) []string { return l[:2] }), "the seal covers 3"},
		{"first line removed", record.RecordsFile, lines(func(l []string) []string { return l[1:] }), "does not follow"},
		{"lines swapped", record.RecordsFile, lines(func(l []string) []string { return []string{l[1], l[0], l[2]} }), "does not follow"},
		{"line doubled", record.RecordsFile, lines(func(l []string) []string { return append(l[:3], l[2]) }), "does not follow"},
		{"torn line", record.RecordsFile, func(s string) string { return s + `{"run_id":"r"` }, "not finished"},
		{"all gone", record.RecordsFile, func(string) string { return "" }, "the seal covers 3"},
		{"entry of a recorded try", record.EgressFile, func(s string) string { return s + `{"task":"b","attempt":1,"try":1}` + "\n" }, `task "b"`},
		{"entry of another try", record.EgressFile, func(s string) string { return s + `{"task":"b","attempt":1,"try":2}` + "\n" }, ""},
		{"file in a workspace", cPlace + "/more", func(string) string { return "x" }, "not what line 3 recorded"},
		{"list of attributes removed", cPlace + ".attributes.jsonl", nil, cPlace + ".attributes.jsonl: the workspace of line 3: the list of owners and modes does not fit: it is missing"},
		{"list of attributes emptied", cPlace + ".attributes.jsonl", func(string) string { return "" }, "not what its digest says"},
		{"another owner", cPlace + ".attributes.jsonl", func(s string) string { return strings.Replace(s, `"uid":`, `"uid":1`, 1) }, "not what its digest says"},
		{"file with a lost mode removed", cPlace + "/locked", nil, "names an entry that does not exist"},
		{"seal removed", record.SealFile, nil, ""},
		{"file that no record names", "logs/more", func(string) string { return "x" }, ""},
		{"private part removed", cPrivate, nil, cPrivate + ": the private part of line 3"},
		{"private part changed", cPrivate, func(s string) string { return s + " " }, "the private part is not what line 3 recorded"},
		{"log removed", aLog, nil, "missing"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := sample(t)
			path := filepath.Join(dir, tt.file)
			if tt.change == nil {
				must.Do(t, os.Remove(path))
			} else {
				old, err := os.ReadFile(path)
				if err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Fatal(err)
				}
				must.Do(t, os.WriteFile(path, []byte(tt.change(string(old))), 0o644))
			}
			v := verify(t, dir)
			if v.OK() != (tt.want == "") || !strings.Contains(fmt.Sprint(v.Findings), tt.want) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestNeverWritten: records that no run writes are damaged, although their chain is right.
func TestNeverWritten(t *testing.T) {
	place := "workspaces/" + record.WorkspaceName("d", 1, 1)
	for _, tt := range []struct {
		name string
		r    record.Record
		want string
	}{
		{"workspace without a digest", record.Record{TaskID: "d", CandidateWorkspace: &place}, "the workspace is not what line 4 recorded"},
		{"another candidate than the workspace", record.Record{TaskID: "d", WorkspaceDigest: "sha256:00", CandidateDigest: "sha256:01"}, "candidate_digest is not the candidate's digest"},
		{"a try for the second time", record.Record{TaskID: "b"}, "line 2 has the same try"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := sample(t)
			must.Do(t, os.Mkdir(filepath.Join(dir, place), 0o755))
			l, _, _, err := record.Resume(dir, record.Trust{}, func(record.Record) error { return nil })
			must.Do(t, err)
			tt.r.RunID, tt.r.Attempt, tt.r.Try, tt.r.VerificationStatus = "r", 1, 1, record.Failed
			_, err = l.Append(tt.r)
			must.Do(t, errors.Join(err, l.Seal(record.Seal{}, nil), l.Close()))
			if v := verify(t, dir); v.OK() || !strings.Contains(fmt.Sprint(v.Findings), tt.want) {
				t.Errorf("%+v", v)
			}
		})
	}
}

// TestBombs: what a few megabytes of somebody else's run can make sbench remember is bounded.
func TestBombs(t *testing.T) {
	const many = 1 << 20
	bomb := func(before, one, after string) string {
		return before + strings.Repeat(one+",", many) + one + after + "\n"
	}
	for _, tt := range []struct{ name, file, text, want string }{
		{"empty lines", record.RecordsFile, strings.Repeat("\n", many), "what comes after this was not looked at"},
		{"steps", record.RecordsFile, bomb(`{"steps":[`, "{}", "]}"), "JSON values"},
		{"metadata", record.RecordsFile, bomb(`{"verifier_metadata":{"a":[`, "[]", "]}}"), "JSON values"},
		{"merged shards", record.ManifestFile, bomb(`{"merged":[`, "{}", "]}"), "JSON values"},
		{"a seal", record.SealFile, bomb(`{"a":[`, "1", "]}"), "JSON values"},
		{"empty entries", record.EgressFile, strings.Repeat("\n", many), "what comes after this was not looked at"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := sample(t)
			must.Do(t, os.WriteFile(filepath.Join(dir, tt.file), []byte(tt.text), 0o644))
			v := verify(t, dir)
			if v.OK() || len(v.Findings) > 1010 || !strings.Contains(fmt.Sprint(v.Findings), tt.want) {
				t.Errorf("%d findings: %.1000v", len(v.Findings), v.Findings)
			}
		})
	}
}

// TestLongLine: a record that nobody could read again is not written.
func TestLongLine(t *testing.T) {
	l, err := record.Create(filepath.Join(t.TempDir(), "run"), record.Manifest{RunID: "r"})
	must.Do(t, err)
	value := []byte("[" + strings.Repeat("0,", 1<<20) + "0]")
	r := record.Record{RunID: "r", TaskID: "t", VerificationStatus: record.Failed, ResourceSummary: []compiler.ResourceSummary{{Name: "x", Value: value}}}
	_, err = l.Append(r)
	must.Tells(t, err, "JSON values")
	must.Do(t, l.Close())
}

// onlyInMemory reports whether a crash of the machine would lose what is in a file.
func onlyInMemory(t *testing.T, name string) bool {
	t.Helper()
	out, err := exec.Command("filefrag", "-v", name).CombinedOutput()
	if err != nil || strings.Contains(string(out), "not supported") {
		t.Skipf("this file system does not tell: %s", out)
	}
	return strings.Contains(string(out), "delalloc")
}

// onDisk returns a new directory of a file system that can lose what is not synced: /tmp may be in memory.
func onDisk(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/var/tmp", "sbench-record-")
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	return dir
}

// unsynced calls write until the file that it writes is only in memory: another program may sync the file system.
func unsynced(t *testing.T, name string, write func()) {
	t.Helper()
	for range 20 {
		if write(); onlyInMemory(t, name) {
			return
		}
	}
	t.Skip("this file system has no file that is only in memory")
}

// TestSyncedMerge: after a crash of the machine, no file of a merged run is empty.
func TestSyncedMerge(t *testing.T) {
	disk, text := onDisk(t), []byte(strings.Repeat("x", 1<<16))
	dir, merged := filepath.Join(disk, "shard"), filepath.Join(disk, "merged")
	l, err := record.Create(dir, record.Manifest{RunID: "r", Planned: 1, Shard: &record.Shard{Index: 1, Count: 1, Whole: 1, Attempts: map[string][]int{"a": {1}}}})
	must.Do(t, err)
	at := filepath.Join(dir, aLog)
	must.Do(t, errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o644)))
	_, err = l.Append(record.Record{
		RunID: "r", TaskID: "a", Attempt: 1, Try: 1, VerificationStatus: record.Failed,
		Logs: []record.Log{{Path: aLog, Bytes: int64(len(text)), Digest: record.Digest(text)}},
	})
	must.Do(t, errors.Join(err, l.Seal(record.Seal{At: time.Unix(1, 0).UTC(), Planned: 1}, nil), l.Close()))
	unsynced(t, at, func() { // as on a host that copied the shard
		must.Do(t, errors.Join(os.Remove(at), os.WriteFile(at, text, 0o644)))
	})
	_, err = record.Merge(t.Context(), []string{dir}, merged, record.MergeOptions{})
	must.Do(t, err)
	if onlyInMemory(t, filepath.Join(merged, aLog)) {
		t.Error("a log is only in memory, and the merged run is sealed")
	}
}

// TestSynced: after a crash of the machine, no file that a record names is empty.
func TestSynced(t *testing.T) {
	dir := filepath.Join(onDisk(t), "run")
	l, err := record.Create(dir, record.Manifest{RunID: "r"})
	must.Do(t, err)
	defer func() { must.Do(t, l.Close()) }()
	place, text := string(cPlace), []byte(strings.Repeat("x", 1<<16))
	private := record.Record{TaskID: "c", Attempt: 1, Try: 1, VerificationStatus: record.Passed}
	for name, r := range map[string]record.Record{
		cPlace + "/sub/file": {CandidateWorkspace: &place}, aLog: {Logs: []record.Log{{Path: aLog}}}, "egress.jsonl": {EgressDigest: "x"}, cPrivate: private,
	} {
		at := filepath.Join(dir, name)
		unsynced(t, at, func() {
			must.Do(t, errors.Join(os.RemoveAll(at), os.MkdirAll(filepath.Dir(at), 0o755)))
			if name == cPrivate {
				must.Do(t, record.WritePrivate(l.Root(), &r, record.Private{Stdout: string(text)}))
			} else {
				must.Do(t, os.WriteFile(at, text, 0o644))
			}
		})
		r.VerificationStatus = record.Passed
		_, err := l.Append(r)
		must.Do(t, err)
		if onlyInMemory(t, at) {
			t.Errorf("%s is only in memory, and its record is on disk", name)
		}
	}
}

// TestAppendAtOnce: attempts that end at the same time make one chain.
func TestAppendAtOnce(t *testing.T) {
	dir := onDisk(t)
	l, err := record.Create(filepath.Join(dir, "run"), record.Manifest{RunID: "r"})
	must.Do(t, err)
	var attempts errgroup.Group
	for i := range 16 {
		attempts.Go(func() error {
			_, err := l.Append(record.Record{TaskID: "a", Attempt: i + 1, Try: 1, VerificationStatus: record.Passed, EgressDigest: "x"})
			return err
		})
	}
	must.Do(t, errors.Join(attempts.Wait(), l.Close()))
	n := 0
	_, _, err = record.Read(filepath.Join(dir, "run"), record.Trust{AcceptUnsigned: true}, func(record.Record) error { n++; return nil })
	must.Do(t, err)
	must.Equal(t, 16, n)
}

// TestLargeShard: a manifest that nobody could read again is not written.
func TestLargeShard(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	attempts := map[string][]int{"t": slices.Repeat([]int{1}, 1<<21)}
	if _, err := record.Create(dir, record.Manifest{Shard: &record.Shard{Attempts: attempts}}); err == nil || !strings.Contains(err.Error(), "more shards") {
		t.Errorf("error %v", err)
	}
	_, err := os.Stat(filepath.Join(dir, record.ManifestFile))
	must.Equal(t, true, errors.Is(err, fs.ErrNotExist))
}

// TestForeignDirectory: in a directory from somebody else, a link out of it is not followed.
func TestForeignDirectory(t *testing.T) {
	dir := sample(t)
	log := filepath.Join(dir, aLog)
	must.Do(t, os.Remove(log))
	must.Do(t, os.Symlink("/etc/passwd", log))
	if v := verify(t, dir); v.OK() {
		t.Error("a log that leads out of the directory is good")
	}
	must.Do(t, os.Remove(log))
	must.Do(t, unix.Mkfifo(log, 0o644))
	if v := verify(t, dir); v.OK() {
		t.Error("a log that is a pipe is good")
	}
	dir = sample(t)
	must.Do(t, os.RemoveAll(filepath.Join(dir, record.PrivateDir)))
	if v := verify(t, dir); !v.OK() || !strings.Contains(fmt.Sprint(v.Findings), "public form") {
		t.Errorf("without the private part: %v", v.Findings)
	}
	deep := filepath.Join(filepath.Dir(aLog), "step-1/more")
	must.Do(t, os.MkdirAll(filepath.Join(dir, deep, strings.Repeat("d/", 100)), 0o755))
	if v := verify(t, dir); !v.OK() || !strings.Contains(fmt.Sprint(v.Findings), deep+": note: no record names it") {
		t.Errorf("directories inside one another: %v", v.Findings)
	}
	must.Do(t, os.Chtimes(filepath.Join(dir, cPlace, "answer.txt"), time.Time{}, time.Unix(1, 0)))
	if v := verify(t, dir); v.OK() {
		t.Error("a file with another time is good")
	}
	dir = sample(t)
	must.Do(t, unix.Mkfifo(filepath.Join(dir, cPlace, "more"), 0o644))
	if v := verify(t, dir); v.OK() || !strings.Contains(fmt.Sprint(v.Findings), "what sbench never keeps: more (fifo)") {
		t.Errorf("a pipe in a workspace: %v", v.Findings)
	}
	must.Do(t, os.Truncate(filepath.Join(dir, cPlace, "answer.txt"), 101))
	must.Contains(t, fmt.Sprint(verify(t, dir).Findings), "more than 100 bytes") // a workspace that is larger than its record allows
	must.Do(t, os.RemoveAll(filepath.Join(dir, cPlace)))
	must.Do(t, unix.Mkfifo(filepath.Join(dir, cPlace), 0o644))
	if v := verify(t, dir); v.OK() {
		t.Error("a workspace that is a pipe is good")
	}
	for _, path := range []string{"/dev/zero", "/dev/stdin", filepath.Join(dir, aLog)} {
		run := filepath.Join(t.TempDir(), "run")
		l, err := record.Create(run, record.Manifest{RunID: "r", Inputs: map[string]record.Input{"tester": {Path: path, Digest: "sha256:00"}}})
		must.Do(t, err)
		must.Do(t, l.Seal(record.Seal{}, nil))
		must.Do(t, l.Close())
		if v := verify(t, run); len(v.Findings) != 1 || !v.Findings[0].Note {
			t.Errorf("%s: %+v", path, v.Findings)
		}
		must.Do(t, unix.Mkfifo(filepath.Join(run, record.WorkspacesDir), 0o644))
		if v := verify(t, run); v.OK() {
			t.Error("a pipe in place of all workspaces is good")
		}
	}
}

func TestResume(t *testing.T) {
	dir := sample(t)
	path := filepath.Join(dir, record.RecordsFile)
	whole := must.Read(t, path)
	last := len(whole) - bytes.LastIndexByte(whole[:len(whole)-1], '\n') - 1
	for _, cut := range []int{1, last, len(whole)} { // no byte of a sealed run may be missing
		must.Do(t, os.WriteFile(path, whole[:len(whole)-cut], 0o644))
		_, _, _, err := record.Resume(dir, record.Trust{}, func(record.Record) error { return nil })
		if !errors.Is(err, record.ErrDamaged) || !strings.Contains(err.Error(), "the seal covers 3") {
			t.Errorf("cut %d of a sealed run: %v", cut, err)
		}
		if left, err := os.ReadFile(path); err != nil || len(left) != len(whole)-cut {
			t.Errorf("cut %d: the file was changed, %v", cut, err)
		}
	}
	seal := filepath.Join(dir, record.SealFile)
	sealed := must.Read(t, seal)
	must.Do(t, os.WriteFile(filepath.Join(dir, record.SignatureFile), nil, 0o644))
	must.Do(t, os.Remove(seal))
	if _, _, _, err := record.Resume(dir, record.Trust{}, func(record.Record) error { return nil }); !errors.Is(err, record.ErrDamaged) {
		t.Errorf("a signature without a seal: %v", err)
	}
	must.Do(t, os.Remove(filepath.Join(dir, record.SignatureFile)))
	for _, cut := range []int{0, 1, last / 2, last - 1} { // bytes cut off the last line
		must.Do(t, os.WriteFile(path, whole[:len(whole)-cut], 0o644))
		var seen []string
		l, m, torn, err := record.Resume(dir, record.Trust{}, func(r record.Record) error {
			seen = append(seen, r.TaskID)
			return nil
		})
		must.Do(t, err)
		if m.RunID != "r" || (torn > 0) != (cut > 0) || len(seen) != map[bool]int{true: 3, false: 2}[cut == 0] {
			t.Errorf("cut %d: run %q, torn %d, saw %v", cut, m.RunID, torn, seen)
		}
		_, _, _, err = record.Resume(dir, record.Trust{}, nil)
		must.Is(t, err, record.ErrInUse) // a second process
		_, err = l.Append(record.Record{TaskID: "d", Attempt: 1, Try: 1, VerificationStatus: record.Error})
		must.Report(t, err)
		must.Do(t, l.Close())
		if v := verify(t, dir); !v.OK() || v.Records != len(seen)+1 {
			t.Errorf("cut %d: %+v", cut, v)
		}
	}
	must.Do(t, os.WriteFile(path, whole, 0o644))
	must.Do(t, os.WriteFile(seal, sealed, 0o644))
	l, _, _, err := record.Resume(dir, record.Trust{}, func(record.Record) error { return nil })
	must.Do(t, err)
	must.Do(t, l.Close())
	must.Do(t, os.Remove(path))
	must.Do(t, unix.Mkfifo(path, 0o644))
	_, _, _, err = record.Resume(dir, record.Trust{}, nil)
	must.Tells(t, err, "no regular file") // a pipe
	must.Do(t, os.Remove(path))
	must.Do(t, os.Remove(seal))
	must.Do(t, os.WriteFile(path, append([]byte("x"), whole...), 0o644))
	_, _, _, err = record.Resume(dir, record.Trust{}, func(record.Record) error { return nil })
	must.Is(t, err, record.ErrDamaged) // a damaged line
	_, err = record.Create(dir, record.Manifest{})
	must.Is(t, err, record.ErrExists) // create over records
	l, err = record.Create(t.TempDir(), record.Manifest{})
	must.Do(t, err)
	if _, err := l.Append(record.Record{}); err == nil {
		t.Error("a record without a status was written")
	}
	must.Do(t, l.Close())
}

func newKey(t *testing.T) *record.Key {
	t.Helper()
	key, err := record.LoadKey(must.KeyFile(t))
	must.Do(t, err)
	return key
}

// TestTrust: if a signature is required, records that somebody rewrote with correct digests are not
// used. If they are accepted unsigned, every later seal says so.
func TestTrust(t *testing.T) {
	key, other := newKey(t), newKey(t)
	const sealed, unsealed = true, false
	// write makes a directory with two records, the second of status last.
	write := func(last record.Status, end bool, signed *record.Key) string {
		dir := filepath.Join(t.TempDir(), "run")
		l, err := record.Create(dir, record.Manifest{RunID: "r"})
		must.Do(t, err)
		for i, status := range []record.Status{record.Passed, last} {
			_, err := l.Append(record.Record{TaskID: fmt.Sprint(i), Attempt: 1, Try: 1, VerificationStatus: status})
			must.Do(t, err)
		}
		if end {
			must.Do(t, l.Seal(record.Seal{At: time.Unix(1, 0)}, signed))
		}
		must.Do(t, l.Close())
		return dir
	}
	signed := func() string { return write(record.Failed, sealed, key) }
	over := func(dir, forged string, names ...string) string {
		for _, name := range names {
			data := must.Read(t, filepath.Join(forged, name))
			must.Do(t, os.WriteFile(filepath.Join(dir, name), data, 0o644))
		}
		return dir
	}
	forged := write(record.Passed, sealed, nil)
	tail := signed()
	l, _, _, err := record.Resume(tail, record.Trust{Key: key.Public()}, func(record.Record) error { return nil })
	must.Do(t, err)
	_, err = l.Append(record.Record{TaskID: "tail", Attempt: 1, Try: 1, VerificationStatus: record.Passed})
	must.Do(t, errors.Join(err, l.Close()))
	unsealedSignature := signed()
	must.Do(t, os.Remove(filepath.Join(unsealedSignature, record.SealFile)))
	killed := write(record.Passed, unsealed, nil)
	for dir, want := range map[string]string{killed: "it is unknown whether records at its end are missing", tail: "went on after it, by 1 records, and was interrupted: these are not sealed"} {
		if v := verify(t, dir); !v.OK() || v.Sealed || v.Signed || !strings.Contains(fmt.Sprint(v.Findings), want) {
			t.Errorf("a killed session: %+v", v)
		}
	}
	for _, c := range []struct {
		name string
		dir  string
		// The errors of Resume and Read without a key, and with it. The last two also
		// with AcceptUnsigned, where ErrUnsigned becomes nil.
		resume, read, resumeKey, readKey error
	}{
		{"signed", signed(), record.ErrUnsigned, nil, nil, nil},
		{"signed by another", write(record.Failed, sealed, other), record.ErrUnsigned, nil, record.ErrUnsigned, record.ErrUnsigned},
		{"sealed", forged, nil, nil, record.ErrUnsigned, record.ErrUnsigned},
		{"cut", killed, nil, record.ErrUnsigned, record.ErrUnsigned, record.ErrUnsigned},
		{"cut behind the signature", tail, record.ErrUnsigned, record.ErrUnsigned, record.ErrUnsigned, record.ErrUnsigned},
		{"forged records", over(signed(), forged, record.RecordsFile), record.ErrDamaged, record.ErrDamaged, record.ErrDamaged, record.ErrDamaged},
		{"forged records and seal", over(signed(), forged, record.RecordsFile, record.SealFile), record.ErrUnsigned, record.ErrUnsigned, record.ErrUnsigned, record.ErrUnsigned},
		{"no seal", unsealedSignature, record.ErrDamaged, record.ErrDamaged, record.ErrDamaged, record.ErrDamaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, trust := range []record.Trust{{}, {Key: key.Public()}, {AcceptUnsigned: true}, {Key: key.Public(), AcceptUnsigned: true}} {
				resume, read := c.resume, c.read
				if trust.Key != nil {
					resume, read = c.resumeKey, c.readKey
				}
				accepted := 0
				if trust.AcceptUnsigned && errors.Is(read, record.ErrUnsigned) {
					read, accepted = nil, map[bool]int{true: 3, false: 2}[c.dir == tail]
				}
				each := func(record.Record) error { return nil }
				if _, s, err := record.Read(c.dir, trust, each); !errors.Is(err, read) || err == nil && s.AcceptedUnsigned != accepted {
					t.Errorf("read with %+v: %+v, %v, want %d, %v", trust, s, err, accepted, read)
				}
				if trust.AcceptUnsigned && errors.Is(resume, record.ErrUnsigned) {
					resume = nil
				}
				l, _, _, err := record.Resume(c.dir, trust, each)
				if !errors.Is(err, resume) {
					t.Errorf("resume with %+v: %v, want %v", trust, err, resume)
				}
				if err == nil {
					must.Do(t, l.Close())
				}
			}
			v, err := record.Verify(context.Background(), c.dir, key.Public())
			if must.Do(t, err); v.OK() != (c.readKey == nil) || v.Signed != v.OK() {
				t.Errorf("verify: %+v, want %v", v, c.readKey)
			}
		})
	}
	// Every later seal records what was accepted once.
	for i, trust := range []record.Trust{{Key: key.Public(), AcceptUnsigned: true}, {Key: key.Public()}} {
		l, _, _, err := record.Resume(forged, trust, func(record.Record) error { return nil })
		must.Do(t, err)
		_, err = l.Append(record.Record{TaskID: "more", Attempt: 1, Try: i + 1, VerificationStatus: record.Passed})
		must.Do(t, errors.Join(err, l.Seal(record.Seal{}, key), l.Close()))
		v, err := record.Verify(context.Background(), forged, key.Public())
		if must.Do(t, err); !v.OK() || !v.Signed || !strings.Contains(fmt.Sprint(v.Findings), "first 2 records") {
			t.Errorf("%+v", v)
		}
	}
}

// TestIrregular: neither readers nor writers accept a pipe, a link or a device in place
// of a file of the run's directory.
func TestIrregular(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "elsewhere")
	makers := map[string]func(path string) error{
		"pipe":          func(path string) error { return unix.Mkfifo(path, 0o644) },
		"link":          func(path string) error { return os.Symlink(elsewhere, path) },
		"link in there": func(path string) error { return os.Symlink("copy", path) },
		"directory":     func(path string) error { return os.Mkdir(path, 0o755) },
	}
	if os.Geteuid() == 0 {
		makers["device"] = func(path string) error { return unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 5))) }
	}
	each := func(record.Record) error { return nil }
	key := newKey(t)
	for _, file := range []string{record.RecordsFile, record.ManifestFile, record.SealFile, record.SignatureFile, ".lock"} {
		for name, make := range makers {
			t.Run(file+" "+name, func(t *testing.T) {
				dir := sample(t)
				l, _, _, err := record.Resume(dir, record.Trust{}, each)
				must.Do(t, err)
				must.Do(t, errors.Join(l.Seal(record.Seal{}, key), l.Close()))
				path := filepath.Join(dir, file)
				must.Do(t, os.Rename(path, filepath.Join(dir, "copy")))
				if err := make(path); err != nil {
					t.Skip(err)
				}
				if l, _, _, err := record.Resume(dir, record.Trust{AcceptUnsigned: true}, each); err == nil {
					t.Error("it was gone on with", l.Close())
				}
				if file == ".lock" {
					return
				}
				if _, _, err := record.Read(dir, record.Trust{AcceptUnsigned: true}, each); err == nil {
					t.Error("it was read")
				}
				if v, err := record.Verify(context.Background(), dir, nil); err == nil && v.OK() {
					t.Error("it was verified")
				}
			})
		}
	}
	// The temporary name of the next seal, which a killed process can leave, is not
	// followed either.
	dir := sample(t)
	must.Do(t, os.Symlink(elsewhere, filepath.Join(dir, ".new-"+record.SealFile)))
	l, _, _, err := record.Resume(dir, record.Trust{}, each)
	must.Do(t, err)
	must.Do(t, errors.Join(l.Seal(record.Seal{}, nil), l.Close()))
	if _, err := os.Lstat(elsewhere); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something was written elsewhere: %v", err)
	}
}

// TestSignature: a signed run is signed by its key alone, and no longer if a byte of the signature is changed.
func TestSignature(t *testing.T) {
	key := newKey(t)
	run := filepath.Join(t.TempDir(), "run")
	l, err := record.Create(run, record.Manifest{RunID: "r"})
	must.Do(t, err)
	must.Do(t, l.Seal(record.Seal{}, key))
	must.Do(t, l.Close())
	if v, err := record.Verify(context.Background(), run, key.Public()); err != nil || !v.OK() || !v.Signed {
		t.Errorf("unchanged: %+v, %v", v, err)
	}
	if v, err := record.Verify(context.Background(), run, newKey(t).Public()); err != nil || v.OK() || v.Signed {
		t.Errorf("another key: %+v, %v", v, err)
	}
	path := filepath.Join(run, record.SignatureFile)
	data := must.Read(t, path)
	for i := range data {
		changed := slices.Clone(data)
		changed[i] ^= 1
		must.Do(t, os.WriteFile(path, changed, 0o644))
		if v, err := record.Verify(context.Background(), run, key.Public()); err == nil && v.Signed && !harmless(data, i) {
			t.Errorf("byte %d (%q) of the signature is changed, and it is good", i, data[i])
		}
	}
}

// harmless reports whether byte i is in the line of the key's id, which is only a hint.
func harmless(data []byte, i int) bool {
	line := data[strings.LastIndexByte(string(data[:i]), '\n')+1:]
	return strings.Contains(string(line[:min(len(line), 30)]), "keyid")
}
