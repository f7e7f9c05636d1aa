package main

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/workspace"
)

var updateVerdicts = flag.Bool("update-verdicts", false, "write testdata/verdicts.jsonl anew")

// verdict is the part of a record that must not depend on who runs sbench or how the host
// enforces limits.
type verdict struct {
	Task      string        `json:"task"`
	Status    record.Status `json:"status"`
	Passed    *bool         `json:"passed,omitempty"`
	Score     *float64      `json:"score,omitempty"`
	Reason    string        `json:"reason,omitempty"`
	Phase     string        `json:"phase,omitempty"`
	End       any           `json:"end,omitempty"` // how the harness ended
	Code      any           `json:"code,omitempty"`
	Reached   any           `json:"reached,omitempty"`
	Candidate string        `json:"candidate,omitempty"`
	Workspace string        `json:"workspace,omitempty"`
}

// TestVerdictsRecordByRecord: the verdicts on hostile agents, and on the example packs that need no image of their
// own, are the same, record by record, for root and for an ordinary user without control groups.
func TestVerdictsRecordByRecord(t *testing.T) {
	h := newHost(t)
	testers := []string{h.hostilePack()}
	for _, tester := range must.Glob(t, "../../benchmarks/*/tester-command.yaml") {
		if _, err := os.Stat(filepath.Join(filepath.Dir(tester), pack.ImagesDir)); err != nil { // the other packs need images of their own
			testers = append(testers, must.Abs(t, tester))
		}
	}
	var got []verdict
	for i, tester := range testers {
		output := filepath.Join(h.dir, fmt.Sprint("verdicts-", i))
		h.sbench(0, "run", "--progress", "plain", "--config", tester, "--output-dir", output)
		h.sbench(0, "verify", output)
		got = append(got, readVerdicts(t, output)...)
		if userns.Inside() { // root on the host can remove anything
			removable(t, output)
		}
	}
	slices.SortFunc(got, func(a, b verdict) int { return strings.Compare(a.Task, b.Task) })
	golden := "testdata/verdicts.jsonl"
	if *updateVerdicts {
		writeVerdicts(t, golden, got)
	}
	want := readLines(t, golden)
	for i := range want {
		if !tellsExits(t) || containerdtest.Isolation() == runtime.GVisor { // docs/sandbox.md: there, statuses over 128 count as signals
			want[i] = strings.Replace(want[i], `"end":"exited","code":137`, `"end":"signaled"`, 1)
		}
		for _, other := range ofGVisor() {
			if task, _, _ := strings.Cut(other, ","); containerdtest.Isolation() == runtime.GVisor && strings.HasPrefix(want[i], task) {
				want[i] = other
			}
		}
	}
	if diff := cmp.Diff(want, verdictLines(t, got)); diff != "" {
		t.Errorf("verdicts differ from %s, which -update-verdicts writes (-want +got):\n%s", golden, diff)
	}
}

// ofGVisor returns the records that differ in gVisor; see docs/sandbox.md. In gVisor the first process can
// kill itself, threads are made too slowly to reach their limit in time, and nobody outside sees a pipe.
func ofGVisor() []string {
	return []string{
		`{"task":"hostile 03 signal","status":"failed","passed":false,"score":0,"reason":"producer_failed","phase":"producer","end":"signaled"}`,
		`{"task":"hostile 06 threads","status":"failed","passed":false,"score":0,"reason":"producer_timeout","phase":"producer","end":"wall_time","reached":["wall_time"]}`,
		`{"task":"hostile 20 pipe","status":"failed","passed":false,"score":0,"reason":"checker_failed","phase":"verifier","end":"exited","code":0}`,
	}
}

// TestUmask: verdicts do not depend on the user's umask.
func TestUmask(t *testing.T) {
	h := newHost(t)
	archive, err := containerdtest.Archive()
	must.Do(t, err)
	output := filepath.Join(h.dir, "out")
	h.env = append(h.env, "SBENCH_ROOT="+filepath.Join(h.dir, "root"), "SBENCH_STATE="+filepath.Join(h.dir, "state"))
	cmd := exec.Command("sh", "-c", "umask 077; sbench image import $0 && sbench run --progress=none --config ../../benchmarks/code-completion-smoke/tester-command.yaml --output-dir $1", archive, output)
	cmd.Env = h.env
	must.Run(t, cmd)
	must.Contains(t, statuses(t, output), "passed")
}

// tellsExits reports whether the kernel tells an exit with 137 from a kill, as Linux does from 6.15 on.
func tellsExits(t *testing.T) bool {
	t.Helper()
	var name unix.Utsname
	must.Do(t, unix.Uname(&name))
	var major, minor int
	_, err := fmt.Sscanf(unix.ByteSliceToString(name.Release[:]), "%d.%d", &major, &minor)
	must.Do(t, err)
	return major > 6 || major == 6 && minor >= 15
}

// slowness returns how many times longer agents may take: 1 except on emulated hosts.
func slowness(t *testing.T) int {
	t.Helper()
	text := os.Getenv("SBENCH_TEST_SLOWNESS")
	if text == "" {
		return 1
	}
	n, err := strconv.Atoi(text)
	must.Do(t, err)
	return n
}

func readVerdicts(t *testing.T, output string) []verdict {
	t.Helper()
	var all []verdict
	for _, r := range recordsOf(t, output) {
		v := verdict{
			Task: r.BenchmarkID + " " + r.TaskID, Status: r.VerificationStatus, Passed: r.Passed, Score: r.Score, Reason: r.FailureReason, Phase: r.FailurePhase,
			End: r.ProducerMetadata["exit_reason"], Reached: r.ProducerMetadata["limits_reached"],
		}
		if v.End == "exited" { // otherwise the code depends on which process was killed
			v.Code = r.ProducerMetadata["exit_code"]
		}
		if r.VerificationStatus == record.Passed { // how far a candidate fills a disk may differ
			if r.CandidateWorkspace != nil {
				v.Workspace = contents(t, filepath.Join(output, *r.CandidateWorkspace))
			}
			if v.Candidate = r.CandidateDigest; v.Candidate == r.WorkspaceDigest {
				v.Candidate = v.Workspace
			}
		}
		all = append(all, v)
	}
	return all
}

// contents returns the digest of a kept workspace without its times, which differ from run to run.
func contents(t *testing.T, dir string) string {
	t.Helper()
	root := must.OpenRoot(t, dir)
	tree, err := workspace.DigestTree(t.Context(), root, workspace.TreeOptions{})
	must.Do(t, err)
	return tree.Digest
}

// removable removes every file as the user who ran sbench: an agent cannot prevent that
// by its files' owners and modes.
func removable(t *testing.T, output string) {
	t.Helper()
	must.Do(t, filepath.WalkDir(output, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err == nil && d.IsDir() && info.Mode().Perm()&0o700 != 0o700 {
			t.Errorf("%s has mode %v: its owner cannot empty it", path, info.Mode())
		}
		if owner := ownerOf(info); owner != uint32(os.Geteuid()) {
			t.Errorf("%s belongs to %d", path, owner)
		}
		return err
	}))
}

func verdictLines(t *testing.T, all []verdict) []string {
	t.Helper()
	var out []string
	for _, v := range all {
		text := must.JSON(t, v)
		out = append(out, string(text))
	}
	return out
}

func writeVerdicts(t *testing.T, name string, all []verdict) {
	t.Helper()
	must.Do(t, os.WriteFile(name, []byte(strings.Join(verdictLines(t, all), "\n")+"\n"), 0o644))
}

func readLines(t *testing.T, name string) []string {
	t.Helper()
	text := must.Read(t, name)
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// hostileAgents are scripts of agents. The first few only fail, the others try to harm.
var hostileAgents = []struct{ name, script string }{
	{"honest", "echo right > answer"},
	{"wrong", "echo wrong > answer"},
	{"exits", "echo right > answer; exit 3"},
	{"signal", "echo right > answer; kill -9 $$"},
	{"exits like a signal", "echo right > answer; exit 137"},
	{"forks", "echo right > answer; perl -e '$p = $$; 1 while defined fork; sleep($$ == $p ? 2 : 999)'; exit 4"},
	{"threads", "echo right > answer; python3 -c 'import threading,time; [threading.Thread(target=time.sleep,args=(1,)).start() for _ in iter(int,1)]'; exit 4"},
	{"memory", "echo right > answer; python3 -c 'b=bytearray(3<<30)'; sleep 1; exit 5"},
	{"memory in pieces", "echo right > answer; for i in 1 2 3 4 5 6; do python3 -c 'b=bytearray(80<<20); import time; time.sleep(15)' & done; wait; exit 5"},
	{"memory in tmp", "echo right > answer; head -c 900000000 /dev/zero > /tmp/x; head -c 900000000 /dev/zero > /dev/shm/x; exit 6"},
	{"disk", "echo right > answer; head -c 99000000000 /dev/zero > big; exit 7"},
	{"disk, removed", "head -c 99000000000 /dev/zero > big; rm big; echo right > answer"},
	{"files", "python3 -c 'import os; [os.mknod(\"f%d\"%i) for i in range(10**6)]'; exit 8"},
	{"sparse", "echo right > answer; truncate -s 100G sparse"},
	{"modes", "mkdir -p d/e; echo x > d/e/f; chmod 000 d/e/f d/e d; echo right > answer"},
	{"setuid", "cp /bin/true t; chmod 4755 t; echo right > answer"},
	{"owners", "echo right > answer; chown 12345 answer"},
	{"answer is a link", "echo right > /tmp/answer; ln -s /tmp/answer answer"},
	{"answer is of the host", "ln -s /etc/passwd answer"},
	{"answer is a directory", "mkdir answer; echo right > answer/right"},
	{"pipe", "mkfifo answer"},
	{"socket", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"answer\")'"},
	{"hard links", "echo right > a; for i in 1 2 3; do ln a b$i; done; ln a answer"},
	{"daemon", "(setsid sh -c 'trap \"\" TERM HUP; sleep 1; echo right > answer; sleep 99' &) ; exit 0"},
	{"overlay attributes", "mkdir d; echo x > d/f; for p in d d/f; do for n in opaque redirect whiteout metacopy; do python3 -c 'import os,sys; os.setxattr(sys.argv[1],\"user.overlay.\"+sys.argv[2],b\"y\")' $p $n; done; done 2> /dev/null; echo right > answer"},
	{"output", "head -c 9000000 /dev/zero; head -c 9000000 /dev/zero >&2; echo right > answer"},
	{"device", "mknod answer c 1 3 || mknod answer b 8 0; exit 9"},
	{"namespaces", "unshare -Ur echo right > answer"},
	{"network", "python3 -c 'import socket; socket.create_connection((\"192.0.2.1\",80),2)' || echo right > answer"},
	{"the task is gone", "rm -rf ./* .[a-z]*; echo right > answer"},
}

func (h testHost) hostilePack() string {
	h.t.Helper()
	var rows, cases strings.Builder
	seconds := 20 * slowness(h.t)                     // none of them needs that long
	if containerdtest.Isolation() == runtime.GVisor { // in which a full disk takes longer to fill
		seconds *= 3
	}
	for i, a := range hostileAgents {
		checker := map[string]any{"command": "test \"$(cat answer)\" = right"}
		if a.name == "pipe" { // which nobody writes to
			checker["timeout_seconds"] = 5
		}
		row := must.JSON(h.t, map[string]any{
			"id": fmt.Sprintf("%02d %s", i, a.name), "input": map[string]any{"instructions": "Write right to answer."},
			"eval": map[string]any{"checker": checker},
		})
		fmt.Fprintf(&rows, "%s\n", row)
		must.Do(h.t, os.MkdirAll(filepath.Join(h.dir, "hostile"), 0o755))
		fmt.Fprintf(&cases, "      *'\"%02d %s\"'*)\n        %s\n        ;;\n", i, a.name, strings.ReplaceAll(a.script, "\n", "\n        "))
	}
	tester := filepath.Join(h.dir, "hostile", "tester.yaml")
	filetest.Write(h.t, filepath.Join(h.dir, "hostile"), map[string]string{
		"manifest.yaml": "id: hostile\nversion: 1\ndefaults: {family: terminal_task, environment: {image: '" + containerdtest.Image + "'}}\n",
		"tasks.jsonl":   rows.String(),
		"tester.yaml": "schema_version: '0.2'\nrun: {id: hostile, output_dir: out}\nbenchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}\n" +
			"runtime: {limits: {memory: 256MiB, pids: 100, workspace_bytes: 200MiB}}\n" +
			"harness:\n  type: command\n  config:\n    timeout_seconds: " + strconv.Itoa(seconds) + "\n    command: |\n      case \"$(cat task.json)\" in\n" + cases.String() + "      esac\n",
	})
	return tester
}

func ownerOf(info os.FileInfo) uint32 { return info.Sys().(*syscall.Stat_t).Uid }
