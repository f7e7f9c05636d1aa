package host

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/runtime/owner"
	"github.com/securebench/sbench/runtime/shim"
)

// findShim returns the path of sbench's shim, which may be a link of the shim's name to this program. A daemon in another mount namespace, such as a Kubernetes
// node's, gets a copy in a directory that it shares.
func (k *kinds) findShim() (string, error) {
	path, err := shim.Look()
	if err != nil || !k.conn.Inherited.Apart && filepath.Base(path) == shim.Program {
		return path, err
	}
	named := filepath.Join(k.opts.Root, shim.Program)
	unfinished := named + "-" + owner.RandomID()
	if k.conn.Inherited.Apart {
		var text []byte
		if text, err = os.ReadFile(path); err == nil {
			err = os.WriteFile(unfinished, text, 0o700)
		}
	} else {
		err = os.Symlink(path, unfinished)
	}
	if err == nil {
		err = os.Rename(unfinished, named)
	}
	if err != nil {
		_ = os.Remove(unfinished)
		return "", fmt.Errorf("give the shim its name: %w", err)
	}
	return named, nil
}
