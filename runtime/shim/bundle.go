package shim

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// bundle is the directory of a sandbox, which sbench makes and removes. The OCI runtime's
// state is in it, so that it needs no removal of its own.
type bundle string

func (b bundle) file(name string) string { return filepath.Join(string(b), name) }

func (b bundle) state() string { return b.file("oci") }

// ociRuntime is the OCI runtime of one sandbox.
type ociRuntime struct {
	path   string
	flags  []string // before the command
	bundle bundle
	id     string
}

// notes is the directory, in the anchor's bundle, with a file for each sandbox that the OCI
// runtime has made, or may have made. For the action "delete" it says what to execute.
const notes = "sandboxes"

// note writes the sandbox's file.
func (r ociRuntime) note(anchor bundle) error {
	err := os.WriteFile(filepath.Join(anchor.file(notes), r.id), []byte(r.path+"\n"+string(r.bundle)), 0o600)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("the daemon has removed the anchor: %w: %w", errdefs.ErrFailedPrecondition, err)
	}
	return err
}

// forget removes the sandbox's file.
func (r ociRuntime) forget(anchor bundle) error {
	err := os.Remove(filepath.Join(anchor.file(notes), r.id))
	if errors.Is(err, os.ErrNotExist) {
		return nil // the daemon has removed the anchor
	}
	return err
}

// leftIn returns the sandboxes that have files in the anchor's bundle.
func leftIn(anchor string) ([]ociRuntime, error) {
	dir := bundle(anchor).file(notes)
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	var left []ociRuntime
	errs := []error{err}
	for _, e := range entries {
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		path, at, ok := strings.Cut(string(text), "\n")
		if err != nil || !ok { // an unfinished file was written before the OCI runtime was executed
			errs = append(errs, err)
			continue
		}
		left = append(left, ociRuntime{path: path, bundle: bundle(at), id: e.Name()})
	}
	return left, errors.Join(errs...)
}

// remove kills and removes the sandbox, if the OCI runtime knows it. It tries again, because
// sbench may be removing the bundle at the same time.
func (r ociRuntime) remove() error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), removal, errors.New("it does not end"))
	defer cancel()
	for {
		if _, err := os.Stat(filepath.Join(r.bundle.state(), r.id)); errors.Is(err, os.ErrNotExist) {
			return nil
		}
		err := r.run(ctx, stdio{}, "delete", "--force", r.id)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// removal bounds the removal of a sandbox. The daemon waits five seconds for the action
// "delete"; it keeps the anchor's bundle if that fails.
const removal = 4 * time.Second

// run executes the runtime with arguments after the global ones, and kills it when the caller
// gives up. The error has what the runtime logged.
func (r ociRuntime) run(ctx context.Context, stdio stdio, args ...string) error {
	logFile := r.bundle.file("log.json")
	_ = os.Remove(logFile) // of an earlier execution
	cmd := exec.CommandContext(ctx, r.path, slices.Concat(r.flags, []string{"--root", r.bundle.state(), "--log", logFile, "--log-format", "json"}, args)...)
	cmd.Dir = string(r.bundle)
	// A file that is nil must not become an interface that is not.
	if stdio.in != nil {
		cmd.Stdin = stdio.in
	}
	if stdio.out != nil {
		cmd.Stdout = stdio.out
	}
	if stdio.err != nil {
		cmd.Stderr = stdio.err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: unix.SIGKILL}
	err := cmd.Run()
	if err == nil {
		return nil
	}
	said := lastError(logFile)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: OCI runtime %s: %w", filepath.Base(r.path), args[0], context.Cause(ctx))
	case said == "":
		said = err.Error()
	}
	return fmt.Errorf("%s: OCI runtime %s failed: %s", filepath.Base(r.path), args[0], said)
}

// lastError returns the last error in an OCI runtime's log, "" if there is none.
func lastError(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	said := ""
	for line := range bytes.Lines(text) {
		var entry struct{ Level, Msg string }
		if json.Unmarshal(line, &entry) == nil && entry.Level == "error" {
			said = strings.TrimSpace(entry.Msg)
		}
	}
	return said
}

// release lets a created container's process execute its program. Before the process goes on, it writes
// one byte to a FIFO, which "runc start" reads. release reads the byte itself, and so saves an execution
// of runc. It executes other runtimes, and a runc without the FIFO. ended is closed when the process ends.
func (r ociRuntime) release(ctx context.Context, ended <-chan struct{}) error {
	if !isRunc(ctx, r.path) {
		return r.run(ctx, stdio{}, "start", r.id)
	}
	name := filepath.Join(r.bundle.state(), r.id, "exec.fifo")
	// With a writer's end open, too, the read waits until there is a byte.
	fifo, err := os.OpenFile(name, os.O_RDWR|unix.O_NONBLOCK, 0)
	if errors.Is(err, os.ErrNotExist) {
		return r.run(ctx, stdio{}, "start", r.id)
	}
	if err != nil {
		return err
	}
	defer func() { _ = fifo.Close() }()
	released := make(chan struct{})
	defer close(released)
	go func() {
		select {
		case <-ended:
		case <-ctx.Done():
		case <-released:
			return
		}
		_ = fifo.SetReadDeadline(time.Unix(1, 0))
	}()
	_, err = fifo.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = proc.WithDescriptor(fifo, func(fd int) error { // the process may have written before it ended
			_, err := unix.Read(fd, make([]byte, 1))
			return err
		})
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the first process has ended, or does not wait for its start: %w", err), ctx.Err())
	}
	return os.Remove(name)
}

// kinds has, by path, whether an OCI runtime is runc.
var kinds sync.Map

func isRunc(ctx context.Context, path string) bool {
	if is, ok := kinds.Load(path); ok {
		return is.(bool)
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	is := err == nil && bytes.HasPrefix(out, []byte("runc version "))
	if err == nil { // otherwise the host may lack something for a moment
		kinds.Store(path, is)
	}
	return is
}
