// Package containerdtest gives tests a real daemon with a real image.
package containerdtest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/runtimetest"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/sandbox"
	"github.com/securebench/sbench/runtime/userns"
)

// Image is the name of the base image that scripts/base-image.sh builds.
const Image = "sbench.local/base:bookworm"

// base returns the directory below which the daemons of all packages live.
func base() string {
	if dir := os.Getenv("SBENCH_TEST_DIR"); dir != "" {
		return dir
	}
	return filepath.Join(os.TempDir(), "sbench-test")
}

// Enter must be called first in TestMain of a package whose tests need root. It makes an
// ordinary user root in a user namespace. If that is impossible, it prints why and returns,
// and the tests find that they are not root.
func Enter() {
	if err := rootless.Init(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if os.Geteuid() == 0 {
		return
	}
	// Inside, the temporary directory is a different one.
	err := os.Setenv("SBENCH_TEST_DIR", base())
	if err == nil {
		root, state := directories()
		err = rootless.Enter(context.Background(), rootless.Options{Root: root, State: state, Address: os.Getenv("SBENCH_TEST_ADDRESS")})
	}
	_, _ = fmt.Fprintln(os.Stderr, err)
}

// AllowDegraded returns the limits that the kernel need not enforce in tests: none for the
// host's root, who has control groups.
func AllowDegraded() []string {
	if userns.Inside() {
		return []string{"memory", "pids", "cpu"}
	}
	return nil
}

// Isolation returns the isolation of all sandboxes, from SBENCH_TEST_ISOLATION.
func Isolation() runtime.Isolation {
	return max(runtime.Container, runtime.Isolation(os.Getenv("SBENCH_TEST_ISOLATION")))
}

// OnHostKernel skips a test of what sandboxes see or use of the host's kernel if sandboxes have one of
// their own.
func OnHostKernel(tb testing.TB) {
	tb.Helper()
	if Isolation() == runtime.GVisor {
		tb.Skip("the sandboxes do not use the host's kernel")
	}
}

// Environment returns variables, as NAME=value, that make an sbench started by a test use
// the tests' daemon.
func Environment() []string {
	o := Options()
	return []string{
		"SBENCH_ROOT=" + o.Root, "SBENCH_STATE=" + o.State, "CONTAINERD_ADDRESS=" + o.Address, "SBENCH_OCI_RUNTIME=" + o.OCIRuntime, "SBENCH_DAEMON_TIMEOUT=" + o.Timeout.String(),
		"SBENCH_ISOLATION=" + o.Isolation,
		"SBENCH_ALLOW_DEGRADED=" + strings.Join(o.AllowDegraded, ","),
	}
}

// directories returns the directories of the daemon of the package under test. Each package has
// a daemon of its own, so that two packages can be tested at the same time.
func directories() (root, state string) {
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".test")
	return filepath.Join(base(), "root", name), filepath.Join(base(), "state", name)
}

// patience is the daemon's timeout in tests, which may fill the disks and processors of a
// shared machine.
const patience = 2 * time.Minute

// Options returns the options of the tests' daemon, or of the one at SBENCH_TEST_ADDRESS,
// with the OCI runtime of SBENCH_TEST_OCI_RUNTIME.
func Options() host.Options {
	level := slog.LevelWarn
	if testing.Verbose() {
		level = slog.LevelDebug
	}
	root, state := directories()
	return host.Options{
		Flags: host.Flags{
			Address: os.Getenv("SBENCH_TEST_ADDRESS"), OCIRuntime: os.Getenv("SBENCH_TEST_OCI_RUNTIME"), Isolation: os.Getenv("SBENCH_TEST_ISOLATION"),
			Root: root, State: state, AllowDegraded: AllowDegraded(), Timeout: patience,
		},
		Logger: slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: level})),
	}
}

// Open connects to the tests' daemon, imports the base image if it is missing, and closes
// the client with the test. Without root or the image's archive it skips the test, or fails
// it if CI is set.
func Open(tb testing.TB) *host.Host {
	tb.Helper()
	return OpenWith(tb, Options())
}

// OpenWith is Open with other options.
func OpenWith(tb testing.TB, opts host.Options) *host.Host {
	tb.Helper()
	if testing.Short() {
		tb.Skip("the daemon tests are not short")
	}
	ctx := context.Background()
	archive, err := Archive()
	if err = errors.Join(possible(), err); err != nil {
		if os.Getenv("CI") != "" {
			tb.Fatalf("the daemon tests must run in CI: %v", err)
		}
		tb.Skipf("no daemon tests here: %v", err)
	}
	must.Do(tb, shareBase(ctx, opts, archive))
	c, err := host.Open(ctx, opts)
	must.Do(tb, err)
	tb.Cleanup(func() { must.Report(tb, c.Close(ctx)) })
	must.Do(tb, importBase(ctx, c, archive))
	return c
}

// possible returns an error that says why this process cannot start sandboxes; nil if it may.
func possible() error {
	for _, program := range []string{"containerd", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%s is not installed", program)
		}
	}
	return runtimetest.MayMount()
}

// shareBase gives the daemon of this package the base image, which the first package has imported for all:
// the files of its stores as hard links, since nothing writes to them, and copies of its databases.
func shareBase(ctx context.Context, opts host.Options, archive string) error {
	root, _ := directories()
	stores := filepath.Join(root, "containerd")
	if opts.Address != "" || opts.Root != root {
		return nil
	}
	if err := os.MkdirAll(root, 0o711); err != nil {
		return err
	}
	lock, err := filelock.Acquire(ctx, filepath.Join(base(), "shared.lock"), filelock.Exclusive)
	if err != nil {
		return err
	}
	defer func() { _ = lock.Close() }()
	if _, err := os.Stat(stores); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	shared := filepath.Join(base(), "shared")
	if _, err := os.Stat(shared); errors.Is(err, os.ErrNotExist) {
		opts.Root, opts.State = filepath.Join(base(), "first", "root"), filepath.Join(base(), "first", "state")
		c, err := host.Open(ctx, opts)
		if err != nil {
			return err
		}
		if err := errors.Join(importBase(ctx, c, archive), c.Close(ctx)); err != nil {
			return err
		}
		err = os.Rename(filepath.Join(opts.Root, "containerd"), shared)
		if errors.Is(err, os.ErrNotExist) {
			return nil // the host's own daemon has it
		}
		if err != nil {
			return err
		}
	}
	copied := filepath.Join(root, "copied") // all of it, or nothing, becomes the daemon's
	if err := os.RemoveAll(copied); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "cp", "-al", shared, copied).CombinedOutput(); err != nil {
		return fmt.Errorf("share the base image: %w: %s", err, out)
	}
	databases, err := filepath.Glob(filepath.Join(copied, "root", "*", "*.db"))
	for _, name := range databases {
		content, readErr := os.ReadFile(name)
		err = errors.Join(err, readErr, os.Remove(name), os.WriteFile(name, content, 0o644))
	}
	if len(databases) == 0 {
		err = errors.New("share the base image: no databases")
	}
	if err != nil {
		return err
	}
	return os.Rename(copied, stores)
}

// importBase imports the base image from archive if it is missing.
func importBase(ctx context.Context, c *host.Host, archive string) error {
	_, err := c.Images.Get(ctx, Image, images.PullNever)
	if !errors.Is(err, runtime.ErrNotFound) {
		return err
	}
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = c.Images.Import(ctx, f, "")
	return err
}

// NewRun returns a run that is closed with the test, and the base image.
func NewRun(tb testing.TB, c *host.Host) (*sandbox.Engine, runtime.Image) {
	tb.Helper()
	ctx := context.Background()
	img, err := c.Images.Get(ctx, Image, images.PullNever)
	must.Do(tb, err)
	r, err := c.NewRun(ctx)
	must.Do(tb, err)
	tb.Cleanup(func() { must.Report(tb, r.Close(ctx)) })
	return r, img
}

// Archive returns the path of the base image's archive: SBENCH_TEST_IMAGE, or the newest
// that scripts/base-image.sh left in the cache.
func Archive() (string, error) {
	if path := os.Getenv("SBENCH_TEST_IMAGE"); path != "" {
		return path, nil
	}
	cache := os.Getenv("SBENCH_CACHE")
	if cache == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", err
		}
		cache = filepath.Join(user, "sbench")
	}
	found, err := filepath.Glob(filepath.Join(cache, "images", "base-bookworm-*.oci.tar"))
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no base image in %s: run \"make image\"", cache)
	}
	return slices.MaxFunc(found, func(a, b string) int { return int(modTime(a) - modTime(b)) }), nil
}

func modTime(name string) int64 {
	info, err := os.Stat(name)
	if err != nil {
		return 0
	}
	return info.ModTime().Unix()
}
