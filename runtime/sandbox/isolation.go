package sandbox

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/rootfs"
	"github.com/securebench/sbench/runtime/task"
)

// A Kind is how an engine makes the sandboxes of one isolation.
type Kind struct {
	Driver *task.Driver
	IDs    IDs
}

// An isolation knows what differs between the kinds of isolation, for the rest of the package. In a
// container, sbench sees every process and mount of the sandbox. With gVisor, it sees the processes of
// the kernel that runsc brings: the first process is that kernel, and its mounts are not the sandbox's.
type isolation runtime.Isolation

const (
	container = isolation(runtime.Container)
	gvisor    = isolation(runtime.GVisor)
)

// pauseMode returns the mode of the pause program. If a process could read its program, other processes
// of its user could trace it and open its descriptors (ptrace(2), PR_SET_DUMPABLE), and could then go on in
// it after their own end. gVisor reads what it executes.
func (i isolation) pauseMode() os.FileMode {
	if i == gvisor {
		return 0o555
	}
	return 0o111
}

// kernelThreads bounds the threads of gVisor's own, which count as the sandbox's.
const kernelThreads = 128

// limits returns what the control group of a sandbox with the limits l bounds.
func (i isolation) limits(l runtime.Limits) runtime.Limits {
	if i == gvisor {
		l.Pids += kernelThreads
	}
	return l
}

// idleStreams returns the streams of a pause program. The OCI runtime gives the host's /dev/null to a
// container that has no other, or opens the container's own; runsc does not open it.
func (i isolation) idleStreams() *task.Streams {
	if i == gvisor {
		return task.NewStreams(runtime.Process{Stdin: strings.NewReader(""), OutputBytes: 1})
	}
	return &task.Streams{}
}

// configure adds to a specification a sandbox's ids, and what the kind of isolation needs.
func (i isolation) configure(c *oci.Config, n *enclosure) {
	if i != gvisor {
		n.ids.configure(c, n.kind.IDs.Mappings, n.root.Devices())
		return
	}
	c.OwnKernel, c.Mappings = true, n.ids.mappings()
	tmp := filepath.Join(n.root.Root(), "tmp")
	// runsc hides an empty /tmp that nothing is mounted on with a file system of its own. A link would
	// lead to a directory of the host.
	if info, err := os.Lstat(tmp); n.cfg.Machine && err == nil && info.IsDir() {
		c.Binds = append(c.Binds, oci.Bind{Source: tmp, Dest: "/tmp", Writable: true})
	}
}

// seal checks the mounts of the first process, which does not run the sandbox's program yet, and seals
// those that are not as they were asked for.
func (i isolation) seal(root *rootfs.FS, pid int) error {
	if i == gvisor {
		return nil
	}
	return root.Check(pid)
}

// open opens a process that the OCI runtime has made. first is the id of the sandbox's first process; 0 if
// the process is the first one.
func (i isolation) open(p *task.Process, first int) (*process, error) {
	opened := &process{Process: p, pidfd: -1, byStatus: i == gvisor}
	if i == gvisor && first != 0 { // what the host sees only waits for it
		return opened, nil
	}
	if fd, err := unix.PidfdOpen(p.PID, 0); err == nil { // fails for the id 0
		opened.pidfd = fd
	}
	if first != 0 && !proc.SharesNamespace(p.PID, first, "pid") { // it has ended, and its id may be another's
		return opened, opened.close()
	}
	return opened, nil
}

// processes returns what signals and kills the processes of a sandbox.
func (i isolation) processes(s *Sandbox) limits.Group {
	if i == gvisor {
		return guest{s.group, s}
	}
	return s.group
}

// A guest is the processes of a sandbox with gVisor. On the host, the first process is gVisor's kernel. A
// process to spare is therefore always the first process inside the sandbox, whatever its id on the host.
type guest struct {
	limits.Group
	sandbox *Sandbox
}

// Signal implements [limits.Group]. With none spared, only the first process gets the signal.
func (g guest) Signal(sig unix.Signal, spare int) error {
	ctx, cancel := g.sandbox.engine.platform.Conn.Cleanup(context.Background())
	defer cancel()
	err := g.sandbox.first.Signal(ctx, sig, spare != 0)
	if spare != 0 && ctx.Err() == nil {
		return nil // there were some, or there were none
	}
	return err
}

// guestRounds bounds how often KillAll looks for processes that were started meanwhile.
const guestRounds = 20

// KillAll implements [limits.Group]. With none to spare, the end of the kernel ends all processes.
func (g guest) KillAll(ctx context.Context, spare int) error {
	if spare == 0 {
		return g.Group.KillAll(ctx, 0)
	}
	var err error
	for range guestRounds {
		if err = g.sandbox.first.Signal(ctx, unix.SIGKILL, true); err == nil || ctx.Err() != nil {
			break
		}
		time.Sleep(time.Millisecond)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("the processes beside the first: %w", err), g.Group.KillAll(ctx, 0))
	}
	return nil
}

// kind returns how a sandbox is made. Its isolation is least or, if that is stricter, the engine's.
func (e *Engine) kind(least runtime.Isolation) (isolation, Kind, error) {
	i := max(least, e.least)
	k, ok := e.kinds[i]
	if !ok {
		return "", k, fmt.Errorf("%w: isolation %q was not tried at the start of the run", runtime.ErrInvalid, i)
	}
	return isolation(i), k, nil
}
