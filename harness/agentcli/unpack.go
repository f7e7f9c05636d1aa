package agentcli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/securebench/sbench/workspace"
)

const (
	maxFiles     = 20000
	maxUnpacked  = 2 << 30 // bytes
	topDirectory = "package"
)

// unpack writes the regular files of an npm archive below to, which must not exist. Every
// entry must be below "package", and must be a file or directory: no link can be followed or
// lead out.
func unpack(archive, to string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	return unpackAll(tar.NewReader(zipped), root)
}

func unpackAll(entries *tar.Reader, root *os.Root) error {
	left := int64(maxUnpacked)
	for count := 0; ; count++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		if left -= h.Size; left < 0 || count == maxFiles {
			return fmt.Errorf("archive: more than %d bytes or %d files", int64(maxUnpacked), maxFiles)
		}
		if err := unpackEntry(entries, h, root); err != nil {
			return fmt.Errorf("archive: entry %q: %w", h.Name, err)
		}
	}
}

func unpackEntry(from io.Reader, h *tar.Header, root *os.Root) error {
	name, ok := strings.CutPrefix(path.Clean(h.Name), topDirectory+"/")
	switch {
	case h.Typeflag == tar.TypeDir && path.Clean(h.Name) == topDirectory:
		return nil
	case h.Typeflag == tar.TypeDir && ok && filepath.IsLocal(name):
		return root.MkdirAll(name, 0o755)
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("is no file (type %q)", h.Typeflag)
	case !ok || !filepath.IsLocal(name):
		return errors.New("is not below " + topDirectory)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// digestTree digests a directory tree. Special files, which have no digest, are an error.
func digestTree(ctx context.Context, dir string) (workspace.TreeReport, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return workspace.TreeReport{}, err
	}
	defer func() { _ = root.Close() }()
	tree, err := workspace.DigestTree(ctx, root, workspace.TreeOptions{})
	if err == nil && tree.DroppedCount > 0 {
		err = fmt.Errorf("%w: %s is no file", ErrIntegrity, tree.Dropped[0])
	}
	return tree, err
}
