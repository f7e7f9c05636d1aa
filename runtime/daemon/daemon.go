// Package daemon connects to containerd, version 1.6 or later, and runs a private one where no
// other can be used.
//
// A [Conn] is a connection to a daemon. It uses only services that both 1.x and 2.x have. Every
// call through it ends within a limit of time, and [Native] turns the daemon's errors into those
// of the runtime contract.
//
// A [Daemon] is a private containerd that concurrent sbench processes share: the first one starts
// it, the last one stops it. Each process that uses the daemon holds a shared lock on a file. The
// kernel releases the lock when the process ends for whatever reason. If all of them are killed,
// the next one takes over the daemon.
package daemon

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/runtime/proc"
)

const program = "containerd"

// SystemAddress is the socket of the system's containerd and, in its own mount namespace, of
// a rootless one.
const SystemAddress = "/run/containerd/containerd.sock"

const (
	startTimeout = 20 * time.Second
	stopTimeout  = 10 * time.Second
	pollInterval = 2 * time.Millisecond
)

// maxSocketPath is the maximum length of a socket's path in bytes that containerd accepts,
// which is less than the kernel's. The daemon's second socket has the same name
// with the suffix .ttrpc.
const maxSocketPath = 104

// Config says where the daemon keeps its files. Both directories are required; missing
// ones are created, accessible only to their owner.
type Config struct {
	Root  string // persistent: images and snapshots
	State string // volatile: socket, locks, log, running shims
	// OCIRuntime is the path or name of the OCI runtime, which must be installed in
	// addition to containerd; "" means runc.
	OCIRuntime string
	// Timeout is how long a daemon that runs already may take to answer before it is replaced; 0
	// means 10 seconds.
	Timeout time.Duration
	Logger  *slog.Logger // nil for none
}

// A Daemon is this process's share of a private containerd. The caller closes it.
type Daemon struct {
	cfg   Config
	users *os.File
}

// Address returns the path of the daemon's socket.
func (d *Daemon) Address() string { return filepath.Join(d.cfg.State, "containerd.sock") }

// Start joins the daemon of cfg, starting it if necessary, and returns once its socket
// accepts connections. If a program is missing, the error names the packages to install.
func Start(ctx context.Context, cfg Config) (*Daemon, error) {
	for _, dir := range []string{cfg.Root, cfg.State} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return nil, fmt.Errorf("containerd: %w", err)
		}
	}
	cfg.Logger = cmp.Or(cfg.Logger, slog.New(slog.DiscardHandler))
	d := &Daemon{cfg: cfg}
	if len(d.Address())+len(".ttrpc") > maxSocketPath {
		return nil, fmt.Errorf("containerd: the path of its socket, %s, is too long for a socket: choose a shorter state directory (--state)", d.Address())
	}
	start, err := d.lock(ctx, "start.lock", filelock.Exclusive)
	if err != nil {
		return nil, err
	}
	defer func() { _ = start.Close() }()
	if err := d.ensure(ctx); err != nil {
		return nil, err
	}
	if d.users, err = d.lock(ctx, "users.lock", filelock.Shared); err != nil {
		return nil, err
	}
	return d, nil
}

// Close gives up this process's share, and stops the daemon if no other process has one. It
// works even if ctx is done, within its own time limit.
func (d *Daemon) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*stopTimeout)
	defer cancel()
	start, err := d.lock(ctx, "start.lock", filelock.Exclusive)
	if err != nil {
		return err
	}
	defer func() { _ = start.Close() }()
	// On the same open file the exclusive lock replaces our own shared one.
	err = filelock.Try(d.users, filelock.Exclusive)
	if errors.Is(err, filelock.ErrHeld) {
		return d.users.Close()
	}
	return errors.Join(err, d.stop(ctx), d.users.Close())
}

func (d *Daemon) lock(ctx context.Context, name string, mode filelock.Mode) (*os.File, error) {
	f, err := filelock.Acquire(ctx, filepath.Join(d.cfg.State, name), mode)
	if err != nil {
		return nil, fmt.Errorf("containerd: %w", err)
	}
	return f, nil
}

// ensure makes a daemon answer at the socket. The caller holds start.lock.
func (d *Daemon) ensure(ctx context.Context) error {
	if Answers(d.Address()) { // even a stopped process's socket accepts connections
		err := d.ask(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		d.cfg.Logger.Warn("the private containerd does not answer, and is replaced", "address", d.Address(), "cause", err)
	}
	if err := d.stop(ctx); err != nil { // a hung daemon would keep its database locked
		return err
	}
	path, err := lookPrograms(d.cfg.OCIRuntime)
	if err != nil {
		return err
	}
	config := configFile(d.cfg.State)
	if err := os.WriteFile(config, []byte(d.toml()), 0o600); err != nil {
		return fmt.Errorf("containerd: %w", err)
	}
	cmd := exec.Command(path, "--config", config)
	cmd.Dir = d.cfg.State
	cmd.Env = proc.Environment("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy", "SSL_CERT_FILE", "SSL_CERT_DIR", "TMPDIR")
	log := filepath.Join(d.cfg.State, "containerd.log")
	if err := Launch(ctx, cmd, log, cmd.Start, func() bool { return Answers(d.Address()) }); err != nil {
		return fmt.Errorf("containerd: start: %w", err)
	}
	d.cfg.Logger.Debug("started a private containerd", "pid", cmd.Process.Pid, "address", d.Address())
	return nil
}

// ask returns an error unless the daemon answers in time.
func (d *Daemon) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(d.cfg.Timeout, dialTimeout))
	defer cancel()
	cl, err := client.New(d.Address())
	if err != nil {
		return err
	}
	_, err = cl.Version(ctx)
	return errors.Join(err, cl.Close())
}

// Answers reports whether something accepts connections at the socket.
func Answers(socket string) bool {
	conn, err := net.DialTimeout("unix", socket, time.Second)
	return err == nil && conn.Close() == nil
}

// stop ends every daemon of this state directory. It also ends a daemon that hangs, and a daemon
// that was not ready when its starter was killed: either would keep the database locked.
func (d *Daemon) stop(ctx context.Context) error {
	found, err := Find(d.cfg.State)
	if err != nil {
		return fmt.Errorf("containerd: %w", err)
	}
	for _, pid := range found {
		if err := d.stopOne(ctx, pid); err != nil {
			return err
		}
	}
	if err := os.Remove(d.Address()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

func (d *Daemon) stopOne(ctx context.Context, pid int) error {
	still := func() bool { return serves(pid, d.cfg.State) }
	if proc.Signal(pid, unix.SIGTERM, still) != nil {
		return nil // it has ended
	}
	_ = proc.Signal(pid, unix.SIGCONT, still) // a stopped process takes no other signal
	for begun := time.Now(); proc.Alive(pid); time.Sleep(pollInterval) {
		waited := time.Since(begun)
		if ctx.Err() != nil || waited > 2*stopTimeout {
			return fmt.Errorf("containerd: process %d does not end", pid)
		}
		if waited > stopTimeout {
			_ = proc.Signal(pid, unix.SIGKILL, still) // if it fails, it has ended or is ending
		}
	}
	return nil
}

// Find returns the process ids of this user's private daemons with the state directory
// state. It recognizes them by their arguments, and so as soon as they run.
func Find(state string) ([]int, error) {
	pids, err := proc.All()
	return slices.DeleteFunc(pids, func(pid int) bool { return !serves(pid, state) }), err
}

// serves reports whether a process is a daemon with that state directory.
func serves(pid int, state string) bool {
	if !proc.Ours(pid) { // another user can make reading its arguments take for ever
		return false
	}
	args := proc.Args(pid)
	return len(args) == 3 && filepath.Base(args[0]) == program && args[1] == "--config" && args[2] == configFile(state)
}

func configFile(state string) string { return filepath.Join(state, "config.toml") }

func lookPrograms(ociRuntime string) (string, error) {
	var missing []string
	var path string
	ociRuntime = cmp.Or(ociRuntime, "runc")
	for _, p := range []struct{ program, pkg string }{
		{ociRuntime, filepath.Base(ociRuntime)}, {program, "containerd"},
	} {
		found, err := exec.LookPath(p.program)
		if err != nil {
			missing = append(missing, fmt.Sprintf("%s (install the package %q)", p.program, p.pkg))
		}
		path = found
	}
	if len(missing) > 0 {
		return "", fmt.Errorf("not found in PATH: %s", strings.Join(missing, ", "))
	}
	return path, nil
}
