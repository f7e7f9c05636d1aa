package layer

import (
	"archive/tar"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

const maxDropped = 100

// A Report describes a layer that was written.
type Report struct {
	Digest  string   // "sha256:" and the SHA-256 of the compressed bytes
	DiffID  string   // as Digest, of the bytes before compression (image-spec, config.md)
	Size    int64    // number of compressed bytes
	Dropped []string // the first 100 entries that no layer may have: absolute paths, with types
}

// Write writes the changes of a stopped sandbox, and the changes below them, as one layer. The same changes give the same bytes.
// Errors match workspace.ErrTooBig if the changes exceed the limits.
func Write(ctx context.Context, to io.Writer, changes runtime.Changes, limits Budget) (Report, error) {
	var dirs []*os.Root
	for _, name := range []string{changes.Dir, changes.Below} {
		if name == "" {
			continue
		}
		root, err := os.OpenRoot(name)
		if err != nil {
			return Report{}, err
		}
		defer func() { _ = root.Close() }()
		dirs = append(dirs, root)
	}
	return compress(to, func(archive *tar.Writer, r *Report) error {
		w := writer{ctx: ctx, archive: archive, changes: changes, limits: limits, links: map[inode]string{}, report: r}
		return w.directory(dirs, "", 1)
	})
}

// compress writes what fill puts into the archive to a layer.
func compress(to io.Writer, fill func(*tar.Writer, *Report) error) (Report, error) {
	sum, diff := sha256.New(), sha256.New()
	size := &counter{}
	packed, err := zstd.NewWriter(io.MultiWriter(to, sum, size), zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest))
	if err != nil {
		return Report{}, err
	}
	archive := tar.NewWriter(io.MultiWriter(packed, diff))
	var r Report
	err = fill(archive, &r)
	if err == nil {
		err = errors.Join(archive.Close(), packed.Close())
	} else {
		packed.Reset(nil) // releases its memory without writing
	}
	r.Digest, r.DiffID, r.Size = workspace.DigestOf(sum), workspace.DigestOf(diff), size.n
	return r, err
}

type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) { c.n += int64(len(p)); return len(p), nil }

type inode struct{ device, number uint64 }

type writer struct {
	ctx     context.Context // allowed in a struct here: the writer ends with the call that made it
	archive *tar.Writer
	changes runtime.Changes
	limits  Budget
	links   map[inode]string // the first name of each file that has several
	marked  string           // the last mark
	report  *Report
}

// directory writes the entries of a directory that merges dirs, the topmost first.
func (w *writer) directory(dirs []*os.Root, rel string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: more than %d directories deep", workspace.ErrTooBig, maxDepth)
	}
	having := map[string][]*os.Root{} // the parts in which there is an entry of this name
	for _, dir := range dirs {
		names, opaque, err := w.names(dir, rel)
		if err != nil {
			return err
		}
		for _, name := range names {
			having[name] = append(having[name], dir)
		}
		if opaque {
			break
		}
	}
	for _, name := range slices.Sorted(maps.Keys(having)) {
		if w.ctx.Err() != nil {
			return context.Cause(w.ctx)
		}
		if at := path.Join(rel, name); !slices.Contains(w.changes.Mounts, "/"+at) {
			if err := w.entry(having[name], name, at, depth); err != nil {
				return err
			}
		}
	}
	return nil
}

// names reads one part of a directory. If the part hides the parts below it, names writes a mark for that.
func (w *writer) names(dir *os.Root, rel string) (names []string, hides bool, err error) {
	f, err := dir.Open(".")
	if err != nil {
		return nil, false, fmt.Errorf("open directory %q: %w", rel, err)
	}
	names, err = f.Readdirnames(int(w.limits.Entries) + 1)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	if err == nil && rel != "" && isOpaque(f) {
		hides, err = true, w.mark(path.Join(rel, opaque))
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, false, fmt.Errorf("read directory %q: %w", rel, err)
	}
	if int64(len(names)) > w.limits.Entries {
		return nil, false, errTooMany
	}
	return names, hides, nil
}

// subdirectory writes the entries of a directory that begins in the first of dirs. If a part is no directory, it hides the
// parts below it.
func (w *writer) subdirectory(dirs []*os.Root, name, rel string, depth int) error {
	var parts []*os.Root
	defer func() {
		for _, part := range parts {
			_ = part.Close()
		}
	}()
	for _, dir := range dirs {
		info, err := dir.Lstat(name)
		if err == nil && !info.IsDir() {
			if err := w.mark(path.Join(rel, opaque)); err != nil {
				return err
			}
			break
		}
		var part *os.Root
		if err == nil {
			part, err = dir.OpenRoot(name)
		}
		if err != nil {
			return fmt.Errorf("open directory %q: %w", rel, err)
		}
		parts = append(parts, part)
	}
	return w.directory(parts, rel, depth+1)
}

// isOpaque reports whether a directory hides the directory below it. overlayfs then gives it an
// attribute in the namespace trusted or, for an unprivileged mount, user (overlayfs.rst in the
// kernel's documentation). For a mount of root, the latter is an attribute like others, which the candidate can set.
func isOpaque(dir *os.File) bool {
	name := "trusted.overlay.opaque"
	if userns.Inside() {
		name = "user.overlay.opaque"
	}
	value := make([]byte, 2)
	n, err := unix.Fgetxattr(int(dir.Fd()), name, value)
	return err == nil && string(value[:n]) == "y"
}

// mark writes an entry that removes an entry of the image. It writes the same mark once, though each of two parts of a
// directory may hide what is below.
func (w *writer) mark(name string) error {
	if name == w.marked {
		return nil
	}
	w.marked = name
	if err := w.limits.count(0); err != nil {
		return err
	}
	return w.archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600})
}

// entry writes the named entry of the topmost of dirs. All of dirs have an entry of this name.
func (w *writer) entry(dirs []*os.Root, name, rel string, depth int) error {
	dir := dirs[0]
	info, err := dir.Lstat(name)
	if err != nil {
		return fmt.Errorf("stat %q: %w", rel, err)
	}
	st := info.Sys().(*syscall.Stat_t)
	kind, target := info.Mode().Type(), ""
	switch {
	case kind == fs.ModeDevice|fs.ModeCharDevice && st.Rdev == 0:
		return w.mark(path.Join(path.Dir(rel), whiteout+name))
	case strings.HasPrefix(name, whiteout) || len(path.Join(rel, opaque)) >= maxName, kind&^(fs.ModeDir|fs.ModeSymlink|fs.ModeNamedPipe) != 0:
		return w.drop(rel, st.Mode)
	case kind == fs.ModeSymlink:
		if target, err = dir.Readlink(name); err != nil {
			return fmt.Errorf("read link %q: %w", rel, err)
		}
	}
	header, err := tar.FileInfoHeader(info, target)
	if err != nil {
		return fmt.Errorf("entry %q: %w", rel, err)
	}
	header.Name, header.Uname, header.Gname = rel, "", "" // not the host's names
	header.AccessTime, header.ChangeTime = time.Time{}, time.Time{}
	header.Format = tar.FormatPAX // which has fractions of seconds
	header.Mode = int64(st.Mode & 0o7777)
	if kind != fs.ModeSymlink {
		if header.PAXRecords, err = readAttributes(dir, name); err != nil {
			return fmt.Errorf("attributes of %q: %w", rel, err)
		}
	}
	if info.IsDir() {
		header.Name = rel + "/"
	} else if kind == 0 && st.Nlink > 1 {
		at := inode{st.Dev, st.Ino}
		if first, ok := w.links[at]; ok {
			header.Typeflag, header.Linkname, header.Size = tar.TypeLink, first, 0
		} else {
			w.links[at] = rel
		}
	}
	if err := errors.Join(w.limits.count(header.Size), w.archive.WriteHeader(header)); err != nil {
		return fmt.Errorf("entry %q: %w", rel, err)
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return w.subdirectory(dirs, name, rel, depth)
	case tar.TypeReg:
		return w.content(dir, name, rel, info)
	}
	return nil
}

func (w *writer) drop(rel string, mode uint32) error {
	if len(w.report.Dropped) < maxDropped {
		w.report.Dropped = append(w.report.Dropped, fmt.Sprintf("/%s (%s)", rel, cmp.Or(workspace.TypeName(mode), "no name for a layer")))
	}
	return w.limits.count(0)
}

func (w *writer) content(dir *os.Root, name, rel string, info fs.FileInfo) error {
	f, err := dir.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", rel, err)
	}
	_, err = io.Copy(w.archive, io.LimitReader(foreign.Until(w.ctx, f), info.Size()))
	return errors.Join(err, f.Close())
}
