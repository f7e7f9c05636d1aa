package host

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/userns"
)

const runsc = "runsc" // gVisor's OCI runtime, and the name of its package

// runscFlags are the flags of runsc, each with the reason for it. A runsc of 2023 or later knows all of them.
func runscFlags() []string {
	return []string{
		"--network=host",     // the sockets of the sandbox's network namespace, in which sbench listens, and no other host's
		"--platform=systrap", // needs no virtualization; without it, runsc of before 2023 keeps its processes in the host's PID namespace
		"--overlay2=none",    // what is written goes to the sandbox's layer, which sbench bounds and reads
		"--oci-seccomp",      // the specification's filter, in the sandbox's kernel
	}
}

// findGVisor returns the OCI runtime for sandboxes of gVisor.
func findGVisor(ctx context.Context) (r ociRuntime, err error) {
	if userns.Inside() {
		return r, fmt.Errorf("isolation %s %w without root: runsc makes the control groups and the user namespace of a sandbox as the host's root", runtime.GVisor, runtime.ErrInvalid)
	}
	path, err := lookPath(runsc)
	if err != nil {
		return r, fmt.Errorf("isolation %s %w: %s is not in PATH: install the package %s", runtime.GVisor, runtime.ErrInvalid, runsc, runsc)
	}
	r.path, r.flags = path, runscFlags()
	if r.version, err = versionOf(ctx, path, r.flags...); err != nil {
		return r, fmt.Errorf("%w: isolation %s needs a %s of 2023 or later", err, runtime.GVisor, runsc)
	}
	return r, nil
}

// lookPath returns the absolute path of a program in PATH.
func lookPath(name string) (string, error) {
	path, err := exec.LookPath(name)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}
