package containerd

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/task"
	"github.com/securebench/sbench/runtime/volume"
	"github.com/securebench/sbench/runtime/watchdog"
)

// killTimeout bounds the wait until killed processes have ended: minutes, because a process
// that waits for a slow disk ends only when the disk answers. After slowKill the wait is
// logged.
const (
	killTimeout = 5 * time.Minute
	slowKill    = 20 * time.Second
)

// Exec runs p to completion; see runtime.Sandbox.
func (s *Sandbox) Exec(ctx context.Context, p runtime.Process) (_ runtime.Exit, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer func() {
		if err != nil {
			err = fmt.Errorf("sandbox %q: %w", s.cfg.Name, err)
		}
	}()
	if err := s.cfg.Starting(p); err != nil {
		return runtime.Exit{}, err
	}
	switch {
	case s.closed:
		return runtime.Exit{}, runtime.ErrClosed
	case p.Wall <= 0:
		return runtime.Exit{}, errors.New("process without a wall-clock limit")
	case !s.cfg.Persistent && s.spent:
		return runtime.Exit{}, runtime.ErrSpent
	}
	s.spent = true
	std := task.NewStreams(p)
	defer std.Close()
	before, err := s.group.Stats()
	if err != nil {
		return runtime.Exit{}, err
	}
	start := s.startFirst
	if s.cfg.Persistent {
		start = s.startNext
	}
	proc, err := start(ctx, p, std)
	if err != nil {
		return runtime.Exit{}, err
	}
	begun := time.Now()
	exit, err := s.wait(ctx, p, proc, begun)
	if err != nil {
		return runtime.Exit{}, errors.Join(err, proc.close())
	}
	s.dead = !s.cfg.Persistent
	std.Drain()
	exit.Stdout, exit.Stderr = std.Out.Output(), std.Err.Output()
	exit.Spec = s.specDigest
	if err := errors.Join(s.account(&exit, before), s.finish(ctx, proc), s.sound()); err != nil {
		return runtime.Exit{}, err
	}
	s.cfg.Ended(exit)
	return exit, nil
}

// finish releases a process that has ended. The daemon's record of it is deleted now in a
// persistent sandbox, with the sandbox in a one-shot one.
func (s *Sandbox) finish(ctx context.Context, proc *process) error {
	err := proc.close()
	if !s.cfg.Persistent {
		return err
	}
	ctx, cancel := s.run.c.conn.Cleanup(ctx)
	defer cancel()
	return errors.Join(err, proc.Delete(ctx))
}

// startFirst starts p as the first process of the sandbox.
func (s *Sandbox) startFirst(ctx context.Context, p runtime.Process, std *task.Streams) (*process, error) {
	ctx = s.run.Context(ctx)
	spec, err := s.spec(p)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	s.specDigest = digest.FromBytes(data).String()
	release, err := s.run.c.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	s.container, err = s.run.tasks.Create(ctx, s.containerConfig(spec, data), std)
	if err != nil {
		return nil, task.StartError(err)
	}
	proc := openProcess(s.container.First())
	if err := errors.Join(s.root.Check(proc.pid), s.verifyLimits(), s.attach(proc.pid)); err != nil {
		return nil, errors.Join(err, proc.kill(ctx), proc.close()) // a group may not know it yet
	}
	if err := s.container.Start(ctx); err != nil {
		return nil, errors.Join(task.StartError(err), proc.close())
	}
	return proc, nil
}

// verifyLimits verifies that the kernel has the sandbox's limits.
func (s *Sandbox) verifyLimits() (err error) {
	s.group, err = s.run.c.limits.Verify(s.group, s.cfg.Limits)
	return err
}

// startNext starts p beside the idle process of a persistent sandbox.
func (s *Sandbox) startNext(ctx context.Context, p runtime.Process, std *task.Streams) (*process, error) {
	ctx = s.run.Context(ctx)
	spec, err := s.spec(p)
	if err != nil {
		return nil, err
	}
	next, pid, err := s.container.Exec(ctx, "exec-"+owner.RandomID(), spec.Process, std)
	if err != nil {
		err = task.StartError(err)
		if next != nil { // it may run nevertheless, unknown to the shim
			err = errors.Join(err, kill(ctx, s.group, s.idlePid(), daemon.CleanupTimeout), next.Delete(ctx))
		}
		return nil, err
	}
	started := openProcess(next, pid)
	if !proc.SharesNamespace(pid, s.idlePid(), "pid") { // it has ended, and its id may be another's
		return started, started.close()
	}
	return started, nil
}

// containerConfig returns what the driver needs to make the container of spec, whose JSON is data.
func (s *Sandbox) containerConfig(spec *specs.Spec, data []byte) task.Config {
	c := task.Config{ID: s.id, Dir: s.dir, Spec: spec, JSON: data, Image: s.cfg.Image.Ref, Labels: s.run.Labels(s.cfg.Name)}
	if s.ids.own != nil {
		c.Base, c.Devices = s.ids.own.Base(), s.root.Devices()
	}
	return c
}

// An end is how a process ended: its status, or why that is unknown.
type end struct {
	status uint32
	err    error
}

// wait waits until p has ended and all its processes are proven dead. The daemon may end
// before the process does.
func (s *Sandbox) wait(ctx context.Context, p runtime.Process, proc *process, begun time.Time) (runtime.Exit, error) {
	waitCtx, stop := context.WithCancel(s.run.c.conn.Context(context.WithoutCancel(ctx)))
	defer stop()
	done := make(chan end, 1)
	go func() {
		status, err := proc.Wait(waitCtx)
		done <- end{status, err}
	}()
	limit := time.NewTimer(p.Wall)
	defer limit.Stop()
	reason, grace := runtime.Exited, time.Duration(0)
	var e end
	var ended bool
	overflow, unbounded := s.overflow(waitCtx), s.unbounded(waitCtx)
	select {
	case e = <-done:
		ended = true
	case <-overflow:
	case <-unbounded:
		reason = runtime.OutOfMemory
	case <-limit.C:
		reason, grace = runtime.WallTime, cmp.Or(max(p.Grace, 0), runtime.DefaultGrace)
	case <-ctx.Done():
		return runtime.Exit{}, errors.Join(fmt.Errorf("interrupted: %w", context.Cause(ctx)), s.killAll(ctx, proc))
	}
	if !ended {
		var err error
		if e, err = s.end(ctx, grace, proc, done, overflow, unbounded); err != nil {
			return runtime.Exit{}, err
		}
	}
	wall := time.Since(begun)
	if err := s.killAll(ctx, proc); err != nil {
		return runtime.Exit{}, err
	}
	if e.err != nil {
		return runtime.Exit{}, fmt.Errorf("wait: %w", e.err)
	}
	exit := runtime.Exit{Reason: reason, Code: int(e.status), Wall: wall, Signal: proc.signal(e.status)}
	if exit.Signal != 0 && reason == runtime.Exited {
		exit.Reason = runtime.Signaled
	}
	return exit, nil
}

// end sends SIGTERM to every process, unless grace is 0, and after grace, or when they hold more
// than they may, kills those that remain. The daemon then reports the end in done.
func (s *Sandbox) end(ctx context.Context, grace time.Duration, proc *process, done <-chan end, overflow, unbounded <-chan struct{}) (end, error) {
	if grace > 0 {
		if err := s.group.Signal(unix.SIGTERM, s.idlePid()); err != nil {
			return end{}, errors.Join(err, s.killAll(ctx, proc))
		}
		select {
		case e := <-done:
			return e, nil
		case <-overflow:
		case <-unbounded:
		case <-time.After(grace):
		}
	}
	if err := s.killAll(ctx, proc); err != nil {
		return end{}, err
	}
	select {
	case e := <-done:
		return e, nil
	case <-time.After(daemon.ReconnectTimeout + s.run.c.opts.Timeout): // the process is known to be dead
		return end{}, fmt.Errorf("%w: no word of the exit after the kill", runtime.ErrUnavailable)
	}
}

// idlePid returns the pid of a persistent sandbox's first process, which is spared; 0 if
// there is none.
func (s *Sandbox) idlePid() int {
	if s.init == nil {
		return 0
	}
	return s.init.pid
}

// killAll kills every process of the sandbox except the idle one, and verifies in the
// sandbox's group that no other is left.
func (s *Sandbox) killAll(ctx context.Context, proc *process) error {
	ctx, cancel := context.WithTimeout(s.run.c.conn.Context(context.WithoutCancel(ctx)), killTimeout)
	defer cancel()
	slow := time.AfterFunc(slowKill, func() {
		s.run.c.log.Warn("processes of a sandbox were killed and do not end: they wait for a disk, or the kernel hangs", "sandbox", s.cfg.Name, "gives up after", killTimeout)
	})
	defer slow.Stop()
	if err := errors.Join(proc.kill(ctx), s.group.KillAll(ctx, s.idlePid())); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrStillAlive, err)
	}
	return nil
}

// account adds the usage and the limits that were reached, and makes the limit that explains a
// failure its reason. The error is ErrUnavailable if the process is not to blame: the host or a
// group above the sandbox's ran out of memory and the kernel killed a process, or the process
// failed by itself after a group above had refused it a fork.
func (s *Sandbox) account(e *runtime.Exit, before cgroup.Stats) error {
	near := false
	if g, ok := s.group.(*watchdog.Group); ok {
		g.Final()
		near = g.NearPids()
	}
	after, err := s.group.Stats()
	killed := after.OOMKills > before.OOMKills
	switch {
	case err != nil:
		return err
	case killed && after.OOMs == before.OOMs && e.Reason != runtime.OutOfMemory:
		return fmt.Errorf("%w: the host ran out of memory, and the kernel killed a process of the sandbox, which had not reached its limit", runtime.ErrUnavailable)
	}
	e.Usage = runtime.Usage{CPU: after.CPU - before.CPU, PeakMemory: after.PeakMemory, PeakPids: after.PeakPids}
	outOfMemory, outOfPids := e.Reason == runtime.OutOfMemory || killed, after.PidsDenied > before.PidsDenied
	// The peak is 0 where the kernel does not count it. With version 1, and with version 2 before
	// Linux 6.11, refusals count where the process is, not where the limit is.
	if outOfPids && after.PeakPids > 0 && after.PeakPids < s.cfg.Limits.Pids {
		if !e.Success() && e.Reason != runtime.WallTime && !outOfMemory {
			return fmt.Errorf("%w: a control group above the sandbox's refused it processes, of which it had %d of %d", runtime.ErrUnavailable, after.PeakPids, s.cfg.Limits.Pids)
		}
		outOfPids = false
	}
	full, err := s.full()
	reached := func(limit runtime.Limit, is bool) {
		if is {
			e.Reached = append(e.Reached, limit)
		}
	}
	reached(runtime.LimitWall, e.Reason == runtime.WallTime)
	reached(runtime.LimitMemory, outOfMemory)
	reached(runtime.LimitPids, outOfPids || near)
	reached(runtime.LimitOutput, e.Stdout.Cut() > 0 || e.Stderr.Cut() > 0)
	reached(runtime.LimitDisk, err == nil && full)
	if e.Success() || e.Reason == runtime.WallTime {
		return nil // it succeeded despite the limits, or sbench killed it first
	}
	switch {
	case outOfMemory:
		e.Reason = runtime.OutOfMemory
	case outOfPids:
		e.Reason = runtime.PidsLimit
	}
	return nil
}

// volumes returns the sandbox's layer and the volumes that it mounts directly, or of these
// only the writable ones.
func (s *Sandbox) volumes(writable bool) []*volume.Volume {
	all := []*volume.Volume{s.layer}
	for _, m := range s.cfg.Mounts {
		if v := s.run.volumes.Of(m.Source); v != nil && !m.Copy && (m.Writable || !writable) {
			all = append(all, v)
		}
	}
	return all
}

// full reports whether the layer, or a writable mount that is a volume, is full.
func (s *Sandbox) full() (bool, error) {
	for _, v := range s.volumes(true) {
		if isFull, err := v.Full(); err != nil || isFull {
			return isFull, err
		}
	}
	return false, nil
}

// sound returns an error if something written to the sandbox's volumes has not reached the
// disk.
func (s *Sandbox) sound() error {
	for _, v := range s.volumes(false) {
		if err := v.Sound(); err != nil {
			return err
		}
	}
	return nil
}

// Path returns the host path of a directory in a stopped sandbox; see runtime.Sandbox.
func (s *Sandbox) Path(dir string) (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.left(); err != nil {
		return "", err
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("path %q is not absolute", dir)
	}
	at, err := s.root.Left()
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

// left returns an error unless a one-shot sandbox has ended its process and is not closed.
func (s *Sandbox) left() error {
	if s.closed || !s.dead { // only a one-shot sandbox dies before it is closed
		return errors.New("sandbox has not stopped, or is closed")
	}
	return nil
}

// Changes returns what was written over the image; see runtime.Sandbox.
func (s *Sandbox) Changes() (runtime.Changes, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.left(); err != nil {
		return runtime.Changes{}, err
	}
	if !s.cfg.Machine {
		return runtime.Changes{}, errors.New("the sandbox is no machine")
	}
	c := runtime.Changes{Dir: s.root.Layers()[0], Mounts: []string{"/proc", "/dev", "/sys"}}
	for _, m := range s.root.Shown() {
		c.Mounts = append(c.Mounts, m.Dest)
	}
	return c, nil
}
