package verifiers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
)

const (
	// runCandidate is a program in the sandbox of a checker that asks for it.
	runCandidate = "run-candidate"
	// candidateID is the user and group that it runs programs as.
	candidateID = 65534
)

// RunCandidate makes this process the program run-candidate if it was started under
// that name: it runs its arguments as a user that can neither read the tests nor
// look into the checker's processes. A checker has it if its task says
// run_candidate; it is this executable.
func RunCandidate() {
	if filepath.Base(os.Args[0]) != runCandidate {
		return
	}
	if err := becomeCandidate(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, runCandidate+":", err)
		os.Exit(126)
	}
}

func becomeCandidate(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: %s PROGRAM [ARGUMENT...]", runCandidate)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err := syscall.Setgroups([]int{}); err != nil {
		return fmt.Errorf("only root can run programs as another user: %w", err)
	}
	if err := syscall.Setgid(candidateID); err != nil {
		return err
	}
	if err := syscall.Setuid(candidateID); err != nil {
		return err
	}
	return syscall.Exec(program, args, os.Environ())
}
