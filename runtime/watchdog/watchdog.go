// Package watchdog enforces limits on sandboxes where control groups are not available, as
// for an ordinary user without delegation. Many times a second it reads the memory of the
// processes in each sandbox's PID namespace. If a sandbox exceeds its limits, the watchdog kills
// the sandbox's processes.
//
// That is weaker than a kernel limit: between two readings a sandbox can exceed its limit by
// as much memory as its processors can touch in that time.
package watchdog

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/proc"
)

// interval is the time between two readings, in which a core can touch about 100 MB.
const interval = 40 * time.Millisecond

// nearly is the fraction, as 1/nearly, of a group's process limit that may be free while the
// group still counts as near the limit. Processes start and end during the count, so a full
// group rarely shows all of them.
const nearly = 16

// emptyPasses is how many passes in a row must find no process for a group to count as
// empty: a process that keeps forking and exiting has a new id each time, and can escape a
// single pass.
const emptyPasses = 3

// A Watchdog watches groups. The zero value is ready to use. Its methods and those
// of its groups are safe for concurrent use.
type Watchdog struct {
	mu      sync.Mutex
	groups  map[string]*Group // by their PID namespace
	running bool
}

// A Group is the processes of one PID namespace. It has none until [Group.Attach]. Make one
// with [Watchdog.Group].
type Group struct {
	w      *Watchdog
	limits runtime.Limits
	held   func() int64

	mu    sync.Mutex
	space string // the PID namespace; "" until attached
	first int    // its first process; 0 until attached
	// open keeps the namespace alive, so that no other is taken for it.
	open  *os.File
	stats cgroup.Stats
	ended time.Duration         // CPU time of ended processes
	seen  map[int]time.Duration // CPU time of the processes in the last reading
	near  bool
}

// Group returns an unattached group with l's limits on memory and processes, where 0 is no
// limit. held, unless nil, returns how many bytes the sandbox uses besides its processes'
// memory, such as files in memory, which count toward the limit. The watchdog's goroutine calls
// it.
func (w *Watchdog) Group(l runtime.Limits, held func() int64) *Group {
	if held == nil {
		held = func() int64 { return 0 }
	}
	return &Group{w: w, limits: l, held: held, seen: map[int]time.Duration{}}
}

// Attach starts watching the PID namespace whose first process is pid.
func (g *Group) Attach(pid int) error {
	space, err := proc.Namespace(pid, "pid")
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	if own, err := proc.Namespace(0, "pid"); err != nil || own == space {
		return fmt.Errorf("watch process %d: it has no pid namespace of its own (%v)", pid, err)
	}
	open, err := os.Open(fmt.Sprintf("/proc/%d/ns/pid", pid))
	if err != nil {
		return fmt.Errorf("watch process %d: %w", pid, err)
	}
	g.mu.Lock()
	g.space, g.first, g.open = space, pid, open
	g.mu.Unlock()
	g.w.add(space, g)
	return nil
}

func (w *Watchdog) add(space string, g *Group) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.groups == nil {
		w.groups = map[string]*Group{}
	}
	w.groups[space] = g
	if !w.running {
		w.running = true
		go w.watch()
	}
}

// Remove stops watching. From then on the group has no processes; those alive are not
// killed.
func (g *Group) Remove() error {
	g.mu.Lock()
	space, open := g.space, g.open
	g.space, g.open = "", nil
	g.mu.Unlock()
	if open == nil {
		return nil
	}
	g.w.mu.Lock()
	delete(g.w.groups, space)
	g.w.mu.Unlock()
	return open.Close()
}

// watch runs as long as there are groups.
func (w *Watchdog) watch() {
	for {
		w.mu.Lock()
		if len(w.groups) == 0 {
			w.running = false
			w.mu.Unlock()
			return
		}
		groups := maps.Clone(w.groups)
		w.mu.Unlock()
		found, err := processes(func(space string) bool { return groups[space] != nil })
		if err == nil { // otherwise the next reading may succeed
			for space, g := range groups {
				g.check(found[space])
			}
		}
		time.Sleep(interval)
	}
}

// check records a reading, and kills processes if they exceed the memory limit.
func (g *Group) check(ps []process) {
	var threads, memory int64
	for _, p := range ps {
		threads += p.threads
		memory += p.memory
	}
	if g.limits.Memory > 0 {
		memory += g.held()
		if memory > g.limits.Memory { // shared memory was counted once per process
			memory = g.held() + exactMemory(ps)
		}
	}
	g.mu.Lock()
	g.count(ps, threads, memory)
	g.mu.Unlock()
	if g.limits.Memory <= 0 || memory <= g.limits.Memory || len(ps) == 0 {
		return
	}
	// Kill the largest first, until the rest is within the limit.
	slices.SortFunc(ps, func(a, b process) int { return cmp.Compare(b.memory, a.memory) })
	for _, p := range ps {
		if memory <= g.limits.Memory {
			break
		}
		if memory -= p.memory; !p.dead && proc.Signal(p.pid, unix.SIGKILL, func() bool { return g.has(p.pid) }) == nil {
			g.outOfMemory()
		}
	}
}

func (g *Group) outOfMemory() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.stats.OOMKills++
}

// Final takes a last reading after all processes of the group have ended: one that ended
// between two readings may have left more in held than the memory limit.
func (g *Group) Final() {
	if g.limits.Memory > 0 && g.held() > g.limits.Memory {
		g.outOfMemory()
	}
}

// count records what Stats and NearPids return. The caller holds the lock.
func (g *Group) count(ps []process, threads, memory int64) {
	g.stats.PeakMemory, g.stats.PeakPids = max(g.stats.PeakMemory, memory), max(g.stats.PeakPids, threads)
	if g.limits.Pids > 0 && threads >= g.limits.Pids {
		g.stats.PidsDenied++ // the group is full
	}
	g.near = g.near || g.limits.Pids > 0 && threads >= g.limits.Pids-g.limits.Pids/nearly
	now := make(map[int]time.Duration, len(ps))
	for _, p := range ps {
		now[p.pid] = p.cpu
	}
	for pid, used := range g.seen {
		if _, alive := now[pid]; !alive {
			g.ended += used
		}
	}
	g.seen = now
}

// Stats returns what the readings have found. They miss peaks between two readings, and CPU
// time that a process uses after its last reading. The error is always nil.
func (g *Group) Stats() (cgroup.Stats, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.stats
	s.CPU = g.ended
	for _, used := range g.seen {
		s.CPU += used
	}
	s.OOMs = s.OOMKills
	return s, nil
}

// NearPids reports whether the group has been at or close to its process limit.
func (g *Group) NearPids() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.near
}

// Pids lists the living processes of the group. It reads as little as possible about each, since
// they may be many and forking.
func (g *Group) Pids() ([]int, error) {
	var pids []int
	err := proc.Each(func(pid int) {
		if g.has(pid) && proc.Alive(pid) {
			pids = append(pids, pid)
		}
	})
	return pids, err
}

// Signal sends sig to every process of the group except spare (0 spares none).
// Processes that have ended are not an error.
func (g *Group) Signal(sig unix.Signal, spare int) error {
	pids, err := g.Pids()
	if err != nil {
		return err
	}
	return proc.SignalAll(pids, spare, sig, g.has)
}

// Freeze stops every process of the group and returns once none runs, or lets them continue. They can notice it
// (SIGCHLD, SIGCONT).
func (g *Group) Freeze(ctx context.Context, on bool) error {
	if !on {
		return g.Signal(unix.SIGCONT, 0)
	}
	// A process can be resumed by another that stops afterwards. But if two passes see the same threads stopped, and
	// none has run in between, then none ran when the second pass began, and so none can resume another.
	before := ""
	for same := 0; same < emptyPasses; time.Sleep(time.Millisecond) {
		if ctx.Err() != nil {
			return fmt.Errorf("processes do not stop: %w", context.Cause(ctx))
		}
		pids, err := g.Pids()
		stopped, now := true, ""
		for _, pid := range pids {
			threads, all := proc.Stopped(pid)
			stopped, now = stopped && all, now+threads
		}
		if same++; now != before {
			same, before = 0, now
		}
		if err == nil && !stopped {
			same, err = 0, g.Signal(unix.SIGSTOP, 0)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// has reports whether a process is in the group's PID namespace.
func (g *Group) has(pid int) bool {
	ours, _ := g.attached()
	space, err := proc.Namespace(pid, "pid")
	return err == nil && space == ours
}

// attached returns the PID namespace, "" before Attach and after Remove, and its first process,
// 0 before Attach.
func (g *Group) attached() (space string, first int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.space, g.first
}

// KillAll kills every process of the group except spare (0 spares none) and waits until they
// have ended or ctx is done. A killed process cannot fork, so a few passes suffice however
// fast the processes fork.
func (g *Group) KillAll(ctx context.Context, spare int) error {
	// When the first process ends, the kernel kills all others: they need not be found.
	_, first := g.attached()
	if err := proc.SignalAll([]int{first}, spare, unix.SIGKILL, g.has); err != nil {
		return err
	}
	left := func() (pids []int, err error) {
		for pass := 0; pass < emptyPasses && len(pids) == 0 && err == nil; pass++ {
			pids, err = g.Pids()
			pids = slices.DeleteFunc(pids, func(p int) bool { return p == spare })
			if first == 0 || !proc.Alive(first) { // the first process is gone only after all the others are (pid_namespaces(7))
				break
			}
		}
		return pids, err
	}
	return proc.KillAll(ctx, spare, left, func(_ int, left []int) error { return proc.SignalAll(left, 0, unix.SIGKILL, g.has) })
}
