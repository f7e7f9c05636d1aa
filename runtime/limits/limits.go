// Package limits bounds what sandboxes use: with control groups, or with a watchdog where the
// control groups cannot bound both memory and processes.
//
// An [Enforcer] finds out once which limits the kernel can enforce on this host. It then has, for
// each sandbox, the group of the sandbox's processes and the limits of the specification.
package limits

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/volume"
	"github.com/securebench/sbench/runtime/watchdog"
)

// maxSocketBytes bounds what a sandbox may queue in sockets where that does not count as its
// memory (cgroup v1). It is enough for lo, the only interface.
const maxSocketBytes = 64 << 20

// A Group finds, counts, suspends and kills the processes of a sandbox, except the one with the pid
// spare. It is a control group or a group of the watchdog.
type Group interface {
	// Pids returns the processes of the group.
	Pids() ([]int, error)
	// Signal sends a signal to every process but spare.
	Signal(sig unix.Signal, spare int) error
	// KillAll kills every process but spare, and returns once they have ended.
	KillAll(ctx context.Context, spare int) error
	// Freeze suspends all processes and returns once none runs, or resumes them.
	Freeze(ctx context.Context, on bool) error
	// Stats returns what the group has used so far.
	Stats() (cgroup.Stats, error)
	// Remove removes the group, which must have no process.
	Remove() error
}

// Kill kills every process of the group but spare within the given time, even if ctx is cancelled. A spare
// of 0 spares none.
func Kill(ctx context.Context, g Group, spare int, within time.Duration) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), within)
	defer cancel()
	return g.KillAll(ctx, spare)
}

// An Enforcer knows which limits this host's kernel enforces. Its methods are safe for concurrent
// use. Make one with [New].
type Enforcer struct {
	cgroups cgroup.Hierarchies
	watch   watchdog.Watchdog // used where cgroups cannot bound memory and processes
	limits  []Limit
}

// New returns an enforcer that uses the control groups. Each of the limits memory, swap, pids and
// cpu may be missing if allowDegraded has it. The limit disk may always be missing: a volume in
// memory is bounded, too.
func New(cgroups cgroup.Hierarchies, allowDegraded []string) *Enforcer {
	return &Enforcer{cgroups: cgroups, limits: findLimits(cgroups, allowDegraded)}
}

// watched reports whether a watchdog replaces the sandboxes' cgroups, which could not bound
// both memory and processes.
func (e *Enforcer) watched() bool { return !e.cgroups.Bounds() }

// Group returns the group at an absolute path within the hierarchies. A watchdog adds the result
// of files, unless it is nil, to the memory of the processes.
func (e *Enforcer) Group(path string, l runtime.Limits, files func() int64) Group {
	if e.watched() {
		return e.watch.Group(l, files)
	}
	return e.cgroups.Group(path)
}

// A Limit is a limit that every sandbox should have.
type Limit struct {
	Name    string // memory, swap, pids, cpu or disk
	Missing bool   // this host's kernel cannot enforce it for a sandbox
	Allowed bool   // it may be missing
	Instead string // what bounds a sandbox if the limit is missing; "" for nothing
	Cure    string
}

// Limits lists all limits.
func (e *Enforcer) Limits() []Limit { return e.limits }

func findLimits(cgroups cgroup.Hierarchies, allowDegraded []string) []Limit {
	have := []string{"swap"} // without control groups, the watchdog counts it as memory
	if cgroups.Bounds() {
		have = cgroups.Controllers()
	}
	if volume.Images() {
		have = append(have, "disk")
	}
	controller := "enable its controller in the kernel (cgroup_enable=memory, CONFIG_CFS_BANDWIDTH), and mount it"
	if lack := cgroups.Lack(); lack.Cure != "" {
		controller = lack.Cure
	}
	all := []Limit{
		{Name: "memory", Instead: "a watchdog kills what uses more", Cure: controller},
		{Name: "swap", Cure: "boot with swapaccount=1, or turn swap off"},
		{Name: "pids", Instead: "the kernel counts them for the sandbox's user namespace", Cure: controller},
		{Name: "cpu", Cure: controller},
		{Name: "disk", Instead: "large volumes live in memory, which is bounded, too", Cure: "run as root, with e2fsprogs installed and /dev/loop-control there"},
	}
	for i := range all {
		l := &all[i]
		l.Missing, l.Allowed = !slices.Contains(have, l.Name), l.Name == "disk" || slices.Contains(allowDegraded, l.Name)
	}
	return all
}

// Degraded lists the limits that this host's kernel cannot enforce for a sandbox and that may be missing;
// see [New]. The error names all other missing limits.
func (e *Enforcer) Degraded() (degraded []string, err error) {
	var refused, cures []string
	for _, l := range e.limits {
		switch {
		case l.Missing && l.Allowed:
			degraded = append(degraded, l.Name)
		case l.Missing:
			refused = append(refused, l.Name)
			if !slices.Contains(cures, l.Cure) {
				cures = append(cures, l.Cure)
			}
		}
	}
	if len(refused) > 0 {
		err = fmt.Errorf("the kernel cannot enforce these limits for a sandbox here: %s. Remedy: %s. "+
			"To run without them, list them in runtime.allow_degraded or --allow-degraded", strings.Join(refused, ", "), strings.Join(cures, "; "))
	}
	return degraded, err
}

// Spec returns the limits of a specification, without those that [Enforcer.Degraded] allows to be missing. group
// is the path given to [Enforcer.Group]. beside is how many processes another sandbox with the same user namespace may
// have. Without control groups, the kernel counts both sandboxes' processes together.
func (e *Enforcer) Spec(l runtime.Limits, group string, beside int64) (oci.Limits, error) {
	degraded, err := e.Degraded()
	if err != nil {
		return oci.Limits{}, err
	}
	if e.watched() {
		return oci.Limits{WithoutCgroup: true, Processes: uint64(l.Pids + beside), Data: dataBound(l.Memory)}, nil
	}
	limits := oci.Limits{Cgroup: e.cgroups.Group(group).Path(), Memory: l.Memory, Pids: l.Pids, CPUs: l.CPUs, WithoutSwap: slices.Contains(degraded, "swap")}
	if slices.Contains(degraded, "cpu") {
		limits.CPUs, limits.WithoutCPUs = 0, true
	}
	return limits, nil
}

// Prepare verifies that the kernel has the limits of a sandbox's group, sets the limit on sockets, which
// OCI runtimes do not set, and makes the group count how often the memory limit is reached. It is called
// before the first process of the group executes its program.
func (e *Enforcer) Prepare(group Group, want runtime.Limits) error {
	g, ok := group.(*cgroup.Group)
	if !ok {
		return nil
	}
	degraded, err := e.Degraded()
	if err != nil {
		return err
	}
	if slices.Contains(degraded, "cpu") {
		want.CPUs = 0
	}
	return errors.Join(g.CountOOMs(), g.Verify(want, !slices.Contains(degraded, "swap")), g.LimitSockets(min(want.Memory, maxSocketBytes)))
}

// dataBound returns how many bytes a process of a watched sandbox may map. That is not the sandbox's memory
// limit, which the watchdog enforces: it keeps one process from taking the host's memory between two readings,
// and is generous, since programs reserve more memory than they use.
func dataBound(memory int64) uint64 {
	const least = 1 << 30
	var host unix.Sysinfo_t
	data := max(4*uint64(memory), least)
	if unix.Sysinfo(&host) == nil {
		data = max(data, uint64(host.Totalram)*uint64(host.Unit)/2)
	}
	return data
}
