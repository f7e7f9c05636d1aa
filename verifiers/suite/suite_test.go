package suite_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/suite"
)

const source = "WANT = 18\n\ndef test_a():\n    assert one() == 17\n\ndef test_b():\n    assert two() == WANT\n"

// right and unsolved are what the reference solution and the unsolved task answer to source.
const right, unsolved = "1 0x11\n2 0x12\n", "1 None\n2 None\n"

// command runs the tests without a sandbox.
type command struct {
	wrong, forges bool   // the candidate fails the unchanged tests, or passes the canary
	answers       string // the candidate's
	unsolved      string // the unsolved task's answers
	fails         string // what must not be in blind tests, so that the reference solution passes them
	always        bool   // the canary passes on all
	late          bool   // the candidate's blind tests meet the time limit

	mu   sync.Mutex
	runs map[suite.Subject]int
}

func (c *command) Run(ctx context.Context, on suite.Subject, files []contrast.File) (suite.Ended, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs[on]++
	text, fails := files[0].Text, false
	switch {
	case strings.Contains(text, "has to fail"):
		fails = !c.always && (!c.forges || on != suite.Candidate)
	case text == source:
		fails = on == suite.Unsolved || on == suite.Candidate && c.wrong
	default:
		fails = on == suite.Reference && c.fails != "" && strings.Contains(text, c.fails)
	}
	ended := suite.Ended{Exit: runtime.Exit{Reason: runtime.Exited}}
	ended.Answers = contrast.ParseAnswers(map[suite.Subject]string{suite.Candidate: c.answers, suite.Reference: right, suite.Unsolved: c.unsolved}[on])
	if c.late && on == suite.Candidate && strings.Contains(text, "_sbench_ask") {
		ended.Exit = runtime.Exit{Reason: runtime.WallTime, Code: -1}
	}
	if fails {
		ended.Code, ended.Stdout = 1, runtime.Output{Tail: []byte("FAILED t.py::test_0000\n")}
	}
	return ended, context.Cause(ctx)
}

func (c *command) Unchanged(ctx context.Context) (verifiers.Verdict, error) {
	ended, err := c.Run(ctx, suite.Candidate, []contrast.File{{Path: "t.py", Text: source}})
	return verifiers.OfExit(ended.Exit), err
}

// host is an engine with sandboxes that run programs on the host.
type host struct {
	verifiers.Engine
	runtime.Sandbox
}

func (h host) Create(context.Context, runtime.Config) (runtime.Sandbox, error) { return h, nil }
func (host) Close(context.Context) error                                       { return nil }
func (host) Exec(ctx context.Context, p runtime.Process) (runtime.Exit, error) {
	cmd := exec.CommandContext(ctx, p.Args[0], p.Args[1:]...)
	cmd.Stdin, cmd.Stdout = p.Stdin, p.Stdout
	return runtime.Exit{Reason: runtime.Exited}, cmd.Run()
}

// idle has room for every run.
type idle struct{}

func (idle) Spare() (give func(), ok bool) { return func() {}, true }
func (idle) Doing(string)                  {}

// TestRuns: how often the tests run, and the verdict, by the answers and the reference solution; one run after the other
// and at the same time.
func TestRuns(t *testing.T) {
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("this host has no python3")
	}
	const follows = "1 0x0\n2 0x0\n"
	type runs struct{ Candidate, Reference, Unsolved, Later int } // Later are all, once the calibration is stored
	for i, tt := range []struct {
		name   string
		change func(s *suite.Suite, c *command)
		want   runs
		says   string // the assurance and the reason
	}{
		{"honest", func(*suite.Suite, *command) {}, runs{2, 3, 1, 2}, "contrasted"},
		{"off", func(s *suite.Suite, c *command) { s.Input.Contrast, c.answers = contrast.Off, follows }, runs{1, 0, 0, 1}, "executed"},
		{"the reference", func(s *suite.Suite, _ *command) { s.Input.Reference = true }, runs{2, 2, 1, 2}, "contrasted"},
		{"follows", func(_ *suite.Suite, c *command) { c.answers = follows }, runs{2, 3, 1, 2}, contrast.Reason},
		{"follows once", func(_ *suite.Suite, c *command) { c.answers = "1 0x11\n2 0x0\n" }, runs{2, 3, 1, 2}, contrast.Reason},
		{"skips", func(_ *suite.Suite, c *command) { c.answers = "1 0x11\n" }, runs{2, 3, 1, 2}, contrast.Reason},
		{"fails", func(_ *suite.Suite, c *command) { c.wrong = true }, runs{2, 0, 0, 2}, "checker_failed"},
		{"seen", func(s *suite.Suite, _ *command) { s.Seen = []string{source} }, runs{2, 3, 1, 2}, "executed"},
		{"seen in part", func(s *suite.Suite, _ *command) { s.Seen = []string{"WANT = 18\n"} }, runs{2, 3, 1, 2}, "contrasted"},
		{"the unsolved task answers right", func(_ *suite.Suite, c *command) { c.unsolved = right }, runs{3, 3, 1, 2}, "executed"},
		{"the reference fails blind tests", func(_ *suite.Suite, c *command) { c.fails = "def test" }, runs{3, 3, 0, 2}, "executed"},
		{"an assertion stays", func(s *suite.Suite, _ *command) { s.Files[0].Text += "    assert one() or two()\n" }, runs{2, 3, 1, 2}, "executed"},
		{"an assertion stays, and agents know it", func(s *suite.Suite, _ *command) {
			s.Files[0].Text, s.Seen = s.Files[0].Text+"    assert one() or two()\n", []string{"    assert one() or two()"}
		}, runs{2, 3, 1, 2}, "contrasted"},
		{"cannot fail", func(_ *suite.Suite, c *command) { c.always = true }, runs{2, 3, 1, 2}, suite.CannotFail},
		{"may be unable to fail", func(s *suite.Suite, c *command) { s.Certain, c.always = false, true }, runs{2, 3, 1, 2}, "executed"},
		{"processes are left", func(s *suite.Suite, _ *command) { s.Input.Left = host{} }, runs{2, 1, 0, 2}, "executed"},

		{"without a reference", func(s *suite.Suite, _ *command) { s.Reference = false }, runs{3, 0, 1, 3}, "executed"},
		{"without, follows", func(s *suite.Suite, c *command) { s.Reference, c.answers = false, follows }, runs{3, 0, 1, 3}, contrast.Reason},
		{"without, follows once", func(s *suite.Suite, c *command) { s.Reference, c.answers = false, "1 0x11\n2 0x0\n" }, runs{3, 0, 1, 3}, "executed doubtful"},
		{"without, skips", func(s *suite.Suite, c *command) { s.Reference, c.answers = false, "1 0x11\n" }, runs{3, 0, 1, 3}, contrast.Reason},
		{"without, not reached", func(s *suite.Suite, c *command) { s.Reference, c.answers, c.unsolved = false, "1 0x11\n", "" }, runs{3, 0, 1, 3}, "executed"},
		{"without, forges", func(s *suite.Suite, c *command) { s.Reference, c.forges = false, true }, runs{3, 0, 2, 4}, "passes_broken_tests"},
		{"without, cannot fail", func(s *suite.Suite, c *command) { s.Reference, c.always = false, true }, runs{3, 0, 2, 4}, suite.CannotFail},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := suite.Suite{Engine: host{}, Key: "k", Files: []contrast.File{{Path: "t.py", Text: source}}, Certain: true, Reference: true}
			s.Input = verifiers.Input{Task: &compiler.Task{}, Pace: []verifiers.Pace{nil, idle{}}[i%2], Calibrations: contrast.NewStore("")}
			var got runs
			for _, later := range []bool{false, true} {
				c := command{answers: right, unsolved: unsolved, runs: map[suite.Subject]int{}}
				s.Command = &c
				tt.change(&s, &c)
				v, err := s.Judge(t.Context())
				says := strings.TrimSpace(string(v.Assurance) + " " + v.Reason)
				if v.Metadata[verifiers.Doubtful] != nil {
					says += " doubtful"
				}
				if err != nil || says != tt.says {
					t.Errorf("%v: %s, want %s: %+v", err, says, tt.says, v)
				}
				if got.Later = c.runs[suite.Candidate] + c.runs[suite.Reference] + c.runs[suite.Unsolved]; !later {
					got = runs{c.runs[suite.Candidate], c.runs[suite.Reference], c.runs[suite.Unsolved], 0}
				}
			}
			must.Equal(t, tt.want, got)
		})
	}
}

// TestWhy: the message says why an answer does not count, and names no hidden file.
func TestWhy(t *testing.T) {
	for want, c := range map[string]*command{
		"answers otherwise at line 7 of a hidden file":                   {answers: "1 0x11\n2 0x0\n"},
		"(the run with blind tests: killed after its time limit, at 0s)": {answers: right, late: true},
	} {
		c.unsolved, c.runs = unsolved, map[suite.Subject]int{}
		s := suite.Suite{Engine: host{}, Key: "k", Files: []contrast.File{{Path: "t.py", Text: source}}, Certain: true, Reference: true, Command: c}
		s.Input.Task = &compiler.Task{}
		v, err := s.Judge(t.Context())
		if err != nil || v.Reason != contrast.Reason || !strings.HasSuffix(v.Message, want) || strings.Contains(v.Message, "t.py") {
			t.Errorf("%v: %s: %s, want %s", err, v.Reason, v.Message, want)
		}
		if private := "t.py:7: another answer than the reference solution's\n"; !c.late && string(v.Stderr.Bytes()) != private {
			t.Errorf("the private part has %q, want %q", v.Stderr, private)
		}
	}
}

// TestStored: what was listed without a reference, with what the tests expect, does not calibrate one.
func TestStored(t *testing.T) {
	s := suite.Suite{Engine: host{}, Key: "k", Files: []contrast.File{{Path: "t.py", Text: source}}, Certain: true}
	s.Input = verifiers.Input{Task: &compiler.Task{}, Calibrations: contrast.NewStore("")}
	for _, s.Reference = range []bool{false, true} {
		c := &command{answers: right, unsolved: unsolved, fails: "= None", runs: map[suite.Subject]int{}}
		s.Command = c
		if v, err := s.Judge(t.Context()); err != nil || v.Status != verifiers.Passed || s.Reference && c.runs[suite.Unsolved] != 0 {
			t.Errorf("reference %v: %v, %+v, %v", s.Reference, err, v, c.runs)
		}
	}
}

// TestLoops: without a reference, a solution need not leave anything for a loop over what it gives.
func TestLoops(t *testing.T) {
	for loop, want := range map[string]string{"two()": "", "(1, 2)": contrast.Reason} {
		text := "def test_a():\n    assert one() == 17\n    for x in " + loop + ":\n        assert x == 18\n"
		s := suite.Suite{Engine: host{}, Key: "k", Files: []contrast.File{{Path: "t.py", Text: text}}, Certain: true}
		s.Command = &command{answers: "1 0x11\n", unsolved: unsolved, runs: map[suite.Subject]int{}}
		s.Input.Task = &compiler.Task{}
		if v, err := s.Judge(t.Context()); err != nil || v.Reason != want {
			t.Errorf("%s: %v, %+v", loop, err, v)
		}
	}
}

// TestFailing: a candidate that fails the unchanged tests has failed, whatever the other runs do; a run
// that is cancelled judges nothing.
func TestFailing(t *testing.T) {
	for _, pace := range []verifiers.Pace{nil, idle{}} {
		c := &command{wrong: true, runs: map[suite.Subject]int{}}
		s := suite.Suite{Command: c, Key: "k", Others: []contrast.File{{Path: "t.sh", Text: source}}, Input: verifiers.Input{Pace: pace}}
		if v, err := s.Judge(t.Context()); err != nil || v.Reason != "checker_failed" {
			t.Errorf("%v: %+v", err, v)
		}
		enough := errors.New("enough")
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(enough)
		_, err := s.Judge(ctx)
		must.Is(t, err, enough)
	}
}
