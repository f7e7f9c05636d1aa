package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/task"
)

// A Sandbox implements runtime.Sandbox on containerd. Its methods are safe for
// concurrent use.
type Sandbox struct {
	enclosure

	mu    sync.Mutex
	first *task.Process // nil before it is made; deleting it deletes the container
	// specDigest is the digest of the first process's specification.
	specDigest string
	idle       *process // the first process, if it idles
	spent      bool     // a process was run
	stopped    bool     // no process runs: all have ended or, with Config.KeepProcesses, are suspended
	// With Config.KeepProcesses, left is the process that was run, after its end. unwatch ends the watch on the
	// processes that it has left; it is nil until they run again.
	left    *process
	unwatch context.CancelFunc
	beside  []limits.Group // of the sandboxes that share its network and were created before its process ran
	closed  bool
}

// Create makes a sandbox, which the caller closes. The first process of a one-shot sandbox
// starts with Exec; the first process of a persistent sandbox, or of one that keeps processes, starts now and idles. If
// Create fails, it leaves nothing behind.
func (e *Engine) Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error) {
	s, err := e.create(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("sandbox %q: %w", cfg.Name, err)
	}
	return s, nil
}

func (e *Engine) create(ctx context.Context, cfg runtime.Config) (*Sandbox, error) {
	if err := cfg.Limits.Validate(); err != nil {
		return nil, err
	}
	cfg.Mounts = slices.Clone(cfg.Mounts)
	how, kind, err := e.kind(cfg.Isolation)
	if err != nil {
		return nil, err
	}
	if cfg.KeepProcesses && how == gvisor {
		return nil, fmt.Errorf("isolation %s %w: it cannot keep the harness's processes", runtime.GVisor, runtime.ErrInvalid)
	}
	cfg.Limits = how.limits(cfg.Limits)
	id := owner.RandomID()
	s := &Sandbox{enclosure: enclosure{
		engine: e, cfg: cfg, how: how, kind: kind, id: e.claim.ID() + "-" + id, dir: filepath.Join(e.claim.Dir(), "sandbox-"+id),
		cgroup: e.claim.Group() + "/" + id,
	}}
	s.group = e.platform.Limits.Group(s.cgroup, cfg.Limits, s.fileBytes)
	if err := kind.Driver.Ready(e.claim.Context(ctx)); err != nil {
		return nil, err
	}
	err = s.build(ctx)
	if err == nil && s.idles() {
		s.idle, err = s.startFirst(ctx, runtime.Process{Args: []string{pauseDest}}, how.idleStreams())
	}
	if err != nil {
		return nil, errors.Join(err, s.Close(ctx))
	}
	return s, nil
}

// Spec returns the OCI specification that p would run with, without running p.
func (s *Sandbox) Spec(p runtime.Process) (*specs.Spec, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, runtime.ErrClosed
	}
	return s.spec(p)
}

// Path returns the host path of a directory in a stopped sandbox; see runtime.Sandbox.
func (s *Sandbox) Path(dir string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkStopped(); err != nil {
		return "", err
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("path %q is not absolute", dir)
	}
	at, err := s.root.Stopped()
	if err != nil {
		return "", fmt.Errorf("%s in sandbox %q: %w", dir, s.cfg.Name, err)
	}
	for part := range strings.SplitSeq(strings.Trim(filepath.Clean(dir), "/"), "/") {
		at = filepath.Join(at, part)
		info, err := os.Lstat(at)
		if err != nil || !info.IsDir() {
			return "", fmt.Errorf("%s in sandbox %q: %w", dir, s.cfg.Name, fs.ErrNotExist)
		}
	}
	return at, nil
}

// Changes returns what was written over the image; see runtime.Sandbox.
func (s *Sandbox) Changes() (runtime.Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkStopped(); err != nil {
		return runtime.Changes{}, err
	}
	if !s.cfg.Machine {
		return runtime.Changes{}, errors.New("the sandbox is no machine")
	}
	c := runtime.Changes{Dir: s.root.Layers()[0], Below: s.cfg.Image.UpperDir, Mounts: []string{"/proc", "/dev", "/sys"}}
	for _, m := range s.root.Shown() {
		c.Mounts = append(c.Mounts, m.Dest)
	}
	return c, nil
}

// checkStopped returns an error unless the sandbox has stopped and is not closed.
func (s *Sandbox) checkStopped() error {
	if s.closed || !s.stopped { // a persistent sandbox does not stop before it is closed
		return errors.New("sandbox has not stopped, or is closed")
	}
	return nil
}

// Close kills what still runs and removes the sandbox; see runtime.Sandbox.
func (s *Sandbox) Close(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	var errs []error
	if s.idle != nil {
		errs = append(errs, s.idle.close())
	}
	if !s.stopped || s.idles() {
		errs = append(errs, limits.Kill(ctx, s.group, 0, killTimeout))
	}
	ctx, cancel := s.engine.platform.Conn.Cleanup(ctx)
	defer cancel()
	if s.unwatch != nil {
		s.unwatch()
	}
	if s.left != nil {
		errs = append(errs, s.left.Delete(ctx))
	}
	deleted := make(chan error, 1)
	go func() { deleted <- s.first.Delete(ctx) }() // most of it is waiting for the shim
	if s.netns != nil {
		errs = append(errs, s.netns.Close())
	}
	s.netns = nil
	errs = append(errs, s.tmpfs.close(), s.unmount(), <-deleted)
	if s.layer != nil {
		errs = append(errs, s.layer.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close sandbox %q: %w", s.cfg.Name, err) // Engine.Close or a collection tries again
	}
	s.closed = true
	if s.cfg.NetworkOf != nil {
		s.ids = sandboxIDs{} // the other sandbox's
	}
	err := os.RemoveAll(s.dir)
	if errors.Is(err, unix.ENOTEMPTY) { // after a server's death, the shim's delete may be at work there
		err = os.RemoveAll(s.dir)
	}
	return errors.Join(s.ids.close(), err, s.group.Remove())
}
