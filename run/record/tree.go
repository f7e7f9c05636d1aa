package record

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/workspace"
)

// linkTree gives the file or directory that one run's directory has under a name to another's,
// in place of what that has there. Files and symbolic links become hard links, directories keep their modes
// and, for root, their owners. Where no hard link can be made, as between file systems,
// everything is copied.
func linkTree(ctx context.Context, from, to *os.Root, name string) error {
	err := errors.Join(to.RemoveAll(name), to.MkdirAll(path.Dir(name), 0o755))
	if err != nil {
		return err
	}
	source, err := from.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := to.Open(path.Dir(name))
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	info, err := from.Lstat(name)
	if err != nil {
		return err
	}
	err = linkEntry(source, target, info)
	if !errors.Is(err, unix.EXDEV) && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EMLINK) {
		return err
	}
	if err := to.RemoveAll(name); err != nil {
		return err
	}
	if info.IsDir() {
		return copyDir(ctx, from, to, name, info.Mode().Perm())
	}
	return copyFile(from, to, name)
}

// linkEntry links an entry of the directory from into the directory to.
func linkEntry(from, to *os.File, info fs.FileInfo) error {
	name := info.Name()
	if !info.IsDir() {
		return pathError("link", name, unix.Linkat(int(from.Fd()), name, int(to.Fd()), name, 0))
	}
	if err := unix.Mkdirat(int(to.Fd()), name, 0o700); err != nil {
		return pathError("mkdir", name, err)
	}
	source, err := openDir(from, name)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := openDir(to, name)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	entries, err := source.Readdir(-1)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := linkEntry(source, target, e); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 {
		var st unix.Stat_t
		if err = unix.Fstat(int(source.Fd()), &st); err == nil {
			err = target.Chown(int(st.Uid), int(st.Gid))
		}
	}
	return errors.Join(err, target.Chmod(info.Mode().Perm()))
}

func copyDir(ctx context.Context, from, to *os.Root, name string, mode fs.FileMode) error {
	if err := to.Mkdir(name, 0o700); err != nil {
		return err
	}
	source, err := from.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := to.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	_, err = workspace.CopyTree(ctx, source, target, workspace.TreeOptions{Preserve: os.Geteuid() == 0})
	return errors.Join(err, to.Chmod(name, mode))
}

func copyFile(from, to *os.Root, name string) error {
	source, err := OpenFile(from, name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := OpenFile(to, name, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

func openDir(dir *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat(int(dir.Fd()), name, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func pathError(op, name string, err error) error {
	if err == nil {
		return nil
	}
	return &fs.PathError{Op: op, Path: name, Err: err}
}
