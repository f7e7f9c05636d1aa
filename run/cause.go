package run

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

const (
	maxMessage = 2000 // bytes of a failure message in progress and summary; the record has it in full
	maxCauses  = 50   // when there are more, causes with the same reason count as one
)

// A Cause says why attempts did not pass, and has one attempt as its example. Attempts that could not
// be measured have different causes if their messages differ in more than names and numbers.
type Cause struct {
	Status         record.Status `json:"status"` // failed, pending or error
	Reason         string        `json:"reason"`
	Count          int           `json:"count"`
	Task           string        `json:"task"` // of the example, as are the next two
	Attempt        int           `json:"attempt"`
	FailureMessage string        `json:"failure_message,omitempty"` // as in [Event]
}

// causes collects a bounded number of causes. The zero causes is ready.
type causes struct {
	list  []Cause
	kinds []string // of the causes in list; see kindOf
}

// add counts an attempt. The first attempt with a cause is the example.
func (c *causes) add(cause Cause) {
	kind := ""
	if cause.Reason == Infrastructure {
		kind = kindOf(cause.FailureMessage)
	}
	for i, known := range c.list {
		if known.Status == cause.Status && known.Reason == cause.Reason && (c.kinds[i] == kind || len(c.list) >= maxCauses) {
			c.list[i].Count++
			return
		}
	}
	cause.Count = 1
	c.list, c.kinds = append(c.list, cause), append(c.kinds, kind)
}

// varying matches what may differ between messages of the same cause: quoted text, paths,
// and words with digits.
var varying = regexp.MustCompile(`"[^"]*"|/\S+|\w*\d\w*`)

func kindOf(message string) string { return varying.ReplaceAllString(message, "#") }

// bounded returns at most maxMessage bytes of a message.
func bounded(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// How many tries in a row may fail for the same shared cause.
const (
	maxAlike      = 3  // before anything has been measured, and at any time for lack of a daemon
	maxAlikeLater = 10 // afterwards, for each concurrent attempt: a short outage of a provider fails them all
)

// A streak is a row of tries that could not be measured for the same shared cause. A try that fails
// for a cause of its own task, such as the image, does not end the streak.
type streak struct {
	measured bool // this session has measured at least one try
	kind     string
	n        int
}

// checkStreak returns an error, which ends the run, if too many tries in a row failed for a cause that
// all tasks share, such as a wrong key. cause is why the latest try failed, nil if it was measured.
func (s *session) checkStreak(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cause == nil {
		s.streak = streak{measured: true}
		return nil
	}
	kind, what, most := kindOf(cause.Error()), "tries failed in a row for the same cause", maxAlike
	switch {
	case errors.Is(cause, runtime.ErrUnavailable):
		kind, what = "daemon", "failures of the daemon in a row"
	case !errors.Is(cause, harness.ErrProvider) && !errors.Is(cause, harness.ErrNotInstalled):
		return nil
	case s.streak.measured:
		most = maxAlikeLater * s.cfg.Jobs
	}
	if kind != s.streak.kind {
		s.streak.kind, s.streak.n = kind, 0
	}
	if s.streak.n++; s.streak.n < most {
		return nil
	}
	return fmt.Errorf("%w: stopped after %d %s: %w", ErrInfrastructure, s.streak.n, what, cause)
}
