package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/shim"
)

// findShim returns the path of sbench's shim: beside this program or in PATH. A daemon in another mount
// namespace, such as that of a Kubernetes node, gets a copy in a directory that it shares.
func (h *Host) findShim() (string, error) {
	path, err := shim.Look()
	if err != nil {
		return "", fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	if !h.conn.Inherited.Apart {
		return path, nil
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

// Shim returns the daemon's name of the shim, for records.
func (h *Host) Shim() string { return shim.Runtime }
