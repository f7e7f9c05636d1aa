package shim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	"github.com/containerd/containerd/api/types/runc/options"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// service implements the task API for the sandboxes of a run. Calls for one sandbox exclude
// each other, except Kill, Wait and State; calls for different sandboxes never wait for each
// other.
type service struct {
	mu    sync.Mutex
	tasks map[string]*task
}

func newService() *service { return &service{tasks: map[string]*task{}} }

func (s *service) empty() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tasks) == 0
}

// task is a sandbox.
type task struct {
	oci   ociRuntime
	owner uint32 // of the standard streams

	changing sync.Mutex // held by calls that execute the OCI runtime
	mu       sync.Mutex // guards what follows
	first    *process   // nil until it was created
	added    map[string]*process
}

// find returns a sandbox, and in it the process of the given id: "" is the first.
func (s *service) find(id, processID string) (*task, *process, error) {
	s.mu.Lock()
	t := s.tasks[id]
	s.mu.Unlock()
	if t == nil {
		return nil, nil, toGRPC(fmt.Errorf("container %s: %w", id, errdefs.ErrNotFound))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	p := t.first
	if processID != "" {
		p = t.added[processID]
	}
	if p == nil {
		return nil, nil, toGRPC(fmt.Errorf("process %q of container %s: %w", processID, id, errdefs.ErrNotFound))
	}
	return t, p, nil
}

func toGRPC(err error) error {
	if errors.Is(err, unix.ESRCH) {
		err = fmt.Errorf("%w: %w", errdefs.ErrNotFound, err)
	}
	return errgrpc.ToGRPC(err)
}

func (s *service) Create(ctx context.Context, r *taskapi.CreateTaskRequest) (*taskapi.CreateTaskResponse, error) {
	if r.Terminal || len(r.Rootfs) > 0 || r.Checkpoint != "" {
		return nil, toGRPC(fmt.Errorf("container with a terminal, mounts or a checkpoint: %w", errdefs.ErrNotImplemented))
	}
	var opts options.Options
	if r.Options != nil {
		if err := proto.Unmarshal(r.Options.Value, &opts); err != nil {
			return nil, toGRPC(fmt.Errorf("options: %w: %w", errdefs.ErrInvalidArgument, err))
		}
	}
	path, err := exec.LookPath(cmp.Or(opts.BinaryName, "runc"))
	if err != nil {
		return nil, toGRPC(fmt.Errorf("OCI runtime: %w: %w", errdefs.ErrNotFound, err))
	}
	t := &task{oci: ociRuntime{path: path, bundle: bundle(r.Bundle), id: r.ID}, owner: opts.IoUid, added: map[string]*process{}}
	t.changing.Lock()
	defer t.changing.Unlock()
	s.mu.Lock()
	_, exists := s.tasks[r.ID]
	if !exists {
		s.tasks[r.ID] = t
	}
	s.mu.Unlock()
	if exists {
		return nil, toGRPC(fmt.Errorf("container %s: %w", r.ID, errdefs.ErrAlreadyExists))
	}
	p := newProcess(r.Stdin, r.Stdout, r.Stderr, nil)
	if err := t.create(ctx, p); err != nil {
		s.forget(r.ID)
		return nil, toGRPC(err)
	}
	pid, _ := p.state()
	return &taskapi.CreateTaskResponse{Pid: pid}, nil
}

func (s *service) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, id)
}

func (t *task) create(ctx context.Context, p *process) error {
	std, err := openStdio(ctx, p.stdin, p.stdout, p.stderr, t.owner)
	if err != nil {
		return err
	}
	defer std.close()
	// From now on, the action "delete" has something to do.
	if err := os.WriteFile(t.oci.bundle.file("runtime"), []byte(t.oci.path), 0o600); err != nil {
		return err
	}
	pidFile := t.oci.bundle.file("first.pid")
	if err := t.oci.run(ctx, std, "create", "--bundle", string(t.oci.bundle), "--pid-file", pidFile, t.oci.id); err != nil {
		return err // what it made, it has removed, or the action "delete" removes
	}
	if err := p.adopt(pidFile); err != nil {
		return errors.Join(err, t.oci.run(context.WithoutCancel(ctx), stdio{}, "delete", "--force", t.oci.id))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first = p
	return nil
}

func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	t, p, err := s.find(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	switch _, started := p.state(); {
	case started || p.hasEnded():
		err = fmt.Errorf("the process was started, or has ended: %w", errdefs.ErrFailedPrecondition)
	case r.ExecID == "":
		err = t.oci.release(ctx, p.done)
	default:
		err = t.add(ctx, r.ExecID, p)
	}
	if err != nil {
		return nil, toGRPC(err)
	}
	p.setStarted()
	pid, _ := p.state()
	return &taskapi.StartResponse{Pid: pid}, nil
}

// add starts a process beside the first.
func (t *task) add(ctx context.Context, id string, p *process) error {
	std, err := openStdio(ctx, p.stdin, p.stdout, p.stderr, t.owner)
	if err != nil {
		return err
	}
	defer std.close()
	specFile, pidFile := t.oci.bundle.file(id+".json"), t.oci.bundle.file(id+".pid")
	defer func() { _, _ = os.Remove(specFile), os.Remove(pidFile) }() // if not now, then with the bundle
	if err := os.WriteFile(specFile, p.spec, 0o600); err != nil {
		return err
	}
	if err := t.oci.run(ctx, std, "exec", "--detach", "--process", specFile, "--pid-file", pidFile, t.oci.id); err != nil {
		return err
	}
	return p.adopt(pidFile)
}

func (s *service) Exec(_ context.Context, r *taskapi.ExecProcessRequest) (*emptypb.Empty, error) {
	t, _, err := s.find(r.ID, "")
	switch {
	case err != nil:
		return nil, err
	case r.Terminal:
		return nil, toGRPC(fmt.Errorf("process with a terminal: %w", errdefs.ErrNotImplemented))
	case r.ExecID == "" || filepath.Base(r.ExecID) != r.ExecID || r.Spec == nil:
		return nil, toGRPC(fmt.Errorf("process %q: %w", r.ExecID, errdefs.ErrInvalidArgument))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.added[r.ExecID] != nil {
		return nil, toGRPC(fmt.Errorf("process %s: %w", r.ExecID, errdefs.ErrAlreadyExists))
	}
	t.added[r.ExecID] = newProcess(r.Stdin, r.Stdout, r.Stderr, r.Spec.Value)
	return &emptypb.Empty{}, nil
}

// Delete forgets a process that has ended or was never made, and with the first its sandbox.
// The OCI runtime's state goes with the bundle, which containerd removes; its control group
// is within sbench's, which sbench removes.
func (s *service) Delete(_ context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	t, p, err := s.find(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	pid, _ := p.state()
	if pid != 0 && !p.hasEnded() {
		return nil, toGRPC(fmt.Errorf("process %d has not ended: %w", pid, errdefs.ErrFailedPrecondition))
	}
	if r.ExecID == "" {
		if err := os.Remove(t.oci.bundle.file("runtime")); err != nil && !errors.Is(err, os.ErrNotExist) {
			return nil, toGRPC(err)
		}
		s.forget(r.ID)
	} else {
		t.mu.Lock()
		delete(t.added, r.ExecID)
		t.mu.Unlock()
	}
	answer := &taskapi.DeleteResponse{Pid: pid}
	if pid != 0 {
		answer.ExitStatus, answer.ExitedAt = p.status, timestamppb.New(p.ended)
	}
	return answer, nil
}

func (s *service) State(_ context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	t, p, err := s.find(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	pid, started := p.state()
	state := &taskapi.StateResponse{
		ID: r.ID, Bundle: string(t.oci.bundle), Pid: pid, Status: tasktypes.Status_CREATED,
		Stdin: p.stdin, Stdout: p.stdout, Stderr: p.stderr, ExecID: r.ExecID,
	}
	switch {
	case p.hasEnded():
		state.Status, state.ExitStatus, state.ExitedAt = tasktypes.Status_STOPPED, p.status, timestamppb.New(p.ended)
	case started:
		state.Status = tasktypes.Status_RUNNING
	}
	return state, nil
}

func (s *service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	_, p, err := s.find(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	select {
	case <-p.done:
		return &taskapi.WaitResponse{ExitStatus: p.status, ExitedAt: timestamppb.New(p.ended)}, nil
	case <-ctx.Done():
		return nil, toGRPC(ctx.Err())
	}
}

// Kill signals one process. The kernel kills a sandbox's others with its first, whose PID
// namespace it is; so All is no more than that.
func (s *service) Kill(_ context.Context, r *taskapi.KillRequest) (*emptypb.Empty, error) {
	_, p, err := s.find(r.ID, r.ExecID)
	if err == nil {
		err = toGRPC(p.signal(r.Signal))
	}
	return &emptypb.Empty{}, err
}

func (s *service) Pids(_ context.Context, r *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	t, _, err := s.find(r.ID, "")
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	answer := &taskapi.PidsResponse{}
	for _, p := range append(slices.Collect(maps.Values(t.added)), t.first) {
		if pid, _ := p.state(); pid != 0 && !p.hasEnded() {
			answer.Processes = append(answer.Processes, &tasktypes.ProcessInfo{Pid: pid})
		}
	}
	return answer, nil
}

func (s *service) Connect(_ context.Context, r *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	_, p, err := s.find(r.ID, "")
	if err != nil {
		return nil, err
	}
	pid, _ := p.state()
	return &taskapi.ConnectResponse{ShimPid: uint32(os.Getpid()), TaskPid: pid}, nil
}

// CloseIO has nothing to close: the process reads the caller's FIFO, whose end is the
// caller's to close.
func (s *service) CloseIO(context.Context, *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Shutdown does nothing, because there may be other sandboxes; see linger.
func (s *service) Shutdown(context.Context, *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

var errUnused = errgrpc.ToGRPC(fmt.Errorf("sbench does not use it: %w", errdefs.ErrNotImplemented))

func (s *service) Pause(context.Context, *taskapi.PauseRequest) (*emptypb.Empty, error) {
	return nil, errUnused
}

func (s *service) Resume(context.Context, *taskapi.ResumeRequest) (*emptypb.Empty, error) {
	return nil, errUnused
}

func (s *service) Checkpoint(context.Context, *taskapi.CheckpointTaskRequest) (*emptypb.Empty, error) {
	return nil, errUnused
}

func (s *service) ResizePty(context.Context, *taskapi.ResizePtyRequest) (*emptypb.Empty, error) {
	return nil, errUnused
}

func (s *service) Update(context.Context, *taskapi.UpdateTaskRequest) (*emptypb.Empty, error) {
	return nil, errUnused
}

func (s *service) Stats(context.Context, *taskapi.StatsRequest) (*taskapi.StatsResponse, error) {
	return nil, errUnused
}
