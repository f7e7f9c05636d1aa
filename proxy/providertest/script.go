package providertest

import (
	"errors"
	"fmt"
	"time"
)

// A Script is what the provider answers, turn by turn. Which step is next is read
// from the conversation that a request repeats, so that a request that is tried
// again gets the same step, and several agents may follow one script.
type Script struct {
	Steps []Step
}

// A Step is one answer: exactly one of Say, Shell and Write.
type Step struct {
	Say   string
	Shell string // a command for the agent's shell
	Write *File

	Think  string // reasoning ahead of it
	Usage  *Usage // that is claimed; nil: 10 in, 5 out
	Delay  time.Duration
	Faults []*Fault // one after another, before the step is answered well
}

// A File is to be written by the agent's tool for that, or else its shell.
type File struct {
	Path    string
	Content string
}

// Usage is the tokens of one answer. Input holds the cached ones, Output the
// reasoning.
type Usage struct {
	Input     int64
	Cached    int64
	Output    int64
	Reasoning int64
}

// A Fault spoils the answers to some requests: exactly one of Status, Cut,
// Garble and Error.
type Fault struct {
	Times int // 0 is once, -1 for ever

	Status     int // answer with this error
	RetryAfter int
	Cut        int    // break the connection after so many events; an answer without a stream after so many bytes
	Garble     bool   // write events that are none
	Error      string // an error event of this type in a stream that began well
}

func (s Script) check() error {
	if len(s.Steps) == 0 {
		return errors.New("script: has no steps")
	}
	for i, step := range s.Steps {
		if err := step.check(); err != nil {
			return fmt.Errorf("script: step %d: %w", i+1, err)
		}
	}
	return nil
}

func (s Step) check() error {
	if count(s.Say != "", s.Shell != "", s.Write != nil) != 1 {
		return errors.New("must have exactly one of say, shell and write")
	}
	if s.Write != nil && s.Write.Path == "" {
		return errors.New("is incomplete")
	}
	for _, f := range s.Faults {
		if f == nil || count(f.Status != 0, f.Cut != 0, f.Garble, f.Error != "") != 1 {
			return errors.New("a fault must have exactly one of status, cut, garble and error")
		}
		if f.Status != 0 && (f.Status < 400 || f.Status > 599) {
			return errors.New("the status of a fault must be an error's")
		}
	}
	return nil
}

func count(all ...bool) (n int) {
	for _, b := range all {
		if b {
			n++
		}
	}
	return n
}
