package shim

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// firstID is the id, in a sandbox with a kernel of its own, of the first process.
const firstID = 1

// signalOthers signals all processes of a sandbox but the first. It is for OCI runtimes that bring a
// kernel of their own, whose processes the host does not see: gVisor's. The error is
// FailedPrecondition if there were any.
func (r ociRuntime) signalOthers(ctx context.Context, signal uint32) error {
	ids, err := r.guestProcesses(ctx)
	if err != nil {
		return err
	}
	others := 0
	for _, id := range ids {
		if id == firstID {
			continue
		}
		others++
		_ = r.run(ctx, stdio{}, "kill", "--pid", strconv.Itoa(id), r.id, strconv.Itoa(int(signal))) // it may have ended
	}
	if others > 0 {
		return fmt.Errorf("%d processes have been signaled: %w", others, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// guestProcesses lists the processes of a sandbox by their ids in it.
func (r ociRuntime) guestProcesses(ctx context.Context) (ids []int, err error) {
	out, err := os.OpenFile(r.bundle.file("processes.json"), os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = out.Close() }()
	if err := r.run(ctx, stdio{out: out}, "ps", "--format", "json", r.id); err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.NewSectionReader(out, 0, 1<<20))
	if err == nil {
		err = json.Unmarshal(text, &ids)
	}
	if err != nil {
		return nil, fmt.Errorf("processes of the sandbox: %w", err)
	}
	return ids, nil
}

// helpers returns those children of this process that belong to the OCI runtime: gVisor's runsc has one
// that opens files for the sandbox, and names the container in its last argument.
func (r ociRuntime) helpers(first int) (pids []int) {
	if len(r.flags) == 0 { // neither runc nor crun leave one
		return nil
	}
	for _, pid := range children() {
		if args := proc.Args(pid); pid != first && len(args) > 0 && args[len(args)-1] == r.id {
			pids = append(pids, pid)
		}
	}
	return pids
}

// reapHelpers reaps the helpers that have ended, and reports whether none is left.
func (t *task) reapHelpers() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	left := t.helpers[:0]
	for _, pid := range t.helpers {
		if reaped, err := unix.Wait4(pid, nil, unix.WNOHANG, nil); reaped == 0 && err == nil {
			left = append(left, pid)
		}
	}
	t.helpers = left
	return len(left) == 0
}
