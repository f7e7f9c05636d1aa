package service

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/shim"
)

const (
	// RunCandidate names the program that runs a candidate's programs as another user.
	RunCandidate = "run-candidate"
	// candidateID is the user and group as which it runs them.
	candidateID = 65534
)

// MountCandidate returns the mount that a sandbox with [RunCandidate] needs.
func MountCandidate() (runtime.Mount, error) { return mount("/usr/local/bin/" + RunCandidate) }

// mount returns the mount at dest of a program that calls [Inside]: the shim if there is one, which
// starts seven times as fast as sbench, otherwise this program.
func mount(dest string) (runtime.Mount, error) {
	path, err := shim.Look()
	return runtime.Mount{Source: path, Dest: dest}, err
}

// Inside returns at once unless this process was started under the name run-candidate or
// with-services, under which sbench mounts its own programs in sandboxes. It must
// be called first in main. As run-candidate, it runs its arguments as a user that can neither
// read the tests nor inspect the checker's processes; as with-services, it starts services; see [Beside].
// Then it does not return.
func Inside() {
	name := filepath.Base(os.Args[0])
	become, ok := map[string]func([]string) error{RunCandidate: becomeCandidate, Name: start}[name]
	if !ok {
		return
	}
	if err := become(os.Args[1:]); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, name+":", err)
		os.Exit(Failed)
	}
}

func becomeCandidate(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: %s PROGRAM [ARGUMENT...]", RunCandidate)
	}
	program, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	if err := errors.Join(syscall.Setgroups([]int{}), syscall.Setgid(candidateID), syscall.Setuid(candidateID)); err != nil {
		return fmt.Errorf("only root can run programs as another user: %w", err)
	}
	if err := closeOthers(); err != nil {
		return err
	}
	return syscall.Exec(program, args, os.Environ())
}

// closeOthers keeps the program from inheriting other descriptors than the three standard ones: a
// script may have opened tests that the program cannot.
func closeOthers() error {
	open, err := os.ReadDir("/proc/self/fd")
	for _, e := range open {
		if fd, _ := strconv.Atoi(e.Name()); fd > 2 {
			syscall.CloseOnExec(fd)
		}
	}
	return err
}
