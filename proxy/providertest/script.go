package providertest

import (
	"errors"
	"fmt"
	"time"
)

// A Script is what the provider answers, turn by turn. The next step is derived from the
// conversation in the request, so a retried request gets the same step, and several
// agents may follow one script.
type Script struct {
	Steps []Step
}

// A Step is one answer: exactly one of Say, Shell, Write and Call.
type Step struct {
	Say   string // text
	Shell string // a command for the agent's shell
	Write *File
	Call  *Call

	Think  string        // reasoning before the answer
	Usage  *Usage        // as reported; nil: 10 in, 5 out
	Delay  time.Duration // before the answer; in a stream, before each event
	Faults []*Fault      // one after another, before the step is answered well
}

// A File is to be written with the agent's tool for files, or else with its shell.
type File struct {
	Path    string
	Content string
}

// A Call is of a tool that the agent offers under this name, perhaps after a prefix.
type Call struct {
	Tool  string
	Input string // JSON
}

// Usage is the tokens of one answer. Input includes Cached, Output includes Reasoning.
type Usage struct {
	Input     int64
	Cached    int64
	Output    int64
	Reasoning int64
}

// A Fault spoils the answers to some requests: exactly one of Status, Cut,
// Garble and Error.
type Fault struct {
	Times int // how many requests; 0 means one, -1 all

	Status     int    // answer with this error, 400 to 599
	RetryAfter int    // with Status: the header, in seconds; 0: none
	Cut        int    // break the connection after so many events, or bytes if the answer is not streamed
	Garble     bool   // write malformed events
	Error      string // send an error event of this type in a stream that began well
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
	if count(s.Say != "", s.Shell != "", s.Write != nil, s.Call != nil) != 1 {
		return errors.New("must have exactly one of say, shell, write and call")
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
