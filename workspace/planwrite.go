package workspace

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/workspace/foreign"
)

// WriteDir is Write for the directory of that name.
func (p Plan) WriteDir(ctx context.Context, dir string, maxBytes int64) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	return errors.Join(p.Write(ctx, root, maxBytes), root.Close())
}

// Write writes the plan's entries below root: at most maxBytes bytes, or 8 GiB if that is 0, and a million files and
// directories. It replaces existing files, adds to existing directories, and follows no symbolic link. If a bound is
// exceeded, the error matches ErrTooBig.
func (p Plan) Write(ctx context.Context, root *os.Root, maxBytes int64) error {
	w := planWriter{to: root, bytes: cmp.Or(maxBytes, defaultMaxBytes), files: defaultMaxFiles}
	for _, e := range p.Entries {
		if err := w.entry(ctx, e); err != nil {
			return fmt.Errorf("write %q: %w", e.Dest, err)
		}
	}
	return nil
}

// Places returns the paths, relative to the host directory dir, of the entries to mount so that
// everything in dir appears in the directory at, an absolute path in the file system root. A mount
// must not hide a directory of root: if root has a directory, too, Places returns the entries of the
// directory instead. It is an error if dir has a file where root has a directory.
func Places(dir string, root *os.Root, at string) (places []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		there, err := root.Stat(strings.TrimPrefix(path.Join(at, e.Name()), "/"))
		switch {
		case err != nil || !there.IsDir():
			places = append(places, e.Name())
			continue
		case !e.IsDir():
			return nil, fmt.Errorf("a file of the task would hide the directory %s of the image", path.Join(at, e.Name()))
		}
		below, err := Places(filepath.Join(dir, e.Name()), root, path.Join(at, e.Name()))
		if err != nil {
			return nil, err
		}
		for _, name := range below {
			places = append(places, path.Join(e.Name(), name))
		}
	}
	return places, nil
}

// planWriter writes files that nobody changes meanwhile into a workspace that nobody uses.
type planWriter struct {
	to           *os.Root
	bytes, files int64 // that may still be written
}

// entry writes an entry. The pack's files get the permission bits of a fresh checkout, whatever theirs are on this host.
func (w *planWriter) entry(ctx context.Context, e Entry) error {
	if err := w.directory(path.Dir(e.Dest)); err != nil {
		return err
	}
	if e.Source.Root == "" {
		data := e.Source.Data.Reveal()
		return w.file(e.Dest, bytes.NewReader(data), int64(len(data)), fs.FileMode(e.Mode))
	}
	root, err := os.OpenRoot(e.Source.Root)
	if err != nil {
		return err
	}
	defer shut(root)
	readOnly := fs.FileMode(0)
	if e.ReadOnly {
		readOnly = 0o222
	}
	var finish []func() error // directories get their modes and times after their contents
	err = e.Source.walk(func(rel string, info fs.FileInfo) error {
		if err := context.Cause(ctx); err != nil {
			return err
		}
		to, mode := path.Join(e.Dest, rel), fs.FileMode(0o644)
		if info.IsDir() || info.Mode()&0o111 != 0 {
			mode = 0o755
		}
		end := func() error {
			return errors.Join(w.to.Chmod(to, mode&^readOnly), w.to.Chtimes(to, info.ModTime(), info.ModTime()))
		}
		if info.IsDir() {
			if to != "." {
				finish = append(finish, end)
			}
			return w.directory(to)
		}
		from, err := foreign.Open(root, path.Join(e.Source.Path, rel), info.Size())
		if err != nil {
			return err
		}
		defer shut(from)
		if err := w.file(to, from, info.Size(), mode); err != nil {
			return err
		}
		return end()
	})
	if err != nil {
		return err
	}
	for _, end := range slices.Backward(finish) {
		if err := end(); err != nil {
			return err
		}
	}
	return nil
}

// directory makes a directory and those above it, unless they exist. A symbolic link in place of one is an error.
func (w *planWriter) directory(name string) error {
	if name == "." {
		return nil
	}
	if err := w.directory(path.Dir(name)); err != nil {
		return err
	}
	info, err := w.to.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := w.count(0); err != nil {
			return err
		}
		if err := w.to.Mkdir(name, 0o755); err != nil {
			return err
		}
		return w.to.Chmod(name, 0o755) // the umask may have cleared bits
	case err == nil && !info.IsDir():
		return &fs.PathError{Op: "open directory", Path: name, Err: unix.ENOTDIR}
	}
	return err
}

func (w *planWriter) count(size int64) error {
	w.bytes, w.files = w.bytes-size, w.files-1
	if w.bytes < 0 || w.files < 0 {
		return fmt.Errorf("%w: more bytes or files than the workspace may have", ErrTooBig)
	}
	return nil
}

// file writes a file of the size, and replaces what has its name but is no directory.
func (w *planWriter) file(name string, from io.Reader, size int64, mode fs.FileMode) error {
	if err := w.count(size); err != nil {
		return err
	}
	if info, err := w.to.Lstat(name); err == nil && info.IsDir() {
		return &fs.PathError{Op: "create", Path: name, Err: unix.EISDIR}
	}
	if err := w.to.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := w.to.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = io.CopyN(f, from, size)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// ReplaceFile replaces a file by what write writes, as a whole or not at all, even if several processes replace it at the
// same time. It returns the file's size in bytes.
func ReplaceFile(name string, mode fs.FileMode, write func(io.Writer) error) (size int64, err error) {
	f, err := os.CreateTemp(filepath.Dir(name), ".new-*")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	err = errors.Join(write(f), f.Chmod(mode))
	size, sizeErr := f.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, sizeErr, f.Close()); err != nil {
		return 0, err
	}
	return size, os.Rename(f.Name(), name)
}
