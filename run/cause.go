package run

import (
	"errors"
	"fmt"
	"strings"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
)

// maxMessage bounds a failure message in progress, in bytes; the record has it in full.
const maxMessage = 2000

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
	kind, what, most := record.CauseOf(cause.Error()), "tries failed in a row for the same cause", maxAlike
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
