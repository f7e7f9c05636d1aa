// Package layer stores the changes of a sandbox to its image's files as an OCI image layer
// (image-spec, "Image Layer Filesystem Changeset"), compressed with zstd, and puts such a layer
// over an image again: [Write], [Apply].
//
// An untrusted process made the changes. Write reads them after the process has ended, name by name
// below open directories, and within a [Budget]. The layer has regular files, pipes, hard and symbolic
// links and directories with their owners, permission bits, modification times, access lists and the
// extended attributes of users. It has no devices, sockets and other attributes. Setuid bits have no effect:
// only directories that no user of the host can reach get a layer, and sandboxes have no_new_privs.
//
// This package does not use containerd's package archive, which writes a file named .wh.x under this
// name, so that applying the layer would remove another file.
package layer

import (
	"archive/tar"
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"math"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

// Suffix is added to the name of a workspace to name the layer that belongs to it.
const Suffix = ".layer.tar.zst"

const (
	whiteout = ".wh."                // before the name of an entry that was removed
	opaque   = whiteout + ".wh..opq" // in a directory that hides the contents of the image's directory

	maxDepth  = 128     // directories inside one another
	maxName   = 4096    // bytes of a path
	maxWindow = 8 << 20 // bytes of zstd's window when reading a layer; Write uses less
)

// ErrInvalid means that data is not a layer in the form that Write gives it.
var ErrInvalid = errors.New("invalid layer")

// A Budget is how much a layer may hold. Both fields must be positive.
type Budget struct {
	Bytes   int64 // the sum of the regular files' sizes, holes included
	Entries int64 // of any type
}

func (l *Budget) count(size int64) error {
	if l.Entries--; l.Entries < 0 {
		return errTooMany
	}
	if l.Bytes -= size; l.Bytes < 0 {
		return fmt.Errorf("%w: too many bytes in the layer of changes to the image", workspace.ErrTooBig)
	}
	return nil
}

var errTooMany = fmt.Errorf("%w: too many entries in the layer of changes to the image", workspace.ErrTooBig)

// Kind is the type of an entry of a layer.
type Kind int

// The kinds of entries.
const (
	File      Kind = iota + 1
	Directory      // its contents are added to the image's
	Symlink
	Hardlink
	Removed // removes the image's entry of this path
	Opaque  // follows a Directory of the same path, and removes the image's contents of it
	Pipe
)

// An Entry is one change.
type Entry struct {
	Path   string // clean and relative to the root of the file system
	Kind   Kind
	Target string // of a link; for a hard link, the Path of another entry
	Size   int64  // of a file, in bytes
	Mode   fs.FileMode

	header  *tar.Header
	content *bufio.Reader
}

// Read reads the content of a file. It returns io.EOF at the end, and after the next entry was read.
func (e *Entry) Read(p []byte) (int, error) { return e.content.Read(p) }

// Peek returns the first n bytes of a file before anything was read from it, or fewer if the file is
// shorter. n is at most 64 KiB.
func (e *Entry) Peek(n int) ([]byte, error) {
	text, err := e.content.Peek(n)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return text, err
}

// Open opens the layer name in root if its content has the digest. The caller closes the file.
func Open(ctx context.Context, root *os.Root, name, digest string) (*os.File, error) {
	f, err := foreign.OpenDigest(ctx, root, name, digest, math.MaxInt64)
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrInvalid, name, err)
	}
	return f, nil
}

// Entries yields the entries of a layer in its order, a directory before its contents. An entry
// is valid until the next is read. An error ends the sequence. It matches ErrInvalid or
// workspace.ErrTooBig if the layer is at fault.
func Entries(ctx context.Context, r io.Reader, limits Budget) iter.Seq2[*Entry, error] {
	return func(yield func(*Entry, error) bool) {
		plain, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow))
		if err != nil {
			yield(nil, fmt.Errorf("%w: %w", ErrInvalid, err))
			return
		}
		defer plain.Close()
		archive, content, directory := tar.NewReader(plain), bufio.NewReaderSize(nil, 64<<10), ""
		for {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				return
			}
			var e *Entry
			if err == nil {
				content.Reset(archive)
				e, err = entryOf(header, content)
			}
			if err == nil && e.Kind == Opaque && e.Path != directory {
				err = fmt.Errorf("entry %q does not follow its directory", header.Name)
			}
			if err != nil {
				err = fmt.Errorf("%w: %w", ErrInvalid, err)
			} else {
				err = errors.Join(limits.count(e.Size), context.Cause(ctx))
			}
			if !yield(e, err) || err != nil {
				return
			}
			if directory = ""; e.Kind == Directory {
				directory = e.Path
			}
		}
	}
}

// entryOf checks a header. Nothing in it is trusted: the file may have been replaced.
func entryOf(h *tar.Header, content *bufio.Reader) (*Entry, error) {
	name := strings.TrimSuffix(h.Name, "/")
	if !valid(name) || !fits(name) || strings.Count(name, "/") >= maxDepth {
		return nil, fmt.Errorf("%.300q is no path in a layer", h.Name)
	}
	e := &Entry{Path: name, Mode: h.FileInfo().Mode(), header: h, content: content}
	dir, base := path.Split(name)
	switch {
	case base == opaque:
		e.Path, e.Kind = path.Clean(dir), Opaque
	case strings.HasPrefix(base, whiteout):
		e.Path, e.Kind = dir+strings.TrimPrefix(base, whiteout), Removed
	case h.Typeflag == tar.TypeReg:
		e.Kind, e.Size = File, h.Size
	case h.Typeflag == tar.TypeDir:
		e.Kind = Directory
	case h.Typeflag == tar.TypeFifo:
		e.Kind = Pipe
	case h.Typeflag == tar.TypeSymlink && h.Linkname != "" && len(h.Linkname) < maxName:
		e.Kind, e.Target = Symlink, h.Linkname
	case h.Typeflag == tar.TypeLink && valid(h.Linkname):
		e.Kind, e.Target = Hardlink, h.Linkname
	default:
		return nil, fmt.Errorf("entry %q of type %q", name, h.Typeflag)
	}
	if (e.Kind == Opaque || e.Kind == Removed) && (!valid(e.Path) || h.Size != 0) {
		return nil, fmt.Errorf("entry %q", name)
	}
	return e, nil
}

// valid reports whether name is a clean path below a root. Unlike [fs.ValidPath], it accepts names
// that are not UTF-8.
func valid(name string) bool {
	return name != "." && filepath.IsLocal(name) && path.Clean(name) == name
}
