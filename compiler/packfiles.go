package compiler

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"

	"golang.org/x/sys/unix"
)

// errSymlink says that a pack's file is, or is reached through, a symbolic
// link.
var errSymlink = errors.New("symbolic links are not allowed in a pack's files")

// shut closes a file that was only read: an error cannot mean lost data.
func shut(c io.Closer) { _ = c.Close() }

// packFile is one file or folder of a pack.
type packFile struct {
	path string // clean, relative to its root
	info fs.FileInfo
}

// statFile describes a file or folder below root. It does not follow symbolic links:
// one anywhere in the path is an error.
func statFile(root *os.Root, name string) (packFile, error) {
	walked := ""
	for part := range strings.SplitSeq(path.Clean(name), "/") {
		walked = path.Join(walked, part)
		info, err := root.Lstat(walked)
		switch {
		case err != nil:
			return packFile{}, fmt.Errorf("%q: %w", name, bare(err))
		case info.Mode()&fs.ModeSymlink != 0:
			return packFile{}, fmt.Errorf("%q: %w", name, errSymlink)
		case walked == path.Clean(name):
			if !info.IsDir() && !info.Mode().IsRegular() {
				return packFile{}, fmt.Errorf("%q is no file or folder", name)
			}
			return packFile{walked, info}, nil
		}
	}
	return packFile{}, fmt.Errorf("%q: %w", name, fs.ErrNotExist)
}

// bare removes the operation and the path from a file error.
func bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}

// walkFiles calls visit for the file or folder name below root and everything below
// it, in the order of the names. A symbolic link or special file is an error.
func walkFiles(root *os.Root, name string, visit func(packFile) error) error {
	f, err := statFile(root, name)
	if err != nil {
		return err
	}
	if err := visit(f); err != nil || !f.info.IsDir() {
		return err
	}
	entries, err := fs.ReadDir(root.FS(), f.path)
	if err != nil {
		return fmt.Errorf("%q: %w", name, bare(err))
	}
	for _, entry := range entries {
		if err := walkFiles(root, path.Join(f.path, entry.Name()), visit); err != nil {
			return err
		}
	}
	return nil
}

// record returns what a digest covers of a file or folder; see fileHasher.records.
func (f packFile) record(root *os.Root) (string, error) {
	if f.info.IsDir() {
		return "d 0755 -", nil
	}
	mode := "0644"
	if f.info.Mode()&0o111 != 0 {
		mode = "0755"
	}
	file, err := root.OpenFile(f.path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return "", fmt.Errorf("%q: %w", f.path, bare(err))
	}
	defer shut(file)
	h := sha256.New()
	if _, err := io.Copy(h, file); err != nil {
		return "", fmt.Errorf("%q: %w", f.path, bare(err))
	}
	return fmt.Sprintf("f %s %x", mode, h.Sum(nil)), nil
}
