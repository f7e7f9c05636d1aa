package rootless_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/userns"
)

// The test binary is also the program that enters the namespaces.
const (
	variableDir = "SBENCH_TEST_ROOTLESS" // the parent of its root and state directories
	arguments   = "a b"
)

func TestMain(m *testing.M) {
	if err := rootless.Init(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Args[0] == "containerd" {
		select {} // the orphan that program starts, which must be found by its arguments
	}
	if dir := os.Getenv(variableDir); dir != "" {
		if err := program(dir); err != nil {
			fmt.Println("error:", err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// program enters the namespaces, prints where it is, and waits until its input ends.
func program(dir string) error {
	err := rootless.Enter(context.Background(), rootless.Options{Root: filepath.Join(dir, "root"), State: filepath.Join(dir, "state")})
	if err != nil {
		return err
	}
	wd, err := os.Getwd()
	if err != nil {
		return err
	}
	space, err := os.Readlink("/proc/self/ns/mnt")
	if err != nil {
		return err
	}
	fmt.Printf("pid=%d uid=%d inside=%v entered=%v wd=%s mnt=%s args=%q\n", os.Getpid(), os.Geteuid(), userns.Inside(), rootless.Entered(), wd, space, os.Args[1:])
	if os.Getenv("SBENCH_TEST_ORPHAN") != "" { // an orphan like a daemon or a shim
		orphan := exec.Command("/proc/self/exe", "--config", filepath.Join(dir, "state", "containerd", "config.toml"))
		orphan.Args[0] = "containerd"
		orphan.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if err := orphan.Start(); err != nil {
			return err
		}
		fmt.Printf("orphan=%d\n", orphan.Process.Pid)
	}
	_, err = bufio.NewReader(os.Stdin).ReadString('\n')
	_ = err // the end of the input is expected
	return nil
}

// ordinary skips the test for root, for whom Enter does nothing. `make
// test-rootless` runs the tests as an ordinary user.
func ordinary(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("for an ordinary user")
	}
}

type entered struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
	says  map[string]string
}

// start starts the program and waits until it has printed where it is.
func start(t *testing.T, dir string, env ...string) entered {
	t.Helper()
	cmd := exec.Command("/proc/self/exe", arguments)
	cmd.Dir = "/usr"
	cmd.Env = append(append(os.Environ(), variableDir+"="+dir), env...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	must.Do(t, err)
	out, err := cmd.StdoutPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	t.Cleanup(func() { _, _, _ = in.Close(), cmd.Process.Kill(), cmd.Wait() })
	e := entered{cmd: cmd, lines: bufio.NewScanner(out), says: map[string]string{}}
	if !e.lines.Scan() {
		t.Fatal("it said nothing")
	}
	for field := range strings.FieldsSeq(e.lines.Text()) {
		name, value, _ := strings.Cut(field, "=")
		e.says[name] = value
	}
	if e.says["inside"] != "true" {
		t.Fatal(e.lines.Text())
	}
	return e
}

// end terminates the program and waits for it.
func (e entered) end(t *testing.T) {
	t.Helper()
	must.Do(t, e.cmd.Process.Signal(unix.SIGTERM))
	_ = e.cmd.Wait()
}

func holder(dir string) (int, bool) {
	return proc.ReadFile(filepath.Join(dir, "state", "holder.pid"))
}

// gone waits until a process has ended.
func gone(t *testing.T, what string, pid int) {
	t.Helper()
	must.Await(t, "the end of "+what, func() bool { return !proc.Alive(pid) })
}

// TestEnter: the program keeps its process id, arguments and working directory, and is
// root.
func TestEnter(t *testing.T) {
	ordinary(t)
	dir := t.TempDir()
	e := start(t, dir)
	for name, want := range map[string]string{
		"pid": fmt.Sprint(e.cmd.Process.Pid), "uid": "0", "entered": "true", "wd": "/usr", "args": `["a`,
	} {
		if e.says[name] != want {
			t.Errorf("%s is %q, want %q", name, e.says[name], want)
		}
	}
	for _, directory := range []string{"root", "state"} {
		info, err := os.Stat(filepath.Join(dir, directory))
		if err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: %v %v", directory, info.Mode(), err)
		}
	}
	e.end(t)
}

// TestShared: the second program enters the first one's namespaces, which last until no
// program uses them, in whatever order the programs end.
func TestShared(t *testing.T) {
	ordinary(t)
	dir := t.TempDir()
	first, second := start(t, dir), start(t, dir)
	must.Equal(t, second.says["mnt"], first.says["mnt"]) // mount namespaces
	pid, ok := holder(dir)
	if !ok {
		t.Fatal("nobody holds the namespaces")
	}
	first.end(t)
	third := start(t, dir)
	if third.says["mnt"] != second.says["mnt"] {
		t.Error("the namespaces did not outlive their first user")
	}
	second.end(t)
	third.end(t)
	gone(t, "the holder", pid)
	if _, err := os.Stat(filepath.Join(dir, "state", "holder.pid")); err == nil {
		t.Error("its file is left")
	}
	start(t, dir).end(t)
}

// TestKilled: if the last user is killed and cannot clean up, everything in the
// namespaces ends all the same.
func TestKilled(t *testing.T) {
	ordinary(t)
	dir := t.TempDir()
	e := start(t, dir, "SBENCH_TEST_ORPHAN=1")
	if !e.lines.Scan() {
		t.Fatal("no orphan")
	}
	orphan, err := strconv.Atoi(strings.TrimPrefix(e.lines.Text(), "orphan="))
	must.Do(t, err)
	pid, _ := holder(dir)
	must.Do(t, e.cmd.Process.Kill())
	gone(t, "the orphan", orphan)
	gone(t, "the holder", pid)
}

// TestHolderKilled: after the holder was killed, a new program is refused while the old
// namespaces have a user; later it gets new ones, and what was left in the old ones ends.
func TestHolderKilled(t *testing.T) {
	ordinary(t)
	dir := t.TempDir()
	first := start(t, dir, "SBENCH_TEST_ORPHAN=1")
	if !first.lines.Scan() {
		t.Fatal("no orphan")
	}
	orphan, err := strconv.Atoi(strings.TrimPrefix(first.lines.Text(), "orphan="))
	must.Do(t, err)
	pid, _ := holder(dir)
	must.Do(t, unix.Kill(pid, unix.SIGKILL))
	gone(t, "the holder", pid)
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variableDir+"="+dir)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), "wait until the other sbench has ended") {
		t.Errorf("%v: %s", err, out)
	}
	first.end(t)
	second := start(t, dir)
	gone(t, "what the killed holder left", orphan)
	if again, ok := holder(dir); !ok || again == pid {
		t.Errorf("holder %d, as before", again)
	}
	second.end(t)
}

// TestRefused: the error names what is missing and what to install, or what cannot be used.
func TestRefused(t *testing.T) {
	ordinary(t)
	nsenter, err := exec.LookPath("nsenter")
	must.Do(t, err)
	only := t.TempDir()
	must.Do(t, os.Symlink(nsenter, filepath.Join(only, "nsenter")))
	linked := t.TempDir()
	must.Do(t, os.Symlink("/tmp", filepath.Join(linked, "root")))
	tests := []struct {
		name string
		env  []string
		want string
	}{
		{"no nsenter", []string{"PATH=" + t.TempDir()}, "install the package util-linux"},
		{"no newuidmap", []string{"PATH=" + only}, "install the package uidmap"},
		{"relative directory", []string{variableDir + "=here"}, "is not absolute"},
		{"symbolic link as a directory", []string{variableDir + "=" + linked}, "not this user's own"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(append(os.Environ(), variableDir+"="+t.TempDir()), tt.env...)
			out, err := cmd.CombinedOutput()
			if err == nil || !strings.Contains(string(out), tt.want) {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestSubordinate: no line hides those after it, however long it is.
func TestSubordinate(t *testing.T) {
	file := filepath.Join(t.TempDir(), "subuid")
	if got, err := rootless.Subordinate(file, "eve", "1000"); got != 0 || err != nil {
		t.Errorf("no file gives %d ids, %v", got, err)
	}
	for lines, want := range map[string]int64{
		"":                                0,
		"eve:100000:65536\n":              65536,
		"eve:100000:30000\n1000:200000:7": 30007,
		"evelyn:100000:65536\n":           0,
		"eve:0:65536\neve:-5:10\neve:1:0": 0,
		"eve:100000\n# eve:1:2\n\x00:1:2": 0,
		"eve:100000:65536:more":           0,
		strings.Repeat("x", 1<<20) + "\neve:100000:65536": 65536,
	} {
		must.Do(t, os.WriteFile(file, []byte(lines), 0o644))
		if got, err := rootless.Subordinate(file, "eve", "1000"); got != want || err != nil {
			t.Errorf("%.80q gives %d ids, %v, want %d", lines, got, err, want)
		}
	}
}

// TestHolderOutside: outside a user namespace the holder's variables do not start a
// holder.
func TestHolderOutside(t *testing.T) {
	for _, stage := range []string{"unmapped", "mapped", "sweep"} {
		cmd := exec.Command("/proc/self/exe")
		cmd.Env = append(os.Environ(), "SBENCH_ROOTLESS_HOLDER="+stage, "SBENCH_ROOTLESS_STATE=/nowhere")
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "outside a user namespace") {
			t.Errorf("%s: %v %s", stage, err, out)
		}
	}
}
