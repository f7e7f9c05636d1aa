package host

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/shim"
)

// executesProgram reports whether a handler's shim executes the OCI runtime that it is told.
func executesProgram(handler string) bool {
	return handler == HandlerAuto || handler == RuncHandler || isOwn(handler)
}

func isOwn(handler string) bool {
	return handler == shim.Runtime || filepath.Base(handler) == shim.Program
}

// findShims returns the names, for the daemon, of the shims to be tried for a handler.
func findShims(handler string) ([]string, error) {
	own, err := findOwn()
	switch {
	case handler == HandlerAuto && err != nil:
		return []string{RuncHandler}, nil
	case handler == HandlerAuto:
		return []string{own, RuncHandler}, nil
	case handler == shim.Runtime && err != nil:
		return nil, fmt.Errorf("handler %s %w: %w", handler, runtime.ErrInvalid, err)
	case handler == shim.Runtime:
		return []string{own}, nil
	}
	return []string{handler}, nil
}

// findOwn returns the path of sbench's shim: beside this program or in PATH.
func findOwn() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), shim.Program)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(shim.Program)
	if err != nil {
		return "", fmt.Errorf("%s is neither beside sbench nor in PATH", shim.Program)
	}
	return filepath.Abs(path)
}

// Shim returns the name of the shim in use, as Options.Handler has it; "" until a run has been
// made.
func (h *Host) Shim() string {
	name := h.choice().shim
	if isOwn(name) {
		return shim.Runtime
	}
	return name
}
