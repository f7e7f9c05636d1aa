package service

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/securebench/sbench/runtime"
)

// A Sidecar is a service in a sandbox of its own.
type Sidecar struct {
	Service
	Names []string // of the host, at least one; they stand for 127.0.0.1 in all sandboxes of the task
	Image runtime.Image
	Env   []string // NAME=value, over the image's
}

// Engine makes sandboxes.
type Engine interface {
	// Create makes a sandbox, which the caller closes.
	Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error)
}

// wall is longer than any attempt.
const wall = 1000 * time.Hour

// Create makes a sandbox of cfg, and starts its sidecars, each as soon as the one before is ready.
// Each has the sandbox's limits and capabilities, and ends when the sandbox is closed. An error
// means that one of them is not ready; it is not the candidate's fault. If cfg.NetworkOf is a sandbox
// with the same sidecars, they serve both sandboxes, and none is started.
func Create(ctx context.Context, e Engine, cfg runtime.Config, sidecars []Sidecar) (runtime.Sandbox, error) {
	for _, c := range sidecars {
		cfg.Hosts = append(cfg.Hosts, c.Names...)
	}
	other, shared := cfg.NetworkOf.(*beside)
	if shared {
		cfg.NetworkOf = other.Sandbox
	}
	if len(sidecars) == 0 || shared {
		return e.Create(ctx, cfg)
	}
	main, err := e.Create(ctx, cfg)
	if err != nil {
		return nil, err
	}
	all := &beside{Sandbox: main}
	for _, c := range sidecars {
		r, err := c.start(ctx, e, cfg, main)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("sidecar %q: %w", c.Names[0], err), all.Close(ctx))
		}
		all.sidecars = append(all.sidecars, r)
	}
	return all, nil
}

// start returns when the service is ready.
func (c Sidecar) start(ctx context.Context, e Engine, cfg runtime.Config, main runtime.Sandbox) (*sidecar, error) {
	if len(c.Args) == 0 {
		return nil, fmt.Errorf("the image %s has no command", c.Image.Ref)
	}
	own := runtime.Config{
		Name: "sidecar " + c.Names[0], Image: c.Image, Env: c.Env, NetworkOf: main, Hosts: cfg.Hosts, WritableRoot: true,
		Capabilities: cfg.Capabilities, Limits: cfg.Limits, Observer: cfg.Observer,
	}
	args, err := Beside([]Service{c.Service}, nil, &own)
	if err != nil {
		return nil, err
	}
	sandbox, err := e.Create(ctx, own)
	if err != nil {
		return nil, err
	}
	r := &sidecar{sandbox: sandbox, ended: make(chan struct{})}
	started := &signal{first: make(chan struct{})}
	running, cancel := context.WithCancel(ctx)
	r.cancel = cancel
	go func() {
		exit, err := sandbox.Exec(running, runtime.Process{Args: args, Wall: wall, Stdout: started, OutputBytes: 64 << 10})
		if r.err = err; err == nil {
			r.err = fmt.Errorf("%s: %s", exit, exit.Stderr)
		}
		close(r.ended)
	}()
	select {
	case <-started.first:
		return r, nil
	case <-r.ended:
		return nil, errors.Join(r.err, r.close(ctx))
	}
}

// signal is a writer that says when it is first written to.
type signal struct {
	once  sync.Once
	first chan struct{}
}

func (s *signal) Write(p []byte) (int, error) {
	s.once.Do(func() { close(s.first) })
	return len(p), nil
}

// sidecar is a Sidecar that is ready.
type sidecar struct {
	sandbox runtime.Sandbox
	cancel  context.CancelFunc
	ended   chan struct{}
	err     error // how its process ended, after that
}

// close kills the sidecar; how its process ended does not matter then.
func (r *sidecar) close(ctx context.Context) error {
	r.cancel()
	<-r.ended
	return r.sandbox.Close(ctx)
}

// beside is a sandbox with its sidecars.
type beside struct {
	runtime.Sandbox
	sidecars []*sidecar
}

// End kills the sidecars of a sandbox that [Create] made. A harness can hand its sidecars descriptors of what its own
// processes may write, so they end with it, before anybody looks at what it left.
func End(ctx context.Context, s runtime.Sandbox) error {
	b, ok := s.(*beside)
	if !ok {
		return nil
	}
	var errs []error
	for _, s := range b.sidecars {
		errs = append(errs, s.close(ctx))
	}
	b.sidecars = nil
	return errors.Join(errs...)
}

// Close closes the sidecars, and then the sandbox, which has the network of all.
func (b *beside) Close(ctx context.Context) error {
	return errors.Join(End(ctx, b), b.Sandbox.Close(ctx))
}
