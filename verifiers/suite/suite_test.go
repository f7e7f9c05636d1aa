package suite_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
	"github.com/securebench/sbench/verifiers/suite"
)

const source = "def test_a():\n    assert one() == 1\n\ndef test_b():\n    assert two() == 2\n"

func edit(name, from, to string) contrast.Edit {
	at, line := strings.Index(source, "== "+from)+len("== "), 2
	if name == "test_b" {
		line = 5
	}
	return contrast.Edit{Path: "t.py", Test: name, Start: at, End: at + len(from), New: to, Kind: contrast.Value, Line: line, Last: line}
}

// command runs the tests without a sandbox, on solutions that are right or follow the tests.
type command struct {
	follows bool
	wrong   bool // test_b fails

	mu   sync.Mutex
	runs map[suite.Subject]int
}

func (c *command) Run(_ context.Context, on suite.Subject, files []contrast.File) (runtime.Exit, error) {
	c.mu.Lock()
	c.runs[on]++
	c.mu.Unlock()
	var failed []string
	for _, function := range strings.SplitAfter(files[0].Text, "\n\n") {
		name, _, found := strings.Cut(strings.TrimPrefix(function, "def "), "(")
		if !found { // what the canary puts at the end
			failed = append(failed, "FAILED")
			continue
		}
		changed := !strings.Contains(source, function)
		canary := strings.Contains(function, "raise")
		if canary || changed && (on != suite.Candidate || !c.follows) || on == suite.Unsolved || on == suite.Candidate && c.wrong && name == "test_b" {
			failed = append(failed, "FAILED t.py::"+name)
		}
	}
	exit := runtime.Exit{Reason: runtime.Exited}
	if len(failed) > 0 {
		exit.Code, exit.Stdout = 1, runtime.Output{Tail: []byte(strings.Join(failed, "\n"))}
	}
	return exit, nil
}

func (c *command) Unchanged(ctx context.Context) (verifiers.Verdict, error) {
	exit, err := c.Run(ctx, suite.Candidate, []contrast.File{{Path: "t.py", Text: source}})
	return verifiers.OfExit(exit), err
}

// idle has room for every run.
type idle struct{}

func (idle) Spare() (give func(), ok bool) { return func() {}, true }
func (idle) Doing(string)                  {}

// TestRuns: how often the tests run, by the effort, by whether there is a calibration, and by whether the
// candidate is the reference; one after the other and at the same time.
func TestRuns(t *testing.T) {
	drawn := func(seen bool) contrast.Calibration {
		drawn := contrast.Calibration{Seen: seen, Sets: []contrast.Set{
			{Edits: []contrast.Edit{edit("test_a", "1", "3")}}, {Edits: []contrast.Edit{edit("test_b", "2", "4")}},
			{Edits: []contrast.Edit{edit("test_a", "1", "3"), edit("test_b", "2", "4")}},
		}}
		for _, e := range []contrast.Edit{edit("test_a", "1", ""), edit("test_b", "2", "")} {
			e.Start, e.New = e.End, "; raise AssertionError"
			drawn.Canary = append(drawn.Canary, e)
		}
		return drawn
	}
	type runs struct{ Candidate, Reference, Later int } // Later are the candidate's, once the calibration is stored
	tests := []struct {
		name                              string
		effort                            contrast.Effort
		follows, isReference, noReference bool
		seen                              bool // authors of candidates can read what is changed
		want                              runs
		assurance                         verifiers.Assurance
		reason                            string
	}{
		{"honest", "", false, false, false, false, runs{3, 3, 3}, verifiers.Contrasted, ""},
		{"honest, quick", contrast.Quick, false, false, false, false, runs{2, 3, 2}, verifiers.Contrasted, ""},
		{"honest, off", contrast.Off, false, false, false, false, runs{1, 0, 1}, verifiers.Executed, ""},
		{"the reference", "", false, true, false, false, runs{3, 0, 3}, verifiers.Contrasted, ""},
		{"the reference, quick", contrast.Quick, false, true, false, false, runs{2, 1, 2}, verifiers.Contrasted, ""},
		{"follows", "", true, false, false, false, runs{3, 3, 3}, "", contrast.Reason},
		{"follows, quick", contrast.Quick, true, false, false, false, runs{2, 3, 2}, "", contrast.Reason},
		{"follows, off", contrast.Off, true, false, false, false, runs{1, 0, 1}, verifiers.Executed, ""},
		{"without a reference", "", false, false, true, false, runs{3, 0, 3}, verifiers.Executed, ""},
		{"without a reference, quick", contrast.Quick, false, false, true, false, runs{2, 0, 2}, verifiers.Executed, ""},
		{"seen", "", false, false, false, true, runs{3, 3, 3}, verifiers.Executed, ""},
		{"seen, follows", "", true, false, false, true, runs{3, 3, 3}, "", contrast.Reason},
	}
	for _, tt := range tests {
		for _, pace := range []verifiers.Pace{nil, idle{}} {
			t.Run(tt.name, func(t *testing.T) {
				s := suite.Suite{Key: "k", Files: []contrast.File{{Path: "t.py", Text: source}}, Certain: true, Reference: !tt.noReference}
				s.Input = verifiers.Input{Contrast: tt.effort, Pace: pace, Reference: tt.isReference, Calibrations: contrast.NewStore("")}
				if _, err := s.Input.Calibrations.Get(t.Context(), contrast.Key("", "k", "drawn"), func() (contrast.Calibration, error) { return drawn(tt.seen), nil }); err != nil {
					t.Fatal(err)
				}
				var got runs
				for _, later := range []bool{false, true} {
					c := command{follows: tt.follows, runs: map[suite.Subject]int{}}
					s.Command = &c
					v, err := s.Judge(t.Context())
					if err != nil || v.Assurance != tt.assurance || v.Reason != tt.reason {
						t.Errorf("%v: %+v", err, v)
					}
					if got.Later = c.runs[suite.Candidate]; !later {
						got.Candidate, got.Reference = c.runs[suite.Candidate], c.runs[suite.Reference]
					}
				}
				must.Equal(t, tt.want, got)
			})
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
