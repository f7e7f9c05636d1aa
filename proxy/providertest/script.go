package providertest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"
)

// A Script is what the provider answers, turn by turn. Which step is next is read
// from the conversation that a request repeats, so that a request that is tried
// again gets the same step, and several agents may follow one script.
type Script struct {
	Steps []Step `json:"steps"`
	Loop  bool   `json:"loop,omitempty"` // begin again instead of saying "done" after the last
}

// A Step is one answer: exactly one of Say, Shell, Write and Call.
type Step struct {
	Say   string `json:"say,omitempty"`
	Shell string `json:"shell,omitempty"` // a command for the agent's shell
	Write *File  `json:"write,omitempty"`
	Call  *Call  `json:"call,omitempty"`

	Think   string   `json:"think,omitempty"` // reasoning ahead of it
	Usage   *Usage   `json:"usage,omitempty"` // that is claimed; nil: 10 in, 5 out
	DelayMS int      `json:"delay_ms,omitempty"`
	Faults  []*Fault `json:"faults,omitempty"` // one after another, before the step is answered well
}

// A File is to be written by the agent's tool for that, or else its shell.
type File struct {
	Path    string `json:"path"`
	Content string `json:"content"`
}

// A Call is one of any tool. Input is an object, or a string for a tool that
// takes free text.
type Call struct {
	Name  string          `json:"name"`
	Input json.RawMessage `json:"input"`
}

// Usage is the tokens of one answer. Input holds the cached ones, Output the
// reasoning.
type Usage struct {
	Input     int64 `json:"input"`
	Cached    int64 `json:"cached,omitempty"`
	Output    int64 `json:"output"`
	Reasoning int64 `json:"reasoning,omitempty"`
}

// A Fault spoils the answers to some requests: exactly one of Status, Cut,
// Garble, Hang and Error.
type Fault struct {
	Times int `json:"times,omitempty"` // 0 is once, -1 for ever

	Status     int    `json:"status,omitempty"` // answer with this error
	RetryAfter int    `json:"retry_after,omitempty"`
	Cut        int    `json:"cut,omitempty"`    // break the connection after so many events; an answer without a stream after so many bytes
	Garble     bool   `json:"garble,omitempty"` // write events that are none
	Hang       bool   `json:"hang,omitempty"`   // answer nothing until the client leaves
	Error      string `json:"error,omitempty"`  // an error event of this type in a stream that began well
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
	if s.Write != nil && s.Write.Path == "" || s.Call != nil && (s.Call.Name == "" || !json.Valid(s.Call.Input)) {
		return errors.New("is incomplete")
	}
	for _, f := range s.Faults {
		if f == nil || count(f.Status != 0, f.Cut != 0, f.Garble, f.Hang, f.Error != "") != 1 {
			return errors.New("a fault must have exactly one of status, cut, garble, hang and error")
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

func (s Step) usage() Usage {
	if s.Usage == nil {
		return Usage{Input: 10, Output: 5}
	}
	return *s.Usage
}

func (s Step) delay() time.Duration { return time.Duration(s.DelayMS) * time.Millisecond }

// Parse reads a script: JSON, if it begins with a brace, or the text form of
// [ParseText].
func Parse(data []byte) (Script, error) {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) {
		return ParseText(string(data))
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	var s Script
	if err := d.Decode(&s); err != nil {
		return Script{}, fmt.Errorf("script: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return Script{}, errors.New("script: something follows the JSON object")
	}
	return s, s.check()
}
