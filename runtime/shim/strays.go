package shim

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
)

// awaitEnd waits for the end of a process, unless it was never made, and with the first process for the
// end of the OCI runtime's helpers. The caller holds changing.
func (t *task) awaitEnd(ctx context.Context, p *process) error {
	pid := p.id()
	if pid == 0 {
		return nil
	}
	ended := p.done
	for wait := time.Millisecond; ; wait = min(2*wait, 100*time.Millisecond) {
		t.reapStrays()
		if p.hasEnded() && (len(p.spec) > 0 || t.reapHelpers()) {
			return nil
		}
		select {
		case <-ended:
			ended = nil
		case <-ctx.Done():
			return fmt.Errorf("process %d has not ended: %w", pid, errdefs.ErrFailedPrecondition)
		case <-time.After(wait):
		}
	}
}

// reapStrays reaps those children of this process in the sandbox's PID namespace that are none of
// its known processes. An OCI runtime that is killed while it adds a process leaves such children, and the
// namespace does not end before they do (pid_namespaces(7)). The caller holds changing, so that no process is
// about to become known.
func (t *task) reapStrays() {
	t.mu.Lock()
	first, strays := t.first, t.strays
	t.mu.Unlock()
	if !strays || first == nil || first.namespace == "" {
		return
	}
	known := t.living()
	for _, pid := range children() {
		if space, _ := proc.Namespace(pid, "pid"); !slices.Contains(known, pid) && space == first.namespace {
			reapThreadsOf(pid)
			_, _ = unix.Wait4(pid, nil, unix.WNOHANG|unix.WALL, nil) // if it has not ended, then later
		}
	}
}

// After each pass, reapThreads rests for threadsRest times as long as the pass took, because
// sandboxes can cause signals without end: at least threadsDelay, so that one pass serves many
// signals, and at most threadsWait.
const (
	threadsDelay = 20 * time.Millisecond
	threadsRest  = 30
	threadsWait  = time.Second
)

// reapThreads reaps the ended threads that this process traces, each time that childEnded gets
// SIGCHLD. A thread of a child can make this process its tracer (ptrace(2), PTRACE_TRACEME), and
// the child does not end before the thread is reaped.
func (s *service) reapThreads(childEnded <-chan os.Signal) {
	delay := threadsDelay
	for range childEnded {
		time.Sleep(delay)
		begun := time.Now()
		s.mu.Lock()
		tasks := slices.Collect(maps.Values(s.tasks))
		s.mu.Unlock()
		for _, t := range tasks {
			for _, pid := range t.living() {
				reapThreadsOf(pid)
			}
		}
		delay = min(max(threadsDelay, threadsRest*time.Since(begun)), threadsWait)
	}
}

func reapThreadsOf(pid int) {
	threads, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	if err != nil {
		return // the process has been reaped
	}
	for _, entry := range threads {
		if tid, err := strconv.Atoi(entry.Name()); err == nil && tid != pid {
			_, _ = unix.Wait4(tid, nil, unix.WNOHANG|unix.WALL, nil) // fails unless it is traced
		}
	}
}

// living returns the ids of the sandbox's known processes that have not ended.
func (t *task) living() (pids []int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := slices.Collect(maps.Values(t.added))
	if t.first != nil {
		all = append(all, t.first)
	}
	for _, p := range all {
		if pid := p.id(); pid != 0 && !p.hasEnded() {
			pids = append(pids, int(pid))
		}
	}
	return pids
}

// children returns the ids of this process's children.
func children() (pids []int) {
	lists, _ := filepath.Glob("/proc/self/task/*/children") // the pattern is valid
	for _, list := range lists {
		text, err := os.ReadFile(list)
		if err != nil {
			continue // the thread has ended, and its children are another's
		}
		for field := range strings.FieldsSeq(string(text)) {
			if pid, err := strconv.Atoi(field); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
