package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler/document"
)

// errSymlink means that a pack's file is a symbolic link or is reached through one.
var errSymlink = errors.New("symbolic links are not allowed in a pack's files")

// shut closes a file that was only read: an error cannot mean lost data.
func shut(c io.Closer) { _ = c.Close() }

// assetRoot is one of a pack's asset roots, opened on first use.
type assetRoot struct {
	path  string
	root  *os.Root
	links bool // symbolic links are visited instead of refused
}

func (r *assetRoot) open() (err error) {
	if r.root == nil {
		r.root, err = os.OpenRoot(r.path)
	}
	return err
}

func (r *assetRoot) close() {
	if r.root != nil {
		shut(r.root)
	}
}

// WalkFiles calls visit for the file or directory name below an asset root and everything below
// it, in the order of names. A symbolic link (even on the way to name), a special file or a name
// that is not UTF-8 is an error.
func WalkFiles(root, name string, visit func(name string, info fs.FileInfo) error) error {
	r := assetRoot{path: root}
	defer r.close()
	return r.walk(name, visit)
}

// WalkLinks is WalkFiles for a whole root, and visits symbolic links instead of refusing them.
func WalkLinks(root string, visit func(name string, info fs.FileInfo) error) error {
	r := assetRoot{path: root, links: true}
	defer r.close()
	return r.walk(".", visit)
}

// walk is WalkFiles for an open root.
func (r *assetRoot) walk(name string, visit func(name string, info fs.FileInfo) error) error {
	if err := r.open(); err != nil {
		return fmt.Errorf("%q: %w", name, document.Bare(err))
	}
	above := ""
	for part := range strings.SplitSeq(path.Dir(path.Clean(name)), "/") {
		above = path.Join(above, part)
		if info, err := r.root.Lstat(above); err == nil && info.Mode()&fs.ModeSymlink != 0 {
			return fmt.Errorf("%q: %w", above, errSymlink)
		}
	}
	return fs.WalkDir(r.root.FS(), path.Clean(name), func(name string, _ fs.DirEntry, err error) error {
		if !utf8.ValidString(name) {
			return fmt.Errorf("%q: the name is not UTF-8, which records and other file systems need", name)
		}
		info, statErr := r.root.Lstat(name)
		switch {
		case statErr == nil && info.Mode()&fs.ModeSymlink != 0:
			if !r.links {
				return fmt.Errorf("%q: %w", name, errSymlink)
			}
		case statErr != nil || err != nil:
			return fmt.Errorf("%q: %w", name, document.Bare(cmp.Or(statErr, err)))
		case !info.IsDir() && !info.Mode().IsRegular():
			return fmt.Errorf("%q is no file or directory", name)
		}
		return visit(name, info)
	})
}
