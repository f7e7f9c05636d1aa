package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/shim"
)

// findShim returns the path of sbench's shim: beside this program or in PATH. A daemon in another mount
// namespace, such as that of a Kubernetes node, gets a copy in a directory that it shares.
func (h *Host) findShim() (string, error) {
	path, err := lookShim()
	if err != nil || !h.conn.Inherited.Apart {
		return path, err
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	shared := filepath.Join(h.opts.Root, shim.Program)
	unfinished := shared + "-" + owner.RandomID()
	if err := errors.Join(os.WriteFile(unfinished, text, 0o700), os.Rename(unfinished, shared)); err != nil {
		return "", errors.Join(err, os.Remove(unfinished))
	}
	return shared, nil
}

func lookShim() (string, error) {
	if self, err := os.Executable(); err == nil {
		beside := filepath.Join(filepath.Dir(self), shim.Program)
		if path, err := exec.LookPath(beside); err == nil {
			return path, nil
		}
	}
	path, err := exec.LookPath(shim.Program)
	if err != nil {
		return "", fmt.Errorf("%w: %s is neither beside sbench nor in PATH: install it beside sbench", runtime.ErrUnavailable, shim.Program)
	}
	return filepath.Abs(path)
}

// Shim returns the daemon's name of the shim, for records.
func (h *Host) Shim() string { return shim.Runtime }
