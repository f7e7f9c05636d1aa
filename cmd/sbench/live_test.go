package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/google/go-cmp/cmp"
	"github.com/mattn/go-runewidth"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// after returns e as an event that many seconds after the first.
func after(s float64, e run.Event) run.Event {
	e.Time = time.Unix(1_000_000, 0).Add(time.Duration(s * float64(time.Second)))
	return e
}

func shown(c canvas, s float64, events ...run.Event) []string {
	var b board
	for _, e := range events {
		b.add(e)
	}
	return b.lines(after(s, run.Event{}).Time, c)
}

func begin(tasks, attempts int) run.Event {
	return after(0, run.Event{Kind: run.RunStart, Tasks: tasks, Attempts: attempts})
}

func TestBoard(t *testing.T) {
	start := func(s float64, task string, resumed int) run.Event {
		return after(s, run.Event{Kind: run.TaskStart, Task: task, Attempt: 1, Resumed: resumed})
	}
	at := func(s float64, kind run.Kind, task string) run.Event {
		return after(s, run.Event{Kind: kind, Task: task, Attempt: 1})
	}
	done := func(task string, status record.Status, again bool) run.Event {
		return after(9, run.Event{Kind: run.TaskDone, Task: task, Attempt: 1, Status: status, Again: again})
	}
	failure := func(task, message string) run.Event {
		return after(9, run.Event{Kind: run.TaskDone, Task: task, Attempt: 1, Status: record.Failed, Reason: "tests_failed", FailureMessage: message})
	}
	for _, test := range []struct {
		name   string
		rows   int
		events []run.Event
		want   []string
	}{
		{"images", 9, []run.Event{
			after(0, run.Event{Kind: run.ImagePull, Detail: "a:1"}), after(1, run.Event{Kind: run.ImagePull, Detail: "a:1: done"}),
			after(2, run.Event{Kind: run.ImagePull, Detail: "b:2"}),
		}, []string{"images   [======>------] 1/2  10s  b:2"}},
		{"nothing yet", 9, []run.Event{begin(4, 4)}, []string{"attempts [------------------] 0/4  10s", "  0 passed  0 failed  0 error", "  0 pending"}},
		{"phases", 9, []run.Event{
			begin(4, 4), start(1, "a", 0), at(2, run.ProducerStart, "a"), start(2, "b", 0), at(2, run.ProducerStart, "b"), at(4, run.VerifierStart, "b"),
			start(5, "c", 0), start(5, "d", 0), done("d", record.Error, true),
		}, []string{
			"attempts [------------------] 0/4  10s", "  0 passed  0 failed  0 error", "  0 pending  1 retried",
			"  harness      9s  a", "  verifier     8s  b", "  starting     5s  c", "  waiting      5s  d",
		}},
		{"verdicts", 9, []run.Event{
			begin(5, 5), start(1, "a", 0), start(1, "b", 0), start(1, "c", 0), start(1, "d", 0),
			done("a", record.Passed, false), done("b", record.Failed, false), done("c", record.Error, false), done("d", record.Pending, false),
		}, []string{"attempts [=============>----] 4/5  10s", "  1 passed  1 failed  1 error", "  1 pending  24.0/min  ETA 2s", "  failed b", "  error c"}},
		{"the newest failures", 9, []run.Event{
			begin(5, 5), failure("a", ""), failure("b", "why"), failure("c", "an assertion failed: 1 == 2"), failure("d", "\x1b[2J"),
		}, []string{
			"attempts [=============>----] 4/5  10s", "  0 passed  4 failed  0 error", "  0 pending  24.0/min  ETA 2s",
			"  failed b tests_failed why", "  failed c tests_failed an assertion ~", "  failed d tests_failed ?[2J",
		}},
		{"interrupted", 9, []run.Event{begin(5, 5), failure("a", ""), after(9, run.Event{Kind: run.Stopping})}, []string{
			"attempts [===>--------------] 1/5  10s", "  0 passed  1 failed  0 error", "  0 pending  stopping", "  failed a tests_failed",
		}},
		{"resumed", 9, []run.Event{begin(4, 4), start(1, "d", 3), done("d", record.Passed, false)}, []string{
			"attempts [==================] 4/4  10s", "  1 passed  0 failed  0 error", "  0 pending  3 recorded before",
		}},
		{"all recorded", 9, []run.Event{begin(4, 4), after(1, run.Event{Kind: run.RunDone, Resumed: 4})}, []string{
			"attempts [==================] 4/4  10s", "  0 passed  0 failed  0 error", "  0 pending  4 recorded before",
		}},
		{"tokens of two attempts", 9, []run.Event{
			begin(1, 2), start(1, "a", 0), after(3, run.Event{Kind: run.Egress, Task: "a", Attempt: 1, Tokens: 1234}),
			after(3, run.Event{Kind: run.TaskStart, Task: "a", Attempt: 2}), after(3, run.Event{Kind: run.Egress, Task: "a", Attempt: 2, Tokens: 20_000}),
			done("a", record.Passed, false),
		}, []string{
			"attempts [========>---------] 1/2  10s", "  1 passed  0 failed  0 error", "  0 pending  21k tokens  6.0/min", "  ETA 10s",
			"  starting     7s  a #2  20k tokens",
		}},
		{"waiting and stopping", 9, []run.Event{
			begin(1, 1), after(1, run.Event{Kind: run.Waiting, Task: "a", Detail: "for memory"}), after(1, run.Event{Kind: run.Stopping}),
		}, []string{"attempts [------------------] 0/1  10s", "  0 passed  0 failed  0 error", "  0 pending  stopping", "  waiting for memory: a"}},
		{"an agent's last lines", 9, []run.Event{
			begin(1, 1), after(1, run.Event{Kind: run.AgentOutput, Task: "a", Detail: "1\n2\n"}), after(1, run.Event{Kind: run.AgentOutput, Task: "a", Detail: "3\n\n4"}),
		}, []string{"attempts [------------------] 0/1  10s", "  0 passed  0 failed  0 error", "  0 pending", "> a: 2", "> a: 3", "> a: 4"}},
		{"a long name", 9, []run.Event{begin(1, 1), start(1, "a-pack-with-a-name/the-task", 0)}, []string{
			"attempts [------------------] 0/1  10s", "  0 passed  0 failed  0 error", "  0 pending", "  starting     9s  ~th-a-name/the-task",
		}},
		{"more than there is room for", 5, []run.Event{begin(4, 4), start(1, "a", 0), start(1, "b", 0), start(1, "c", 0)}, []string{
			"attempts [------------------] 0/4  10s", "  0 passed  0 failed  0 error", "  0 pending", "  starting     9s  a", "  and 2 more",
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, shown(canvas{width: 39, height: test.rows}, 10, test.events...)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// hostile is text that must never reach a terminal unchanged.
const hostile = "\x1b[2J\x1b]0;owned\a\r\n\t\b\x7f\u009b31m\u202eevil\u2028\xff\xfe\u200b\ufe0f漢字漢字漢字漢字漢字漢字漢字漢字漢字 é"

var colour = regexp.MustCompile("\x1b\\[[0-9]+m")

var painted = regexp.MustCompile("^(\x1b\\[[0-9]+m[^\x1b]*\x1b\\[0m|[^\x1b]+)*$")

func hostileEvents() []run.Event {
	events := []run.Event{after(0, run.Event{Kind: run.ImagePull, Detail: hostile}), begin(3, 10_000)}
	for i := range 30 {
		e := run.Event{Task: hostile + strings.Repeat("x", i), Attempt: 1, Detail: hostile, Tokens: 1 << 40, RunID: hostile, Reason: hostile, FailureMessage: hostile}
		for _, e.Kind = range []run.Kind{run.TaskStart, run.ProducerStart, run.Egress, run.VerifierStart, run.AgentOutput, run.Stopping, run.Resume} {
			events = append(events, after(1, e))
		}
		if e.Kind, e.Again, e.Status = run.TaskDone, i%2 > 0, record.Failed; i > 20 {
			events = append(events, after(2, e))
		}
	}
	return append(events, after(3, run.Event{Kind: run.Waiting, Task: hostile, Detail: hostile}))
}

// TestBoardFits: at every size, no line reaches the width, there are no more lines than
// there is room for, and their only control sequences are colours, which end where they
// began.
func TestBoardFits(t *testing.T) {
	for _, events := range [][]run.Event{hostileEvents(), hostileEvents()[:1]} {
		var b board
		for _, e := range events {
			b.add(e)
		}
		for width := 1; width <= 120; width++ {
			for _, height := range []int{0, 1, 2, 3, 5, 10, 24, 50} {
				lines := b.lines(after(1e6, run.Event{}).Time, canvas{width, height, true})
				if len(lines) > height {
					t.Fatalf("%d lines at %dx%d", len(lines), width, height)
				}
				for _, line := range lines {
					bare := colour.ReplaceAllString(line, "")
					if runewidth.StringWidth(bare) >= width || !painted.MatchString(line) || strings.ContainsFunc(bare, unicode.IsControl) || strings.ContainsAny(bare, "\u202e\u2028\u200b\ufe0f") {
						t.Fatalf("%dx%d: %q", width, height, line)
					}
				}
			}
		}
	}
}

// view returns a live view on a small terminal, with the time of the synctest bubble.
func view(s *screen) *live {
	size := func() (int, int, error) { s.mu.Lock(); defer s.mu.Unlock(); return s.columns, s.rows, nil }
	return &live{term: terminal{s, size, true}, now: time.Now}
}

// see shows events with the current time, and waits until they are on the screen.
func see(l *live, events ...run.Event) {
	for _, e := range events {
		e.Time = time.Now()
		l.add(e, true)
	}
	time.Sleep(redrawEvery) // in the synctest bubble
	synctest.Wait()
}

func TestLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(40, 10)
		_, _ = io.WriteString(s, "$ sbench run\n")
		l := view(s)
		see(l, run.Event{Kind: run.ImagePull, Detail: "a:1"})
		wantText(t, s, "$ sbench run\nimages   [---------------] 0/1  0s  a:1\n")
		see(l, run.Event{Kind: run.RunStart, Tasks: 2, Attempts: 2}, run.Event{Kind: run.TaskStart, Task: "a", Attempt: 1})
		time.Sleep(5 * time.Second)
		_, _ = io.WriteString(l, "level=WARN msg=one\nlevel=WARN msg")
		see(l, run.Event{Kind: run.TaskDone, Task: "a", Attempt: 1, Status: record.Error, Again: true, Seconds: 5})
		s.feed("^C") // echoed by the terminal
		_, _ = io.WriteString(l, "=two\n")
		see(l, run.Event{Kind: run.TaskStart, Task: "a", Attempt: 1})
		wantText(t, s, `$ sbench run
level=WARN msg=one
[0/2] error a 5.0s (is tried again)
level=WARN msg=two
attempts [--------------------] 0/2  5s
  0 passed  0 failed  0 error
  0 pending  1 retried
  starting     0s  a
`)
		see(l, run.Event{Kind: run.TaskDone, Task: "a", Attempt: 1, Status: record.Passed}, run.Event{Kind: run.RunDone})
		_, _ = io.WriteString(l, "a late warning\n")
		_, _ = io.WriteString(s, "sbench: run_id=x\n")
		got := s.text()
		if !strings.HasSuffix(got, "a late warning\nsbench: run_id=x\n") || !strings.Contains(got, "attempts [=========>----------] 1/2  5s\n  1 passed") ||
			!strings.Contains(got, "\nTASK  VERDICT  TIME") || strings.Count(got, "attempts [") != 1 || strings.Contains(got, "^C") {
			t.Errorf("at the end:\n%s", got)
		}
		s.sane(t)
		l.stop() // there is nothing to stop any more
	})
}

// wantText compares the text of the screen, and checks that the terminal is sane.
func wantText(t *testing.T, s *screen, want string) {
	t.Helper()
	if diff := cmp.Diff(want, s.text()); diff != "" {
		t.Error(diff)
	}
	s.sane(t)
}

// TestLiveStop: a run ends before it has begun, and another follows on the same terminal.
func TestLiveStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(40, 10)
		l := view(s)
		see(l, run.Event{Kind: run.ImagePull, Detail: "a:1"})
		_, _ = io.WriteString(l, "no newline")
		l.stop()
		wantText(t, s, "no newline\n")
		see(l, run.Event{Kind: run.ImagePull, Detail: "b:1"})
		wantText(t, s, "no newline\nimages   [---------------] 0/1  0s  b:1\n")
		l.stop()
	})
}

// TestLiveHostile: hostile events are shown without any sequence that they contain.
func TestLiveHostile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(40, 24)
		l := view(s)
		see(l, hostileEvents()...)
		see(l, run.Event{Kind: run.RunDone})
		s.sane(t)
	})
}

// TestLiveResizes: the terminal becomes narrower and lower, and wider again.
func TestLiveResizes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(90, 24)
		l, resized := view(s), make(chan os.Signal, 1)
		l.resized = resized
		see(l, run.Event{Kind: run.RunStart, Tasks: 20, Attempts: 20})
		for i := range 12 {
			see(l, run.Event{Kind: run.TaskStart, Task: fmt.Sprintf("a-task-with-a-rather-long-name-%d", i), Attempt: 1})
		}
		for _, size := range [][2]int{{40, 8}, {20, 3}, {100, 30}} {
			s.mu.Lock()
			s.lines, s.row, s.column, s.top = []string{""}, 0, 0, 0 // what a terminal does with its lines is up to it
			s.columns, s.rows = size[0], size[1]
			s.mu.Unlock()
			resized <- syscall.SIGWINCH
			see(l)
			lines := strings.Split(s.text(), "\n")
			if len(lines) > size[1] || s.top > 0 || !strings.HasPrefix(lines[0], "attempts") {
				t.Errorf("%v: scrolled by %d:\n%s", size, s.top, s.text())
			}
			s.sane(t)
		}
		l.stop()
	})
}

// TestLiveUnchanged: nothing is written if nothing has changed, except after a resize,
// which may have broken the view.
func TestLiveUnchanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(80, 24)
		l, resized := view(s), make(chan os.Signal, 1)
		l.resized = resized
		see(l, run.Event{Kind: run.RunStart, Tasks: 1, Attempts: 1})
		before := s.written()
		see(l, run.Event{Kind: run.VerifierDone, Task: "a", Attempt: 1})
		if n := s.written() - before; n != 0 {
			t.Errorf("%d redraws", n)
		}
		resized <- syscall.SIGWINCH
		see(l)
		if n := s.written() - before; n != 1 {
			t.Errorf("%d redraws after a resize", n)
		}
		l.stop()
	})
}

// TestLiveManyAttempts: 10,000 attempts in 100 seconds cause at most one redraw every 100
// ms, counting both ends, and one a second while nothing happens. They take no more
// memory at the end than after the first thousand.
func TestLiveManyAttempts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newScreen(80, 24)
		l := view(s)
		see(l, run.Event{Kind: run.RunStart, Tasks: 10_000, Attempts: 10_000})
		first := s.written()
		var before, end runtime.MemStats
		for i := range 10_000 {
			if i == 1000 {
				runtime.GC()
				runtime.ReadMemStats(&before)
			}
			e := run.Event{Kind: run.TaskStart, Task: fmt.Sprintf("task-%d", i), Attempt: 1, Time: time.Now()}
			l.add(e, true)
			time.Sleep(10 * time.Millisecond)
			e.Kind, e.Status = run.TaskDone, record.Passed
			l.add(e, true)
		}
		runtime.GC()
		runtime.ReadMemStats(&end)
		if grown := int64(end.HeapAlloc) - int64(before.HeapAlloc); grown > 256<<10 {
			t.Errorf("9,000 attempts took %d bytes", grown)
		}
		if n := s.written() - first; n > 1001 || n < 900 {
			t.Errorf("%d redraws in 100 s", n)
		}
		time.Sleep(redrawEvery)
		busy := s.written()
		time.Sleep(10 * time.Second)
		if idle := s.written() - busy; idle < 9 || idle > 11 {
			t.Errorf("%d redraws in 10 idle seconds", idle)
		}
		if got := s.text(); !strings.Contains(got, "10000/10000  1m50s\n  10000 passed") || s.top > 0 {
			t.Errorf("%s", got)
		}
		l.stop()
	})
}

// stuck is a terminal that accepts nothing until it is released.
type stuck struct {
	*screen
	free chan error
}

func (s stuck) Write(p []byte) (int, error) {
	if err := <-s.free; err != nil {
		return 0, err
	}
	return s.screen.Write(p)
}

// TestLiveStuck: if the terminal is stopped, as Ctrl-S does, no event and no log line
// waits for it, and dropped lines are counted.
func TestLiveStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{newScreen(80, 24), make(chan error)}
		l := view(s.screen)
		l.term.Writer = s
		see(l, run.Event{Kind: run.RunStart, Tasks: 1, Attempts: 1})
		for range 10_000 {
			l.add(run.Event{Kind: run.Resume, Detail: strings.Repeat("x", 50)}, true)
		}
		l.mu.Lock()
		if l.above.Len() > maxAbove {
			t.Errorf("%d bytes are kept", l.above.Len())
		}
		l.mu.Unlock()
		close(s.free)
		see(l)
		l.stop()
		lost := regexp.MustCompile(`sbench: (\d+) lines were not printed`).FindStringSubmatch(s.text())
		if kept := strings.Count(s.text(), "sbench: xxx"); lost == nil || fmt.Sprint(10_000-kept) != lost[1] {
			t.Errorf("%d lines shown, %v lost", kept, lost)
		}
		s.sane(t)
	})
}

// TestLiveGone: if the terminal goes away, the run goes on, and nothing more is written
// to it.
func TestLiveGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := stuck{newScreen(80, 24), make(chan error, 1)}
		l := view(s.screen)
		l.term.Writer = s
		s.free <- errors.New("input/output error")
		see(l, run.Event{Kind: run.RunStart, Tasks: 1, Attempts: 1}) // a second write would block forever
		see(l, run.Event{Kind: run.TaskStart, Task: "a", Attempt: 1}, run.Event{Kind: run.RunDone})
		if s.text() != "" {
			t.Errorf("%q", s.text())
		}
	})
}
