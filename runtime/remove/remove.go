// Package remove removes directory trees that an untrusted process has created. os.RemoveAll and
// Root.RemoveAll are not enough for these: they keep a descriptor open for each level of a tree,
// and stop at a directory that its owner must not read.
package remove

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// chunk bounds how many names of a directory are in memory at once.
const chunk = 1 << 16

// Path is [All] for the host path name. No untrusted process may control any part of its
// directory.
func Path(name string) error {
	root, err := os.OpenRoot(filepath.Dir(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return errors.Join(All(root, filepath.Base(name)), root.Close())
}

// All removes name and everything below it, whatever the permission bits, the depth and the
// number of files, with few descriptors, without following symbolic links or leaving root. A
// missing name is no error. The process must own the tree or be privileged.
func All(root *os.Root, name string) error {
	if !filepath.IsLocal(name) || path.Clean(name) == "." {
		return fmt.Errorf("remove %q: %w", name, fs.ErrInvalid)
	}
	parent, err := root.Open(path.Dir(path.Clean(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	defer func() { _ = parent.Close() }()
	if err := tree(parent, path.Base(path.Clean(name))); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// tree removes the entry name of the directory parent. It moves every directory that it
// finds below name up into name, so that it never follows a deep path.
func tree(parent *os.File, name string) error {
	isDir, err := unlink(parent, name)
	if !isDir {
		return err
	}
	top, err := open(parent, name)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	moved := 0
	err = each(top, func(name string) error {
		isDir, err := unlink(top, name)
		if !isDir {
			return err
		}
		dir, err := open(top, name)
		if err != nil {
			return err
		}
		defer func() { _ = dir.Close() }()
		err = each(dir, func(name string) error {
			isDir, err := unlink(dir, name)
			if isDir {
				err = moveUp(dir, name, top, &moved)
			}
			// Some file systems move no directories (overlays: none of a lower layer), and
			// top may have no room for another name.
			if slices.ContainsFunc([]error{unix.EXDEV, unix.ENOSPC, unix.EDQUOT, unix.EMLINK}, func(e error) bool { return errors.Is(err, e) }) {
				err = tree(dir, name)
			}
			return err
		})
		if err != nil {
			return err
		}
		return unix.Unlinkat(int(top.Fd()), name, unix.AT_REMOVEDIR)
	})
	if err != nil {
		return err
	}
	return unix.Unlinkat(int(parent.Fd()), name, unix.AT_REMOVEDIR)
}

// each calls f, which removes or moves an entry of dir, with all names until none is left.
func each(dir *os.File, f func(name string) error) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		names, err := dir.Readdirnames(chunk)
		if len(names) == 0 {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		for _, name := range names {
			if err := f(name); err != nil {
				return err
			}
		}
	}
}

// unlink removes an entry unless it is a directory. A missing one is no error.
func unlink(dir *os.File, name string) (isDir bool, err error) {
	err = unix.Unlinkat(int(dir.Fd()), name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	var st unix.Stat_t
	switch statErr := unix.Fstatat(int(dir.Fd()), name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(statErr, unix.ENOENT):
		return false, nil
	case statErr != nil:
		return false, errors.Join(err, statErr)
	}
	return st.Mode&unix.S_IFMT == unix.S_IFDIR, err
}

// moveUp moves the directory name from dir to top. It changes its mode first: moving a
// directory requires permission to write to it (rename(2), EACCES).
func moveUp(dir *os.File, name string, top *os.File, moved *int) error {
	opened, err := open(dir, name)
	if err != nil {
		return err
	}
	defer func() { _ = opened.Close() }()
	for {
		*moved++
		err := unix.Renameat(int(dir.Fd()), name, int(top.Fd()), ".sbench-remove-"+strconv.Itoa(*moved))
		if err == nil || !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.ENOTEMPTY) && !errors.Is(err, unix.ENOTDIR) {
			return err
		}
	}
}

// open gives the owner of a directory all permissions and opens it. The descriptor's entry
// in /proc leads to that inode, whatever its present name (proc(5), /proc/pid/fd).
func open(parent *os.File, name string) (*os.File, error) {
	const flags = unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	handle, err := unix.Openat(int(parent.Fd()), name, flags|unix.O_PATH, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(handle) }()
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", handle), 0o700); err != nil {
		return nil, err
	}
	fd, err := unix.Openat(int(parent.Fd()), name, flags|unix.O_RDONLY, 0)
	return os.NewFile(uintptr(fd), name), err
}
