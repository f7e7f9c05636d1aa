package sandbox

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/task"
	"github.com/securebench/sbench/runtime/watchdog"
)

// killTimeout bounds the wait until killed processes have ended: minutes, because a process
// that waits for a slow disk ends only when the disk answers. After slowKill the wait is
// logged. freezeTimeout bounds the wait until the processes that are to be kept are suspended.
const (
	killTimeout   = 5 * time.Minute
	slowKill      = 20 * time.Second
	freezeTimeout = 10 * time.Second
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
	if err := s.cfg.Admit(p, s.spent, s.closed); err != nil {
		return runtime.Exit{}, err
	}
	s.spent = true
	std := task.NewStreams(p)
	before, err := s.group.Stats()
	if err != nil {
		return runtime.Exit{}, err
	}
	start := s.startFirst
	if s.idles() {
		start = s.startNext
	}
	started, err := start(ctx, p, std)
	if err != nil {
		return runtime.Exit{}, err
	}
	x := execution{Sandbox: s, p: p, process: started, before: before}
	exit, err := x.wait(ctx)
	if err != nil {
		return runtime.Exit{}, errors.Join(err, started.close())
	}
	s.stopped = !s.cfg.Persistent
	if s.cfg.KeepProcesses {
		s.left = started
	}
	std.Drain(s.cfg.KeepProcesses)
	exit.Stdout, exit.Stderr = std.Out.Output(), std.Err.Output()
	exit.Spec = s.specDigest
	if err := errors.Join(x.findReason(&exit), x.release(ctx), s.sound()); err != nil {
		return runtime.Exit{}, err
	}
	s.cfg.Ended(exit)
	return exit, nil
}

// startFirst starts p as the first process of the sandbox.
func (s *Sandbox) startFirst(ctx context.Context, p runtime.Process, std *task.Streams) (*process, error) {
	ctx = s.engine.claim.Context(ctx)
	spec, err := s.spec(p)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	s.specDigest = digest.FromBytes(data).String()
	release, err := s.engine.slot(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	container := task.Config{ID: s.id, Dir: s.dir, Spec: data}
	if s.cfg.SealOutput {
		container.OutputNetwork = s.netns.Path()
	}
	if s.ids.own != nil {
		container.Base, container.Devices = s.ids.own.Base(), s.root.Devices()
	}
	s.first, err = s.kind.Driver.Create(ctx, container, std)
	if err != nil {
		return nil, task.StartError(err)
	}
	pid := s.first.PID
	proc, err := s.how.open(s.first, 0)
	if err != nil {
		return nil, err
	}
	if err = checkNamespaces(pid, spec); err == nil {
		err = errors.Join(s.how.seal(s.root, pid), s.engine.platform.Limits.Prepare(s.group, s.cfg.Limits), s.attach(pid))
	}
	if err != nil {
		return nil, errors.Join(err, proc.kill(ctx), proc.close()) // a group may not know it yet
	}
	if err := s.first.Start(ctx); err != nil {
		return nil, errors.Join(task.StartError(err), proc.close())
	}
	return proc, nil
}

// startNext starts p beside the first process, which idles.
func (s *Sandbox) startNext(ctx context.Context, p runtime.Process, std *task.Streams) (*process, error) {
	ctx = s.engine.claim.Context(ctx)
	spec, err := s.spec(p)
	if err != nil {
		return nil, err
	}
	next, err := s.first.Exec(ctx, "exec-"+owner.RandomID(), spec.Process, std)
	if err != nil {
		err = task.StartError(err)
		if next != nil { // it may run nevertheless, unknown to the shim
			err = errors.Join(err, limits.Kill(ctx, s.how.processes(s), s.idlePid(), daemon.CleanupTimeout), next.Delete(ctx))
		}
		return nil, err
	}
	return s.how.open(next, s.idlePid())
}

// idlePid returns the pid of a first process that idles, which is spared; 0 if there is none.
func (s *Sandbox) idlePid() int {
	if s.idle == nil {
		return 0
	}
	return s.idle.PID
}

// An execution is a process of a sandbox that has started.
type execution struct {
	*Sandbox
	p       runtime.Process
	process *process
	before  cgroup.Stats // of the sandbox's group, before the start
}

// wait waits until the process has ended, and proves that no process of the sandbox but the idle one
// is alive or, with Config.KeepProcesses, that none runs. The daemon may end before the process does.
func (x *execution) wait(ctx context.Context) (runtime.Exit, error) {
	begun := time.Now()
	waitCtx, cancel := context.WithCancel(x.engine.platform.Conn.Context(context.WithoutCancel(ctx)))
	defer cancel()
	done := x.process.Wait(waitCtx)
	reason, grace := runtime.Exited, time.Duration(0)
	var e task.End
	var ended bool
	overflow, over := x.overflow(waitCtx), x.p.Over(waitCtx)
	select {
	case e = <-done:
		ended = true
	case <-overflow:
	case <-over:
		reason, grace = runtime.WallTime, cmp.Or(max(x.p.Grace, 0), runtime.DefaultGrace)
	case <-ctx.Done():
		return runtime.Exit{}, errors.Join(fmt.Errorf("interrupted: %w", context.Cause(ctx)), x.killAll(ctx))
	}
	if !ended {
		var err error
		if e, err = x.stop(ctx, grace, done, overflow); err != nil {
			return runtime.Exit{}, err
		}
	}
	wall := time.Since(begun)
	if err := x.keepOrKill(ctx, reason); err != nil {
		return runtime.Exit{}, err
	}
	if e.Err != nil {
		return runtime.Exit{}, fmt.Errorf("wait: %w", e.Err)
	}
	exit := runtime.Exit{Reason: reason, Code: int(e.Status), Wall: wall, Signal: x.process.signal(e.Status)}
	if exit.Signal != 0 && reason == runtime.Exited {
		exit.Reason = runtime.Signaled
	}
	return exit, nil
}

// stop sends SIGTERM to every process, unless grace is 0. After grace, or as soon as the layer
// is over its size, stop kills the processes that remain. The end comes through done.
func (x *execution) stop(ctx context.Context, grace time.Duration, done <-chan task.End, overflow <-chan struct{}) (task.End, error) {
	if grace > 0 {
		if err := x.how.processes(x.Sandbox).Signal(unix.SIGTERM, x.idlePid()); err != nil {
			return task.End{}, errors.Join(err, x.killAll(ctx))
		}
		select {
		case e := <-done:
			return e, nil
		case <-overflow:
		case <-time.After(grace):
		}
	}
	if err := x.killAll(ctx); err != nil {
		return task.End{}, err
	}
	select {
	case e := <-done:
		return e, nil
	case <-time.After(daemon.ReconnectTimeout + x.engine.platform.Conn.Timeout): // the process is known to be dead
		return task.End{}, fmt.Errorf("%w: no word of the exit after the kill", runtime.ErrUnavailable)
	}
}

// keepOrKill suspends the processes that the process has left, with Config.KeepProcesses, once they have settled, and
// otherwise kills them. It kills them, too, if the process reached its wall time, or if they cannot be suspended. With
// Config.KeepProcesses it also suspends the sandboxes beside this one: they may have descriptors of its files.
func (x *execution) keepOrKill(ctx context.Context, reason runtime.Reason) error {
	if !x.cfg.KeepProcesses {
		return x.killAll(ctx)
	}
	var err error
	if reason == runtime.WallTime {
		err = x.killAll(ctx)
	} else {
		x.settle(ctx)
		err = suspend(ctx, x.group, x.idlePid())
	}
	for _, g := range x.beside {
		err = errors.Join(err, suspend(ctx, g, 0))
	}
	return err
}

// suspend suspends the processes of a group or, if that is impossible, kills them except spare.
func suspend(ctx context.Context, g limits.Group, spare int) error {
	freezing, cancel := context.WithTimeout(context.WithoutCancel(ctx), freezeTimeout)
	defer cancel()
	err := g.Freeze(freezing, true)
	if err == nil {
		return nil
	}
	if errors.Is(err, context.DeadlineExceeded) { // the processes can cause it
		err = nil
	}
	if killErr := limits.Kill(ctx, g, spare, killTimeout); killErr != nil {
		err = errors.Join(err, fmt.Errorf("%w: %w", runtime.ErrStillAlive, killErr))
	}
	return err
}

// settle waits until the processes that are left have settled, or the layer is over its size.
func (x *execution) settle(ctx context.Context) {
	watching, cancel := context.WithCancel(ctx)
	defer cancel()
	proc.Settle(ctx, x.overflow(watching), func() time.Duration {
		used, _ := x.group.Stats()
		return used.CPU
	})
}

// resume lets the processes that are kept, and those beside the sandbox, run again. From then on the kept ones are
// killed if the layer is over its size.
func (s *Sandbox) resume(ctx context.Context) error {
	s.stopped = false
	if s.unwatch == nil {
		var watching context.Context
		watching, s.unwatch = context.WithCancel(context.WithoutCancel(ctx))
		go s.killFull(watching, s.overflow(watching))
	}
	err := s.group.Freeze(ctx, false) // again, if it failed before
	for _, g := range s.beside {
		err = errors.Join(err, g.Freeze(ctx, false))
	}
	return err
}

// killFull kills the processes of the sandbox except the idle one once the layer is full, unless ctx is done first.
func (s *Sandbox) killFull(ctx context.Context, full <-chan struct{}) {
	select {
	case <-full:
		_ = limits.Kill(ctx, s.group, s.idlePid(), killTimeout) // Close tries again
	case <-ctx.Done():
	}
}

// killAll kills every process of the sandbox except the idle one, and verifies in the
// sandbox's group that no other is left.
func (x *execution) killAll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(x.engine.platform.Conn.Context(context.WithoutCancel(ctx)), killTimeout)
	defer cancel()
	slow := time.AfterFunc(slowKill, func() {
		x.engine.platform.Logger.Warn("processes of a sandbox were killed and do not end: they wait for a disk, or the kernel hangs", "sandbox", x.cfg.Name, "gives up after", killTimeout)
	})
	defer slow.Stop()
	if err := errors.Join(x.process.kill(ctx), x.how.processes(x.Sandbox).KillAll(ctx, x.idlePid())); err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrStillAlive, err)
	}
	return nil
}

// release releases a process that has ended. The shim forgets a process of a persistent sandbox now,
// and a process of a one-shot sandbox when the sandbox is closed.
func (x *execution) release(ctx context.Context) error {
	err := x.process.close()
	if !x.cfg.Persistent {
		return err
	}
	ctx, cancel := x.engine.platform.Conn.Cleanup(ctx)
	defer cancel()
	return errors.Join(err, x.process.Delete(ctx))
}

// findReason adds the usage and the limits that were reached. If a limit explains a failure, it
// becomes the reason of the exit. The error is ErrUnavailable if the process is not to blame:
//
//   - the host, or a control group above the sandbox's, ran out of memory, and the kernel killed a
//     process of the sandbox;
//   - a control group above the sandbox's refused the process a fork, and the process failed.
func (x *execution) findReason(e *runtime.Exit) error {
	near := false
	if g, ok := x.group.(*watchdog.Group); ok {
		g.Final()
		near = g.NearPids()
	}
	after, err := x.group.Stats()
	killed := after.OOMKills > x.before.OOMKills
	switch {
	case err != nil:
		return err
	case killed && after.OOMs == x.before.OOMs && e.Reason != runtime.OutOfMemory:
		return fmt.Errorf("%w: the host ran out of memory, and the kernel killed a process of the sandbox, which had not reached its limit", runtime.ErrUnavailable)
	}
	e.Usage = runtime.Usage{CPU: after.CPU - x.before.CPU, PeakMemory: after.PeakMemory, PeakPids: after.PeakPids}
	outOfMemory, outOfPids := e.Reason == runtime.OutOfMemory || killed, after.PidsDenied > x.before.PidsDenied
	// The peak is 0 where the kernel does not count it. With version 1, and with version 2 before
	// Linux 6.11, refusals count where the process is, not where the limit is.
	if outOfPids && after.PeakPids > 0 && after.PeakPids < x.cfg.Limits.Pids {
		if !e.Success() && e.Reason != runtime.WallTime && !outOfMemory {
			return fmt.Errorf("%w: a control group above the sandbox's refused it processes, of which it had %d of %d", runtime.ErrUnavailable, after.PeakPids, x.cfg.Limits.Pids)
		}
		outOfPids = false
	}
	full, err := x.full()
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
