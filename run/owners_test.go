package run_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/fake"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/workspace"
)

const (
	foreign     = 12345 // user to whom the agent gives files
	ordinary    = 54321 // user who runs sbench, if the test can choose
	inDirectory = "SBENCH_TEST_OWNERS"
	inPart      = "SBENCH_TEST_OWNERS_PART"
	ownersWord  = "abc123xyz" // a value of harness.env
)

// lockedAgent leaves files and directories that only their owner can look into or remove.
func lockedAgent(_ context.Context, p *fake.Proc) fake.Status {
	work, _ := p.Path("/workspace")
	for _, name := range []string{"locked/deep/file", "half/file", "dir-" + ownersWord + "/file", "dir/\"odd\"\n%41/file"} {
		_ = os.MkdirAll(filepath.Join(work, filepath.Dir(name)), 0o755)
		_ = os.WriteFile(filepath.Join(work, name), []byte("content"), 0o600)
		_ = os.Chmod(filepath.Join(work, name), 0)
	}
	_ = os.WriteFile(filepath.Join(work, "answer"), []byte("right"), 0o644)
	_ = os.Symlink("answer", filepath.Join(work, "link"))
	for _, name := range []string{"link", "locked/deep", "locked", "half/file", "dir-" + ownersWord} {
		_ = os.Lchown(filepath.Join(work, name), foreign, foreign) // fails for an ordinary user
	}
	for _, name := range []string{"locked/deep", "locked", "dir-" + ownersWord} {
		_ = os.Chmod(filepath.Join(work, name), 0)
	}
	if os.Chmod(filepath.Join(work, "half"), 0o555) != nil {
		return fake.Status{Code: 1}
	}
	return fake.Status{}
}

// mountsEngine notes the workspace of each verifier, and calls pause so that a test can
// wait.
type mountsEngine struct {
	*engine
	pause func() // before a verifier's sandbox is made

	mu    sync.Mutex
	trees []map[string]string
}

func (e *mountsEngine) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	for _, m := range cfg.Mounts {
		if m.Copy {
			e.pause()
			e.mu.Lock()
			e.trees = append(e.trees, tree(m.Source))
			e.mu.Unlock()
		}
	}
	return e.engine.Create(ctx, cfg)
}

// tree returns the mode and the owner of every entry below dir.
func tree(dir string) map[string]string {
	all := map[string]string{}
	_ = filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		var st unix.Stat_t
		if err == nil {
			err = unix.Lstat(path, &st)
		}
		all[strings.TrimPrefix(path, dir+"/")] = fmt.Sprintf("%06o %d:%d %v", st.Mode, st.Uid, st.Gid, err)
		return nil
	})
	return all
}

// left returns the tree that lockedAgent makes, with word in a name.
func left(word string) map[string]string {
	of := func(mode uint32, given bool) string {
		uid, gid := os.Geteuid(), os.Getegid()
		if given && canGive() {
			uid, gid = foreign, foreign
		}
		return fmt.Sprintf("%06o %d:%d <nil>", mode, uid, gid)
	}
	return map[string]string{
		"answer": of(0o100644, false), "link": of(0o120777, true), "half": of(0o040555, false), "half/file": of(0o100000, true),
		"locked": of(0o040000, true), "locked/deep": of(0o040000, true), "locked/deep/file": of(0o100000, false),
		"dir-" + word: of(0o040000, true), "dir-" + word + "/file": of(0o100000, false), "dir/\"odd\"\n%41/file": of(0o100000, false),
	}
}

// canGive reports whether this process may give a file to the foreign user.
func canGive() bool {
	ids, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && os.Geteuid() == 0 && !strings.HasSuffix(strings.TrimSpace(string(ids)), " 1")
}

func lockedRun(t *testing.T, dir string) (setup, *mountsEngine) {
	t.Helper()
	cfg, e := config(t, row("one", "lock", ""))
	e.Directory = filepath.Join(dir, "sandboxes")
	must.Do(t, os.MkdirAll(e.Directory, 0o755))
	e.Lookup = func(args []string) fake.Program {
		if args[0] == "agent" {
			return lockedAgent
		}
		return programs(args)
	}
	engine := &mountsEngine{engine: e, pause: func() {}}
	cfg.Engine, cfg.Output = engine, filepath.Join(dir, "out")
	cfg.Env = map[string]string{"TOKEN": ownersWord}
	return cfg, engine
}

// judgedAsLeft runs and judges again, and compares the workspaces of both verifiers with the agent's.
func judgedAsLeft(t *testing.T, cfg setup, e *mountsEngine) {
	t.Helper()
	ran(t, cfg)
	verified(t, cfg.Output)
	rec := records(t, cfg)[0]
	if rec.VerificationStatus != record.Passed || rec.WorkspaceAttributes == "" {
		t.Fatalf("%s, attributes %q: %s", rec.VerificationStatus, rec.WorkspaceAttributes, rec.FailureMessage)
	}
	old := cfg.Output
	cfg.Output += "-again"
	summary, err := judgeAgain(cfg, old)
	if err != nil || summary.Passed != 1 {
		t.Errorf("judged again: %+v, %v", summary, err)
	}
	verified(t, cfg.Output)
	if again := records(t, cfg)[0]; again.WorkspaceAttributes != rec.WorkspaceAttributes || again.WorkspaceDigest != rec.WorkspaceDigest {
		t.Errorf("record of the second run: %q, %q", again.WorkspaceAttributes, again.WorkspaceDigest)
	}
	if len(e.trees) != 2 {
		t.Fatalf("%d verifications", len(e.trees))
	}
	for i, got := range e.trees {
		for name, want := range left([]string{ownersWord, "<redacted>"}[i]) {
			if got[name] != want {
				t.Errorf("verification %d: %q is %q, want %q", i+1, name, got[name], want)
			}
		}
	}
	if volumes, err := filepath.Glob(filepath.Join(e.Directory, "volume-*")); len(volumes) > 0 || err != nil {
		t.Errorf("volumes left: %v, %v", volumes, err)
	}
}

// removable checks that this user can empty every directory and read every file below dir.
func removable(t *testing.T, dir string) {
	t.Helper()
	for name, is := range tree(dir) {
		var mode uint32
		var uid, gid int
		if _, err := fmt.Sscanf(is, "%o %d:%d <nil>", &mode, &uid, &gid); err != nil {
			t.Errorf("%q: %q: %v", name, is, err)
		}
		needed := map[uint32]uint32{unix.S_IFDIR: 0o700, unix.S_IFREG: 0o400}[mode&unix.S_IFMT]
		if uid != os.Geteuid() || mode&needed != needed {
			t.Errorf("%q is %q", name, is)
		}
	}
}

// TestOwned: the modes and owners that the agent gave its files are not in the output,
// but the verifier sees them.
func TestOwned(t *testing.T) {
	if !asRoot(t) {
		return
	}
	cfg, e := lockedRun(t, t.TempDir())
	judgedAsLeft(t, cfg, e)
	removable(t, cfg.Output)
	info, err := os.Stat(cfg.Output)
	if err != nil || info.Mode() != fs.ModeDir|0o700 {
		t.Errorf("the output directory: %v, %v", info.Mode(), err)
	}
	list := filepath.Join(cfg.Output, *records(t, cfg)[0].CandidateWorkspace+workspace.AttributesSuffix)
	text, err := os.ReadFile(list)
	if err != nil || strings.Contains(string(text), ownersWord) {
		t.Errorf("%v, the list:\n%s", err, text)
	}
	// A list that was changed or removed is found, and its workspace is not judged.
	for _, damage := range []func() error{
		func() error {
			return os.WriteFile(list, []byte(strings.Replace(string(text), "0555", "0755", 1)), 0o644)
		},
		func() error { return os.Remove(list) },
	} {
		must.Do(t, damage())
		v, err := record.Verify(t.Context(), cfg.Output, nil)
		if err != nil || v.OK() || v.Findings[0].File != strings.TrimPrefix(list, cfg.Output+"/") {
			t.Errorf("%+v, %v", v, err)
		}
		again := cfg
		again.Output = filepath.Join(t.TempDir(), "again")
		if summary, _ := judgeAgain(again, cfg.Output); summary.Errors != 1 || summary.Total != 1 {
			t.Errorf("judged again: %+v", summary)
		}
	}
}

// TestOwnedRetried: the attributes file of a try that was not measured is removed with
// its workspace.
func TestOwnedRetried(t *testing.T) {
	if !asRoot(t) {
		return
	}
	cfg, e := lockedRun(t, t.TempDir())
	e.broken[2], cfg.Retries = fmt.Errorf("no space"), 1 // the verifier's
	locked := true
	e.Lookup = func(args []string) fake.Program {
		if args[0] == "agent" && locked {
			locked = false
			return lockedAgent
		}
		return func(_ context.Context, p *fake.Proc) fake.Status {
			if path, _ := p.Path("/workspace/answer"); args[0] == "agent" {
				_ = os.WriteFile(path, []byte("right"), 0o644)
			}
			return fake.Status{}
		}
	}
	ran(t, cfg)
	all := records(t, cfg)
	must.Equal(t, []string{"one error verifier infrastructure", "one passed"}, outcomes(all))
	lists, err := filepath.Glob(filepath.Join(cfg.Output, record.WorkspacesDir, "*"+workspace.AttributesSuffix))
	if all[0].WorkspaceAttributes != "" || all[1].WorkspaceAttributes == "" || len(lists) != 1 || err != nil {
		t.Errorf("attributes %q, %q, lists %v, %v", all[0].WorkspaceAttributes, all[1].WorkspaceAttributes, lists, err)
	}
	verified(t, cfg.Output)
}

// TestOwnedByAnOrdinaryUser runs in a user namespace. Outside it, the user who made the namespace can
// then verify the output of a run that ended, and remove the output of any run, even a killed one.
func TestOwnedByAnOrdinaryUser(t *testing.T) {
	if dir := os.Getenv(inDirectory); dir != "" {
		inside(t, dir, os.Getenv(inPart))
		return
	}
	for _, part := range []string{"whole", "killed"} {
		t.Run(part, func(t *testing.T) {
			dir := ordinaryDirectory(t)
			out, err := again(t, dir, part, true)
			if killed := strings.Contains(err, "killed"); killed != (part == "killed") || err != "" && !killed {
				t.Fatalf("in the namespace: %v\n%s", err, out)
			}
			if part == "whole" {
				if out, err := again(t, dir, "verify", false); err != "" {
					t.Errorf("verified from outside: %s\n%s", err, out)
				}
			} else if out, err := asOrdinary(dir, exec.Command("rm", "-r", "sandboxes")); err == "" {
				t.Errorf("what the agent left itself could be removed as well: the test proves nothing\n%s", out)
			}
			for directory, want := range map[string]bool{"workspaces": part == "whole", "unjudged": part == "killed"} {
				kept, err := filepath.Glob(filepath.Join(dir, "out", directory, "*/locked/deep/file"))
				if (len(kept) == 1) != want || err != nil {
					t.Errorf("%s: %v, %v", directory, kept, err)
				}
			}
			if out, err := asOrdinary(dir, exec.Command("rm", "-r", "out")); err != "" {
				t.Errorf("removed from outside: %s\n%s", err, out)
			}
		})
	}
}

// inside is the part of the test in the namespace or, to verify, as the ordinary user.
func inside(t *testing.T, dir, part string) {
	if part == "verify" {
		verified(t, filepath.Join(dir, "out"))
		return
	}
	cfg, e := lockedRun(t, dir)
	if part == "killed" {
		e.pause = func() { _ = unix.Kill(os.Getpid(), unix.SIGKILL); select {} }
	}
	judgedAsLeft(t, cfg, e)
}

// ordinaryDirectory makes a directory of the ordinary user's, with the test's program in it.
func ordinaryDirectory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "owners")
	must.Do(t, err)
	t.Cleanup(func() {
		parent, err := os.OpenRoot(filepath.Dir(dir))
		if err == nil {
			err = errors.Join(remove.All(parent, filepath.Base(dir)), parent.Close())
		}
		must.Report(t, err)
	})
	from, err := os.Open("/proc/self/exe")
	must.Do(t, err)
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(filepath.Join(dir, "test"), os.O_CREATE|os.O_WRONLY, 0o755)
	must.Do(t, err)
	_, err = io.Copy(to, from)
	if closeErr := to.Close(); err != nil || closeErr != nil {
		t.Fatal(err, closeErr)
	}
	if os.Geteuid() == 0 {
		err = os.Chown(dir, ordinary, ordinary)
	}
	must.Do(t, err)
	return dir
}

// asRoot reports whether this process can remove what the fake's agents leave. If not, it
// has run the test in a process that can, as root in a user namespace.
func asRoot(t *testing.T) bool {
	t.Helper()
	if os.Geteuid() == 0 {
		return true
	}
	if out, err := again(t, ordinaryDirectory(t), "", true); err != "" {
		t.Errorf("in a user namespace: %s\n%s", err, out)
	}
	return false
}

// again runs this test in another process, as the ordinary user or as root in a user
// namespace of that user.
func again(t *testing.T, dir, part string, namespace bool) (output, failure string) {
	name, _, _ := strings.Cut(t.Name(), "/")
	cmd := exec.Command(filepath.Join(dir, "test"), "-test.run=^"+name+"$")
	cmd.Env = append(os.Environ(), inDirectory+"="+dir, inPart+"="+part, "TMPDIR="+dir)
	if namespace {
		cmd.SysProcAttr = namespaces()
	}
	return asOrdinary(dir, cmd)
}

// asOrdinary runs cmd in dir, as the ordinary user unless cmd sets another.
func asOrdinary(dir string, cmd *exec.Cmd) (output, failure string) {
	cmd.Dir = dir
	if cmd.SysProcAttr == nil && os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary, Gid: ordinary}}
	}
	text, err := cmd.CombinedOutput()
	if err != nil {
		failure = err.Error()
	}
	return string(text), failure
}

// namespaces maps the ordinary user to root. If the test runs as root, it can map more
// ids than an ordinary user could.
func namespaces() *syscall.SysProcAttr {
	attr := &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, Credential: &syscall.Credential{NoSetGroups: true}}
	attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Geteuid(), Size: 1}}
	attr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	if os.Geteuid() == 0 {
		attr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: ordinary, Size: 1}, {ContainerID: 1, HostID: 200_000, Size: 1 << 16}}
		attr.GidMappings, attr.GidMappingsEnableSetgroups = attr.UidMappings, true
		attr.Credential.NoSetGroups = false
	}
	return attr
}
