package main

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/proc"
)

// host is where a test runs sbench: state directories and the daemon to use. After
// private, the daemon belongs to this test alone and can be killed.
type testHost struct {
	t     *testing.T
	dir   string // for packs
	state string // sbench's state directory
	env   []string
}

func newHost(t *testing.T) testHost {
	t.Helper()
	containerdtest.Open(t) // skips where there is no daemon
	h := testHost{t: t, dir: t.TempDir(), state: containerdtest.Options().State}
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "CONTAINERD_") {
			h.env = append(h.env, e)
		}
	}
	h.env = append(h.env, containerdtest.Environment()...)
	h.env = append(h.env, "CONTAINERD_ADDRESS=")
	return h
}

// private returns the host with a daemon of its own, which has the base image.
func (h testHost) private() testHost {
	h.t.Helper()
	archive, err := containerdtest.Archive()
	must.Do(h.t, err)
	h.dir, err = os.MkdirTemp("", "") // the paths of sockets are short
	must.Do(h.t, err)
	must.Do(h.t, os.Chmod(h.dir, 0o711)) // or sandboxes could have no ids of their own
	h.t.Cleanup(func() { must.Do(h.t, os.RemoveAll(h.dir)) })
	h.state = filepath.Join(h.dir, "state")
	h.env = append(h.env, "SBENCH_ROOT="+filepath.Join(h.dir, "root"), "SBENCH_STATE="+h.state)
	h.sbench(0, "image", "import", archive)
	return h
}

// sbench runs a command to its end and checks its exit code.
func (h testHost) sbench(code int, args ...string) (stdout, stderr string) {
	h.t.Helper()
	cmd := exec.Command("sbench", args...)
	cmd.Env = h.env
	var out, errOut strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errOut
	_ = cmd.Run()
	if got := cmd.ProcessState.ExitCode(); got != code {
		h.t.Fatalf("sbench %v: exit code %d, want %d\n%s%s", args, got, code, &out, &errOut)
	}
	return out.String(), errOut.String()
}

// start runs a pack whose harness sleeps, and returns once it does.
func (h testHost) start(name string, seconds int, flags ...string) (cmd *exec.Cmd, output string, lines *bufio.Scanner) {
	h.t.Helper()
	pack := filepath.Join(h.dir, name)
	tester := writePack(h.t, pack, taskRow("one", "true", "")+taskRow("two", "true", ""),
		fmt.Sprintf("harness: {type: command, config: {command: [sh, -c, 'sleep %d & sleep %d', %s]}}\n", seconds, seconds, h.mark(name)))
	output = filepath.Join(pack, "out")
	cmd = exec.Command("sbench", append([]string{"run", "--config", tester, "--progress", "json"}, flags...)...)
	cmd.Env = h.env
	stderr, err := cmd.StderrPipe()
	must.Do(h.t, err)
	must.Do(h.t, cmd.Start())
	h.t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	lines = bufio.NewScanner(stderr)
	var said strings.Builder
	for lines.Scan() {
		said.WriteString(lines.Text() + "\n")
		if strings.Contains(lines.Text(), `"event":"producer_start"`) && strings.Contains(lines.Text(), `"task":"one"`) {
			h.await(name)
			return cmd, output, lines
		}
	}
	h.t.Fatalf("%s did not start:\n%s", name, said.String())
	return nil, "", nil
}

func (h testHost) mark(name string) string { return "sbench-kill-test-" + name }

// await waits for the harness's process.
func (h testHost) await(name string) {
	h.t.Helper()
	must.Await(h.t, "a process of "+name, func() bool { return h.alive(name) })
}

func (h testHost) alive(name string) bool { return h.pidOf(name) != "" }

// pidOf returns a process of the harness; "" for none.
func (h testHost) pidOf(name string) string {
	for pid, line := range commandLines(h.t) {
		if strings.Contains(line, "sleep 3") && strings.Contains(line, h.mark(name)) {
			return strconv.Itoa(pid)
		}
	}
	return ""
}

// commandLines returns the command lines of all processes by their ids.
func commandLines(t *testing.T) map[int]string {
	t.Helper()
	lines := map[int]string{}
	must.Do(t, proc.Each(func(pid int) { lines[pid] = strings.Join(proc.Args(pid), " ") }))
	return lines
}

func (h testHost) runs() []string {
	h.t.Helper()
	names := must.Glob(h.t, filepath.Join(h.state, "runs", "*"))
	for i, name := range names {
		names[i] = filepath.Base(name)
	}
	return names
}

// cleared requires that nothing of some runs is left.
func (h testHost) cleared(runs ...string) {
	h.t.Helper()
	for _, run := range runs {
		if left := h.left(run); len(left) > 0 {
			h.t.Errorf("left behind: %v", left)
		}
	}
}

// left lists the remains of a run on the host: mounts, cgroups, processes, directories.
func (h testHost) left(run string) []string {
	var left []string
	mounts := must.Read(h.t, "/proc/self/mountinfo")
	if strings.Contains(string(mounts), run) {
		left = append(left, "mounts")
	}
	must.Do(h.t, filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "sbench-"+run) {
			left = append(left, p)
		}
		return nil // what is gone since is not left
	}))
	for _, line := range commandLines(h.t) {
		if strings.Contains(line, run) {
			left = append(left, "process "+line)
		}
	}
	if slices.Contains(h.runs(), run) {
		left = append(left, "directory")
	}
	return left
}

// TestKilledRun: after kill -9, gc removes everything of the killed run and nothing of a run in progress beside
// it.
func TestKilledRun(t *testing.T) {
	h := newHost(t)
	before := h.runs()
	live, output, lines := h.start("live", 3)
	only := difference(h.runs(), before)
	dead, _, _ := h.start("dead", 3000)
	killed := difference(h.runs(), append(before, only...))
	if len(only) != 1 || len(killed) != 1 {
		t.Fatalf("runs %v and %v", only, killed)
	}
	must.Do(t, dead.Process.Kill())
	_ = dead.Wait()
	if !h.alive("dead") {
		t.Error("the sandbox died with its owner, so that this test shows nothing")
	}
	out, _ := h.sbench(0, "gc")
	if !strings.Contains(out, killed[0]) || strings.Contains(out, only[0]) {
		t.Errorf("gc printed %q, want %s and not %s", out, killed[0], only[0])
	}
	h.cleared(killed...)
	if h.alive("dead") {
		t.Error("its process is alive")
	}
	h.daemonIsClean(killed[0])
	for lines.Scan() { // until it ends
	}
	must.Do(t, live.Wait())
	if got := statuses(t, output); got != "passed passed" {
		t.Errorf("the live run recorded %q", got)
	}
}

// daemonIsClean asks the daemon with containerd's own client.
func (h testHost) daemonIsClean(run string) {
	h.t.Helper()
	c := containerdtest.Open(h.t)
	for _, kind := range [][]string{{"containers", "ls", "-q"}, {"snapshots", "ls"}, {"leases", "ls", "-q"}, {"tasks", "ls", "-q"}} {
		out, err := exec.Command("ctr", append([]string{"--address", c.Address(), "-n", "sbench"}, kind...)...).CombinedOutput()
		if err != nil || strings.Contains(string(out), run) {
			h.t.Errorf("ctr %v: %v\n%s", kind, err, out)
		}
	}
}

// TestDaemonStopsMidRun: attempts go on when the daemon stops during a run. The exit code is 3, and the next
// command removes the remains.
func TestDaemonStopsMidRun(t *testing.T) {
	h := newHost(t).private()
	cmd, output, lines := h.start("orphan", 3)
	pid := h.daemonPid()
	runs := h.runs()
	must.Do(t, syscall.Kill(pid, syscall.SIGKILL))
	for lines.Scan() {
	}
	_ = cmd.Wait()
	must.Equal(t, codeInfrastructure, cmd.ProcessState.ExitCode())
	must.Equal(t, "passed passed", statuses(t, output))
	if h.alive("orphan") {
		t.Error("the harness goes on")
	}
	h.sbench(0, "gc")
	h.cleared(runs...)
}

// TestInterrupted: Ctrl-C ends the run with 130, records no incomplete attempt, and
// leaves nothing behind.
func TestInterrupted(t *testing.T) {
	h := newHost(t)
	before := h.runs()
	cmd, output, lines := h.start("interrupted", 3000)
	ours := difference(h.runs(), before)
	must.Do(t, cmd.Process.Signal(os.Interrupt))
	for lines.Scan() {
	}
	_ = cmd.Wait()
	must.Equal(t, codeInterrupted, cmd.ProcessState.ExitCode())
	must.Equal(t, "", statuses(t, output))
	h.cleared(ours...)
}

func statuses(t *testing.T, output string) string {
	t.Helper()
	var all []string
	for _, r := range recordsOf(t, output) {
		all = append(all, string(r.VerificationStatus))
	}
	return strings.Join(all, " ")
}

func difference(now, before []string) []string {
	return slices.DeleteFunc(now, func(n string) bool { return slices.Contains(before, n) })
}

// TestKilledImport: gc removes what a killed import has made, and nothing that sbench has not made.
func TestKilledImport(t *testing.T) {
	h := newHost(t)
	archive, err := containerdtest.Archive()
	must.Do(t, err)
	dir := ""
	unpacks := func() bool { // the layer's files appear
		found := must.Glob(t, filepath.Join(dir, "root/containerd/root/io.containerd.snapshotter.v1.*/snapshots/*/fs/usr"))
		return len(found) > 0
	}
	err = nil
	for n := 0; err == nil && n < 20; n++ { // until an import is killed before it ends
		dir = filepath.Join(h.dir, fmt.Sprint(n))
		h.state = filepath.Join(dir, "state")
		h.env = append(h.env, "SBENCH_ROOT="+filepath.Join(dir, "root"), "SBENCH_STATE="+h.state, "CONTAINERD_ADDRESS=none")
		cmd := exec.Command("sbench", "image", "import", archive)
		cmd.Env = h.env
		must.Do(t, cmd.Start())
		must.Await(t, "something unpacked", unpacks)
		_ = cmd.Process.Kill() // it may have ended
		err = cmd.Wait()
	}
	foreign := filepath.Join(h.state, "runs", "of-somebody")
	must.Do(t, os.Mkdir(foreign, 0o755))
	out, _ := h.sbench(0, "gc")
	must.Contains(t, out, "removed what run")
	must.Do(t, os.Remove(foreign))
	out, _ = h.sbench(0, "gc")
	must.Equal(t, "", out)
	must.Await(t, "the end of half an image", func() bool { // the daemon collects garbage when it likes
		h.sbench(0, "image", "ls")
		return !unpacks()
	})
}

// TestNobodyReads: a run does not end because the program that has read its progress ends.
func TestNobodyReads(t *testing.T) {
	h := newHost(t)
	pack := filepath.Join(h.dir, "unread")
	tester := writePack(t, pack, taskRow("one", "true", "")+taskRow("two", "true", ""), "harness: {type: command, config: {command: 'true'}}\n")
	cmd := exec.Command("sbench", "run", "--config", tester, "--progress", "json", "--jobs", "1")
	cmd.Env = h.env
	progress, err := cmd.StderrPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	bufio.NewScanner(progress).Scan()
	must.Do(t, progress.Close())
	must.Do(t, cmd.Wait())
	stdout, _ := h.sbench(0, "verify", filepath.Join(pack, "out"))
	must.Contains(t, stdout, "2 records, sealed")
}
