package record

import (
	"context"
	"errors"
	"io"
	"math"
	"os"
	"path"

	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

// linkTree puts the file or directory name, below from, at the same place below to, in place of what is there.
// Files and symbolic links become hard links, or copies if the file systems differ.
func linkTree(ctx context.Context, from, to *os.Root, name string) error {
	info, err := from.Lstat(name)
	if err = errors.Join(err, to.RemoveAll(name), to.MkdirAll(path.Dir(name), 0o755)); err != nil {
		return err
	}
	if !info.IsDir() {
		return linkFile(from, to, name)
	}
	if err := to.Mkdir(name, 0o700); err != nil {
		return err
	}
	source, err := foreign.OpenDir(from, name)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	target, err := to.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = target.Close() }()
	_, err = workspace.CopyTree(ctx, source, target, workspace.TreeOptions{Link: true})
	return err
}

// linkFile is linkTree for anything but a directory.
func linkFile(from, to *os.Root, name string) error {
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
	if linked, err := workspace.Link(source, target, path.Base(name)); linked || err != nil {
		return err
	}
	in, err := foreign.Open(from, name, math.MaxInt64)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := OpenFile(to, name, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
