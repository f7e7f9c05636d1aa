package sandbox_test

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/userns"
)

// TestFullRoot: if the disk below --root is full, what a sandbox writes is lost and the
// sandbox gets no error. Exec must then return an error, not a result.
func TestFullRoot(t *testing.T) {
	if userns.Inside() {
		t.Skip("without root no volume is an image on disk")
	}
	write := runtime.Process{Args: []string{"sh", "-c", "head -c 80000000 /dev/urandom > /work/big; echo $?"}, Wall: wall}
	for _, where := range []string{"layer", "volume"} {
		t.Run(where, func(t *testing.T) {
			daemon := containerdtest.Open(t)
			opts := containerdtest.Options()
			opts.Address, opts.State, opts.Root = daemon.Address(), filepath.Join(t.TempDir(), "state"), t.TempDir()
			must.Report(t, unix.Mount("tmpfs", opts.Root, "tmpfs", 0, "size=48m,mode=0711"))
			t.Cleanup(func() { must.Report(t, unix.Unmount(opts.Root, unix.MNT_DETACH)) })
			run, image := containerdtest.NewRun(t, containerdtest.OpenWith(t, opts))
			cfg := runtime.Config{Name: "full", Image: image, Limits: runtime.DefaultLimits(), WritableRoot: true}
			cfg.Limits.LayerBytes = 100 << 20
			if where == "volume" {
				vol, err := run.NewVolume(context.Background(), runtime.VolumeConfig{Bytes: 100 << 20, Inodes: 1000})
				must.Do(t, err)
				t.Cleanup(func() { must.Report(t, vol.Close()) })
				cfg.Limits.LayerBytes = 32 << 20
				cfg.Mounts = []runtime.Mount{{Source: vol.Path(), Dest: "/work", Writable: true}}
			}
			p := write
			if where == "layer" {
				p.Args = []string{"sh", "-c", strings.ReplaceAll(write.Args[2], "/work/", "/")}
			}
			exit, err := create(t, run, cfg).Exec(context.Background(), p)
			if !errors.Is(err, runtime.ErrUnavailable) || !strings.Contains(err.Error(), "its disk is full or fails") {
				t.Errorf("%v (%q), %v", exit, exit.Stdout.String(), err)
			}
		})
	}
}
