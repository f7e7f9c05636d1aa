package shim

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"

	taskapi "github.com/containerd/containerd/api/runtime/task/v2"
	tasktypes "github.com/containerd/containerd/api/types/task"
	"github.com/containerd/errdefs"
	"github.com/containerd/errdefs/pkg/errgrpc"
	"golang.org/x/sys/unix"
	"google.golang.org/protobuf/types/known/emptypb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/securebench/sbench/runtime/proc"
)

// killed is the exit status of a process that SIGKILL ended.
const killed = 128 + uint32(unix.SIGKILL)

// service implements the task API for the anchor, which the daemon calls, and for the
// sandboxes, which sbench calls. Calls for one sandbox exclude each other, except Kill and
// Wait; calls for different sandboxes never wait for each other.
type service struct {
	shutdown func()
	anchor   struct {
		id     string
		bundle bundle // "" until the daemon has created it
		self   *process
	}

	mu    sync.Mutex
	tasks map[string]*task
	ended bool // no sandbox is made any more
}

// newService returns the service of the server with the given anchor. The daemon's last call
// calls shutdown.
func newService(anchor string, shutdown func()) *service {
	s := &service{shutdown: shutdown, tasks: map[string]*task{}}
	s.anchor.id, s.anchor.self = anchor, newProcess("", "", "", nil)
	s.anchor.self.pid = os.Getpid()
	return s
}

// task is a sandbox.
type task struct {
	oci           ociRuntime
	owner         uint32 // of the standard streams
	outputNetwork string // see Options

	changing sync.Mutex // held by calls that execute the OCI runtime
	mu       sync.Mutex // guards what follows
	first    *process   // nil until it was created
	added    map[string]*process
	strays   bool  // there may be some; see reapStrays
	helpers  []int // of the OCI runtime, children of this process that end with the first
}

// Options are what Create needs besides the bundle, as JSON.
type Options struct {
	Program       string   `json:"program"`        // the OCI runtime, by path or by name; "" means runc
	Flags         []string `json:"flags"`          // its flags before the command
	Owner         uint32   `json:"owner"`          // of pipes that are standard streams; 0 leaves them
	OutputNetwork string   `json:"output_network"` // the path of a network namespace in which standard output is a socket; "" for a pipe
}

// find returns a sandbox, and in it the process of the given id: "" is the first. The anchor is
// no sandbox.
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
	if r.ID == s.anchor.id {
		return s.createAnchor(bundle(r.Bundle))
	}
	if r.Terminal || len(r.Rootfs) > 0 || r.Checkpoint != "" {
		return nil, toGRPC(fmt.Errorf("container with a terminal, mounts or a checkpoint: %w", errdefs.ErrNotImplemented))
	}
	var opts Options
	if err := json.Unmarshal(r.Options.GetValue(), &opts); err != nil {
		return nil, toGRPC(fmt.Errorf("options: %w: %w", errdefs.ErrInvalidArgument, err))
	}
	path, err := exec.LookPath(cmp.Or(opts.Program, "runc"))
	if err != nil {
		return nil, toGRPC(fmt.Errorf("OCI runtime: %w: %w", errdefs.ErrNotFound, err))
	}
	t := &task{oci: ociRuntime{path: path, flags: opts.Flags, bundle: bundle(r.Bundle), id: r.ID}, owner: opts.Owner, outputNetwork: opts.OutputNetwork, added: map[string]*process{}}
	t.changing.Lock()
	defer t.changing.Unlock()
	anchor, err := s.register(t)
	if err != nil {
		return nil, toGRPC(err)
	}
	p := newProcess(r.Stdin, r.Stdout, r.Stderr, nil)
	if err := t.create(ctx, anchor, p); err != nil {
		s.unregister(t)
		return nil, toGRPC(err)
	}
	return &taskapi.CreateTaskResponse{Pid: p.id()}, nil
}

func (s *service) createAnchor(b bundle) (*taskapi.CreateTaskResponse, error) {
	if err := errors.Join(os.Mkdir(b.file(notes), 0o700), proc.WriteFile(b.file(serverFile), os.Getpid())); err != nil {
		return nil, toGRPC(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.anchor.bundle = b
	return &taskapi.CreateTaskResponse{Pid: uint32(s.anchor.self.pid)}, nil
}

// register makes a sandbox known, and returns the anchor's bundle.
func (s *service) register(t *task) (bundle, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.anchor.bundle == "" || s.ended:
		return "", fmt.Errorf("the anchor was not created, or has ended: %w", errdefs.ErrFailedPrecondition)
	case t.oci.id == "" || filepath.Base(t.oci.id) != t.oci.id || !filepath.IsAbs(string(t.oci.bundle)):
		return "", fmt.Errorf("container %q with the bundle %q: %w", t.oci.id, t.oci.bundle, errdefs.ErrInvalidArgument)
	case s.tasks[t.oci.id] != nil:
		return "", fmt.Errorf("container %s: %w", t.oci.id, errdefs.ErrAlreadyExists)
	}
	s.tasks[t.oci.id] = t
	return s.anchor.bundle, nil
}

func (s *service) unregister(t *task) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.tasks, t.oci.id)
}

func (t *task) create(ctx context.Context, anchor bundle, p *process) error {
	std, err := t.openStdio(p)
	if err != nil {
		return err
	}
	defer std.close()
	if err := t.oci.note(anchor); err != nil {
		return err
	}
	pidFile := t.oci.bundle.file("first.pid")
	err = t.oci.run(ctx, std, "create", "--bundle", string(t.oci.bundle), "--pid-file", pidFile, t.oci.id)
	if err == nil {
		err = p.adopt(pidFile)
	}
	if err != nil {
		if left := t.oci.remove(); left != nil {
			return errors.Join(err, left) // the action "delete" tries again
		}
		return errors.Join(err, t.oci.forget(anchor))
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.first, t.helpers = p, t.oci.helpers(p.pid)
	return nil
}

func (s *service) Start(ctx context.Context, r *taskapi.StartRequest) (*taskapi.StartResponse, error) {
	t, p, err := s.find(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	switch {
	case p.started || p.hasEnded():
		err = fmt.Errorf("the process was started, or has ended: %w", errdefs.ErrFailedPrecondition)
	case r.ExecID == "":
		err = t.oci.release(ctx, p.done)
	default:
		err = t.add(ctx, r.ExecID, p)
	}
	if err != nil {
		return nil, toGRPC(err)
	}
	p.started = true
	return &taskapi.StartResponse{Pid: p.id()}, nil
}

// add starts a process beside the first.
func (t *task) add(ctx context.Context, id string, p *process) error {
	std, err := t.openStdio(p)
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
	t.added[r.ExecID], t.strays = newProcess(r.Stdin, r.Stdout, r.Stderr, r.Spec.Value), true
	return &emptypb.Empty{}, nil
}

// Delete waits for the end of a process, unless it was never made, and forgets it, and with
// the first its sandbox. The OCI runtime's state goes with the bundle, which sbench removes; its
// control group is within sbench's, which sbench removes.
func (s *service) Delete(ctx context.Context, r *taskapi.DeleteRequest) (*taskapi.DeleteResponse, error) {
	if r.ID == s.anchor.id {
		if _, status := s.anchorState(); status == tasktypes.Status_RUNNING { // the daemon would end this process next
			return nil, toGRPC(fmt.Errorf("the anchor has not ended: %w", errdefs.ErrFailedPrecondition))
		}
		return deleted(s.anchor.self), nil
	}
	t, p, err := s.find(r.ID, r.ExecID)
	if err != nil {
		return nil, err
	}
	t.changing.Lock()
	defer t.changing.Unlock()
	if err := t.awaitEnd(ctx, p); err != nil {
		return nil, toGRPC(err)
	}
	if r.ExecID == "" {
		if err := t.oci.forget(s.anchor.bundle); err != nil {
			return nil, toGRPC(err)
		}
		s.unregister(t)
	} else {
		t.mu.Lock()
		delete(t.added, r.ExecID)
		t.mu.Unlock()
	}
	return deleted(p), nil
}

func deleted(p *process) *taskapi.DeleteResponse {
	answer := &taskapi.DeleteResponse{Pid: p.id()}
	if p.hasEnded() {
		answer.ExitStatus, answer.ExitedAt = p.status, timestamppb.New(p.ended)
	}
	return answer
}

// Wait waits for the end of a process. While the anchor is being ended, all processes of sandboxes
// are killed, and Wait returns an error instead of their status.
func (s *service) Wait(ctx context.Context, r *taskapi.WaitRequest) (*taskapi.WaitResponse, error) {
	p := s.anchor.self
	if r.ID != s.anchor.id {
		var err error
		if _, p, err = s.find(r.ID, r.ExecID); err != nil {
			return nil, err
		}
	}
	select {
	case <-p.done:
		if p != s.anchor.self && s.isEnding() {
			return nil, toGRPC(fmt.Errorf("the anchor was killed: %w", errdefs.ErrUnavailable))
		}
		if p.err != nil {
			return nil, toGRPC(fmt.Errorf("wait for process %d: %w: %w", p.pid, errdefs.ErrUnavailable, p.err))
		}
		return &taskapi.WaitResponse{ExitStatus: p.status, ExitedAt: timestamppb.New(p.ended)}, nil
	case <-ctx.Done():
		return nil, toGRPC(ctx.Err())
	}
}

// Kill signals one process. When the first process of a sandbox ends, the kernel kills all others in
// its PID namespace. With All, it signals all processes but the first of a sandbox with a kernel of its
// own; see signalOthers. To kill the anchor ends all sandboxes.
func (s *service) Kill(ctx context.Context, r *taskapi.KillRequest) (*emptypb.Empty, error) {
	if r.ID == s.anchor.id {
		go s.end()
		return &emptypb.Empty{}, nil
	}
	t, p, err := s.find(r.ID, r.ExecID)
	switch {
	case err != nil:
	case r.All:
		t.changing.Lock()
		defer t.changing.Unlock()
		err = toGRPC(t.oci.signalOthers(ctx, r.Signal))
	default:
		err = toGRPC(p.signal(r.Signal))
	}
	return &emptypb.Empty{}, err
}

// end kills the processes of all sandboxes; once they have ended, so has the anchor.
func (s *service) end() {
	s.mu.Lock()
	tasks, again := slices.Collect(maps.Values(s.tasks)), s.ended
	s.ended = true
	s.mu.Unlock()
	if again {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), removal)
	defer cancel()
	var each sync.WaitGroup
	for _, t := range tasks {
		each.Go(func() {
			t.changing.Lock() // it may be about to be created
			defer t.changing.Unlock()
			if p := t.first; p != nil && p.signal(uint32(unix.SIGKILL)) == nil {
				_ = t.awaitEnd(ctx, p) // it was killed, and ends later if it waits for a disk
			}
		})
	}
	each.Wait()
	s.anchor.self.status, s.anchor.self.ended = killed, time.Now()
	close(s.anchor.self.done)
}

func (s *service) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ended
}

// anchorState returns the anchor's bundle and status: "" and UNKNOWN before it was created.
func (s *service) anchorState() (bundle, tasktypes.Status) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.anchor.self.hasEnded():
		return s.anchor.bundle, tasktypes.Status_STOPPED
	case s.anchor.bundle != "":
		return s.anchor.bundle, tasktypes.Status_RUNNING
	}
	return "", tasktypes.Status_UNKNOWN
}

// State tells the daemon of the anchor.
func (s *service) State(_ context.Context, r *taskapi.StateRequest) (*taskapi.StateResponse, error) {
	if r.ID != s.anchor.id {
		return nil, errUnused
	}
	p := s.anchor.self
	at, status := s.anchorState()
	state := &taskapi.StateResponse{ID: r.ID, Bundle: string(at), Pid: uint32(p.pid), Status: status}
	if status == tasktypes.Status_STOPPED {
		state.ExitStatus, state.ExitedAt = p.status, timestamppb.New(p.ended)
	}
	return state, nil
}

// Pids tells the daemon, which asks after a restart, that the anchor exists.
func (s *service) Pids(context.Context, *taskapi.PidsRequest) (*taskapi.PidsResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := &taskapi.PidsResponse{}
	if s.anchor.bundle != "" {
		answer.Processes = append(answer.Processes, &tasktypes.ProcessInfo{Pid: uint32(s.anchor.self.pid)})
	}
	return answer, nil
}

// Connect tells the daemon of the anchor.
func (s *service) Connect(context.Context, *taskapi.ConnectRequest) (*taskapi.ConnectResponse, error) {
	pid := uint32(s.anchor.self.pid)
	return &taskapi.ConnectResponse{ShimPid: pid, TaskPid: pid}, nil
}

// CloseIO has nothing to close: the process reads a pipe of the caller, who closes its other end.
func (s *service) CloseIO(context.Context, *taskapi.CloseIORequest) (*emptypb.Empty, error) {
	return &emptypb.Empty{}, nil
}

// Shutdown ends the server. It is the daemon's last call, after the anchor's deletion.
func (s *service) Shutdown(context.Context, *taskapi.ShutdownRequest) (*emptypb.Empty, error) {
	s.shutdown()
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
