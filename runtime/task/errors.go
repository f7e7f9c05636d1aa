package task

import (
	"fmt"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
)

// A Refusal is the error with which the OCI runtime or the shim refused a sandbox.
type Refusal struct{ Err error }

// Error returns the message of Err.
func (r Refusal) Error() string { return r.Err.Error() }

// Unwrap returns Err.
func (r Refusal) Unwrap() error { return r.Err }

// StartError distinguishes a command that cannot be executed from a failing daemon. The only
// sign are what runc, crun and runsc say about execve and the working directory.
func StartError(err error) error {
	text := err.Error()
	// First temporary shortages of the host: the error of a runtime that cannot fork
	// contains "exec", too.
	for _, sign := range []string{"fork/exec", "resource temporarily unavailable", "cannot allocate memory", "too many open files", "no space left on device"} {
		if strings.Contains(strings.ToLower(text), sign) {
			return fmt.Errorf("start: %w: %w", runtime.ErrUnavailable, err)
		}
	}
	for _, sign := range []string{
		"executable file not found", "exec: \"", "exec /", "chdir to cwd", "container init: mkdir ",
		"failed to load ", "error finding executable", "failed to create process working directory",
		"executable file `", "open executable", "exec container process", "chdir `", "chdir to `",
	} {
		if strings.Contains(text, sign) {
			return fmt.Errorf("%w: %s", runtime.ErrNotStarted, lastPart(text))
		}
	}
	return Refusal{fmt.Errorf("start: %w", daemon.Native(err))}
}

// lastPart keeps what follows an OCI runtime's chain of prefixes.
func lastPart(text string) string {
	text = strings.TrimSuffix(text, ": unknown")
	for _, mark := range []string{"unable to start container process: ", "exec failed: ", "create failed: ", "starting sandbox: ", "creating process: ", "in sandbox: "} {
		if _, rest, ok := strings.Cut(text, mark); ok {
			text = rest
		}
	}
	return text
}
