package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	securejoin "github.com/cyphar/filepath-securejoin"
)

// makeMountPoint makes dest, a directory or an empty file, below the root file system at
// root. Nothing else writes there yet, so resolving the path first is no race.
func makeMountPoint(root, dest string, dir bool) error {
	path, err := securejoin.SecureJoin(root, dest)
	if err != nil {
		return fmt.Errorf("mount destination %q: %w", dest, err)
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.IsDir() != dir:
		return fmt.Errorf("mount destination %q: a directory cannot be mounted over a file, nor a file over a directory", dest)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("mount destination %q: %w", dest, err)
	}
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// clearPath prepares the tree at root for a mount at name, a directory or file: it removes what is no directory on the
// way, and name itself if it is a link or of the wrong kind. It follows the image's own links, those that are not in
// wrote, the directory with what an agent wrote of the tree. If wrote is "", the agent wrote all of it.
func clearPath(root, wrote, name string, dir bool) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	at, rest := "", names(name)
	for links := 0; len(rest) > 0; {
		at, rest = filepath.Join(at, rest[0]), rest[1:]
		info, err := r.Lstat(at)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if target, err := r.Readlink(at); err == nil && wrote != "" && links < maxLinks {
			if _, err := os.Lstat(filepath.Join(wrote, at)); errors.Is(err, os.ErrNotExist) {
				if !filepath.IsAbs(target) {
					target = filepath.Join("/", filepath.Dir(at), target)
				}
				at, rest = "", append(names(filepath.Clean(target)), rest...)
				links++
				continue
			}
		}
		last := len(rest) == 0
		if last && info.Mode().IsRegular() && !dir || info.IsDir() && (dir || !last) {
			continue
		}
		return r.RemoveAll(at)
	}
	return nil
}

// maxLinks is how many links the kernel follows in one lookup, path_resolution(7).
const maxLinks = 40

// names returns the names in a path.
func names(p string) []string { return strings.FieldsFunc(p, func(c rune) bool { return c == '/' }) }
