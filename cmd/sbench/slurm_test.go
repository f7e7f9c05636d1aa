package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

// cluster is a Slurm of two nodes on this machine.
type cluster struct {
	testHost
	dir   string
	nodes map[string]*exec.Cmd
}

// newCluster starts Slurm's daemons, all of which end with the test.
func newCluster(t *testing.T) *cluster {
	t.Helper()
	h := newHost(t)
	dir, err := os.MkdirTemp("", "slurm") // short enough for the path of a socket
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, os.RemoveAll(dir)) })
	must.Do(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"munge", "state", "spool"} {
		must.Do(t, os.Mkdir(filepath.Join(dir, name), 0o755))
	}
	c := &cluster{testHost: h, dir: dir, nodes: map[string]*exec.Cmd{}}
	c.env = append(c.env, "SLURM_CONF="+filepath.Join(dir, "slurm.conf"))
	must.Do(t, os.WriteFile(filepath.Join(dir, "munge/key"), bytes.Repeat([]byte("sbench's test. "), 10), 0o400))
	socket := filepath.Join(dir, "munge/socket")
	c.daemon("munged", "--foreground", "--force", "--key-file="+dir+"/munge/key", "--socket="+socket, "--pid-file="+dir+"/munge/pid", "--log-file="+dir+"/munge/log", "--seed-file="+dir+"/munge/seed")
	name, err := os.Hostname()
	must.Do(t, err)
	name, _, _ = strings.Cut(name, ".")
	ports := freePorts(t, 3)
	must.Do(t, os.WriteFile(filepath.Join(dir, "slurm.conf"), fmt.Appendf(nil, `ClusterName=test
SlurmctldHost=%[1]s(127.0.0.1)
SlurmctldPort=%[3]d
AuthInfo=socket=%[6]s,cred_expire=5
SlurmUser=root
SlurmdUser=root
StateSaveLocation=%[2]s/state
SlurmdSpoolDir=%[2]s/spool/%%n
SlurmctldPidFile=%[2]s/ctld.pid
SlurmdPidFile=%[2]s/%%n.pid
SlurmctldLogFile=%[2]s/ctld.log
SlurmdLogFile=%[2]s/%%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
SlurmdTimeout=10
SchedulerParameters=bf_interval=2,sched_interval=2
KillWait=5
ReturnToService=2
NodeName=n1 NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=%[4]d CPUs=4 RealMemory=64000
NodeName=n2 NodeHostname=%[1]s NodeAddr=127.0.0.1 Port=%[5]d CPUs=4 RealMemory=64000
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE
`, name, dir, ports[0], ports[1], ports[2], socket), 0o644))
	must.Await(t, "munge's socket", func() bool { _, err := os.Stat(socket); return err == nil })
	c.daemon("slurmctld", "-D")
	for _, node := range []string{"n1", "n2"} {
		c.nodes[node] = c.daemon("slurmd", "-D", "-N", node)
	}
	must.Await(t, "two idle nodes", func() bool { return strings.Count(c.slurm("sinfo", "-h", "-N", "-o", "%N %T"), "idle") == 2 })
	return c
}

// in returns the cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	within := *c
	within.t = t
	return &within
}

func (c *cluster) daemon(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = c.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		c.t.Fatalf("%v: install slurm-wlm and munge", err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if c.t.Failed() {
			c.t.Logf("%s: %s", name, &output)
		}
	})
	return cmd
}

func (c *cluster) slurm(name string, args ...string) string {
	c.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Env = c.env
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		c.t.Fatal(err)
	}
	return string(out)
}

// freePorts returns ports that no connection takes before they are used: the kernel gives those higher ports.
func freePorts(t *testing.T, n int) (ports []int) {
	t.Helper()
	for len(ports) < n {
		port := 10000 + rand.IntN(20000)
		if l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", port)); err == nil {
			defer func() { must.Do(t, l.Close()) }()
			ports = append(ports, port)
		}
	}
	return ports
}

// slow writes a pack with tasks whose harness takes so many seconds, and returns the tester file.
func (c *cluster) slow(name string, tasks int, seconds float64) (tester, out string) {
	c.t.Helper()
	dir := filepath.Join(c.testHost.dir, name)
	sections := fmt.Sprintf("runtime: {limits: {memory: 256m}}\nharness: {type: command, config: {command: [sh, -c, 'sleep %g', %s]}}\n", seconds, c.mark(name))
	return writePack(c.t, dir, taskRows(tasks, "true", ""), sections), filepath.Join(dir, "out")
}

// submit submits a job that sbench prints, and returns the file of its script and the job's id.
func (c *cluster) submit(out string, args ...string) (script, id string) {
	c.t.Helper()
	text, _ := c.sbench(0, append([]string{"job", "slurm"}, args...)...)
	script = out + ".sh"
	must.Do(c.t, os.WriteFile(script, []byte(text), 0o755))
	return script, strings.TrimSpace(c.slurm("sbatch", "--parsable", "--chdir="+filepath.Dir(out), script))
}

// ended waits for the end of a job.
func (c *cluster) ended(id string) {
	c.t.Helper()
	must.Await(c.t, "the end of job "+id, func() bool { return c.slurm("squeue", "-h", "-j", id) == "" })
}

// done returns how many attempts of the shards in a directory are recorded.
func (c *cluster) done(out string) (n int) {
	shards := must.Glob(c.t, filepath.Join(out, "shard-*"))
	for _, shard := range shards {
		_, _, err := record.Read(shard, record.Trust{Resume: true}, func(record.Record) error { n++; return nil })
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			c.t.Fatal(err)
		}
	}
	return n
}

// merged waits for a job, and checks that the merged run has each attempt exactly once.
func (c *cluster) merged(t *testing.T, out, id string, attempts int) {
	t.Helper()
	c.ended(id)
	merged := filepath.Join(out, "merged")
	c.sbench(0, "merge", out, "--output-dir", merged)
	c.sbench(0, "verify", merged)
	passed := map[string]int{}
	for _, r := range recordsOf(t, merged) {
		if r.VerificationStatus == record.Passed {
			passed[r.TaskID]++
		}
	}
	for task, n := range passed {
		if n != 1 {
			t.Errorf("%s was measured %d times", task, n)
		}
	}
	if len(passed) != attempts {
		t.Errorf("%d attempts passed, want %d", len(passed), attempts)
	}
}

// TestSlurm: an array job makes the shards of a run, whatever happens to its tasks.
func TestSlurm(t *testing.T) {
	if userns.Inside() { // Slurm's daemons here are root's
		containerdtest.Open(t)
		return
	}
	t.Parallel() // it waits more than it works
	c := newCluster(t)
	t.Run("work", func(t *testing.T) {
		t.Run("verdicts", func(t *testing.T) { t.Parallel(); c.in(t).verdicts(t) })
		t.Run("node", func(t *testing.T) { t.Parallel(); c.in(t).nodeFails(t) })
		t.Run("time", func(t *testing.T) { t.Parallel(); c.in(t).timeIsUp(t) })
		t.Run("cancel", func(t *testing.T) { t.Parallel(); c.in(t).cancelled(t) })
	})
	if left := c.slurm("squeue", "-h"); left != "" {
		t.Errorf("jobs are left: %s", left)
	}
}

// verdicts: shards have the verdicts of one run. merge refuses a damaged shard.
func (c *cluster) verdicts(t *testing.T) {
	dir := filepath.Join(c.testHost.dir, "verdicts")
	count := 17
	file, err := packtest.HumanEval(t)
	problems := []string{file, "--task", "HumanEval/*0"}
	if err != nil {
		t.Logf("only three problems of the tests' own: %v", err)
		problems, count = []string{fixture(t, "humaneval")}, 3
	}
	c.sbench(0, append([]string{"pack", "import", "--out", dir, "humaneval"}, problems...)...)
	tester, out := filepath.Join(dir, "tester-command.yaml"), filepath.Join(dir, "shards")
	_, id := c.submit(out, tester, "--shards", "4", "--output-dir", out, "--", "--harness", "reference")
	c.sbench(0, "run", tester, "--output-dir", filepath.Join(dir, "whole"), "--harness", "reference", "--progress=none")
	c.merged(t, out, id, count)
	if one, all := recorded(t, filepath.Join(dir, "whole")), recorded(t, filepath.Join(out, "merged")); !slices.Equal(one, all) {
		t.Errorf("one run: %v\nshards: %v", one, all)
	}
	c.sbench(0, "report", filepath.Join(out, "merged"))
	damaged := filepath.Join(out, "shard-2-of-4")
	name := filepath.Join(damaged, record.RecordsFile)
	text := must.Read(t, name)
	must.Do(t, os.WriteFile(name, bytes.Replace(text, []byte("passed"), []byte("failed"), 1), 0o644))
	_, said := c.sbench(codeNotVerified, "merge", "--output-dir", filepath.Join(dir, "again"), out)
	must.Contains(t, said, damaged+": records are damaged: candidates.jsonl:1: ")
}

// recorded returns what the records of a run say, in the order of the tasks.
func recorded(t *testing.T, dir string) (all []string) {
	t.Helper()
	for _, r := range recordsOf(t, dir) {
		all = append(all, fmt.Sprint(r.TaskID, " ", r.Attempt, " ", r.VerificationStatus, " ", r.FailureReason, " ", r.CandidateDigest, " ", r.Provenance.Inputs))
	}
	slices.Sort(all)
	return all
}

// nodeFails: another node makes the attempts of a lost node, except the recorded ones.
func (c *cluster) nodeFails(t *testing.T) {
	tester, out := c.slow("node", 8, 3)
	_, id := c.submit(out, tester, "--shards", "2", "--", "--retries", "0")
	var pids []int
	must.Await(t, "records of both shards", func() bool {
		pids = jobProcesses(t, out)
		return c.done(out) >= 2 && len(pids) > 0
	})
	must.Do(t, c.nodes["n2"].Process.Kill())
	for _, pid := range jobProcesses(t, c.testHost.dir+"/") {
		if strings.Contains(environ(pid), "SLURMD_NODENAME=n2") {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	must.Await(t, "the loss to be noticed", func() bool { return strings.Contains(c.slurm("sinfo", "-h", "-N", "-o", "%N %T"), "n2 down") })
	c.nodes["n2"] = c.daemon("slurmd", "-D", "-N", "n2")
	c.merged(t, out, id, 8)
}

// jobProcesses returns the processes of array jobs that have a path among their arguments.
func jobProcesses(t *testing.T, path string) (pids []int) {
	for pid, line := range commandLines(t) {
		if strings.Contains(line, path) && strings.Contains(environ(pid), "SLURM_ARRAY_TASK_ID=") {
			pids = append(pids, pid)
		}
	}
	return pids
}

func environ(pid int) string { return proc.Text(fmt.Sprintf("/proc/%d/environ", pid)) }

// timeIsUp: a shard that needs more time than its task has goes on in the next task.
func (c *cluster) timeIsUp(t *testing.T) {
	tester, out := c.slow("time", 8, 7)
	_, id := c.submit(out, tester, "--shards", "1", "--time", "1m", "--grace", "20s")
	c.merged(t, out, id, 8)
	logs := must.Glob(t, filepath.Join(filepath.Dir(out), "slurm-*.out"))
	log := must.Read(t, logs[0])
	if !strings.Contains(string(log), "verifications in progress are completed") || !strings.Contains(string(log), "attempts were recorded before") {
		t.Errorf("the task did not run out of time:\n%s", log)
	}
}

// working reports whether a process of a pack's harness lives.
func (c *cluster) working(name string) bool {
	for _, line := range commandLines(c.t) {
		if strings.HasPrefix(line, "sh -c sleep ") && strings.Contains(line, c.mark(name)) {
			return true
		}
	}
	return false
}

// cancelled: tasks that are cancelled end cleanly, and the same script continues them.
func (c *cluster) cancelled(t *testing.T) {
	tester, out := c.slow("cancel", 4, 5)
	script, id := c.submit(out, tester, "--shards", "2")
	must.Await(t, "both shards to work", func() bool { return len(jobProcesses(t, out)) >= 2 && c.working("cancel") })
	c.slurm("scancel", "--batch", "--signal=TERM", id)
	c.ended(id)
	if c.working("cancel") {
		t.Error("processes of harnesses are left")
	}
	if done := c.done(out); done == 4 {
		t.Error("nothing was cancelled")
	}
	c.sbench(codeInfrastructure, "merge", out, "--output-dir", filepath.Join(out, "merged"))
	again := strings.TrimSpace(c.slurm("sbatch", "--parsable", "--chdir="+filepath.Dir(out), "--array=1,2", script))
	c.merged(t, out, again, 4)
}
