package sandbox_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime"
)

func TestContract(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	runtimetest.Contract(t, run, image)
}

// TestNotStarted: with every OCI runtime, a command that cannot be executed is reported as
// the command's fault.
func TestNotStarted(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	work := volumeOf(t, run)
	must.Report(t, os.WriteFile(filepath.Join(work, "garbage"), []byte{1, 2, 3}, 0o755))
	must.Report(t, os.WriteFile(filepath.Join(work, "orphan"), []byte("#!/no/interpreter\n"), 0o755))
	for _, p := range []runtime.Process{
		{Args: []string{"no-such-program"}},
		{Args: []string{"/no/such/program"}},
		{Args: []string{"/etc/passwd"}},
		{Args: []string{"/etc"}},
		{Args: []string{"/work/garbage"}},
		{Args: []string{"/work/orphan"}},
		{Args: []string{"true"}, Dir: "/etc/passwd"},
	} {
		for _, persistent := range []bool{false, true} {
			sandbox := create(t, run, runtime.Config{
				Name: "not started", Image: image, Workdir: "/tmp", Persistent: persistent,
				Mounts: []runtime.Mount{{Source: work, Dest: "/work", Writable: true}},
			})
			if p.Dir != "" && persistent && containerdtest.Isolation() == runtime.GVisor {
				continue // runsc does not look whether the directory is one
			}
			p.Wall = wall
			exit, err := sandbox.Exec(context.Background(), p)
			if !errors.Is(err, runtime.ErrNotStarted) && (err != nil || exit.Success()) {
				t.Errorf("%q in %q, persistent %v: %v, %v", p.Args, p.Dir, persistent, exit, err)
			}
		}
	}
}
