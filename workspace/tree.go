package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrTooBig means that a tree exceeds one of its bounds.
var ErrTooBig = errors.New("tree is too big")

// Bounds that hold when a TreeOptions field is zero.
const (
	defaultMaxBytes = 8 << 30
	defaultMaxFiles = 1_000_000
)

// maxDepth bounds how many directories lie inside one another.
const maxDepth = 128

// maxDropped bounds the names kept in TreeReport.Dropped; all are counted.
const maxDropped = 100

// TreeOptions bound a walk over a tree, in which at most 128 directories may lie inside one
// another, and say who owns the copy.
type TreeOptions struct {
	// MaxBytes bounds the sum of the apparent sizes of the regular files, holes
	// included. Zero means 8 GiB.
	MaxBytes int64
	// MaxFiles bounds the number of entries of any type. Zero means a million.
	MaxFiles int64
	// Preserve gives every entry of a copy the numeric owner of its source, which
	// needs CAP_CHOWN. Otherwise the calling process is the owner.
	Preserve bool
	// Own makes a copy that the user of the calling process can read and remove
	// without privileges, even while it is incomplete: each entry belongs to that
	// user, directories have at least u+rwx, files at least u+r. It overrides
	// Preserve.
	Own bool
	// Lost, if not nil, is called under Own with the attributes of every entry whose
	// copy does not get them, in the order of the walk. Its error ends the walk.
	Lost func(Attributes) error
	// attributes, if not nil, replace those of the entries that the list names, both
	// in the digest and in the copy. Errors match ErrAttributes when the list does
	// not fit the tree.
	attributes *attributesReader
}

func (o TreeOptions) withDefaults() TreeOptions {
	o.MaxBytes = cmp.Or(o.MaxBytes, defaultMaxBytes)
	o.MaxFiles = cmp.Or(o.MaxFiles, defaultMaxFiles)
	return o
}

// TreeReport says what a walk over a tree found.
type TreeReport struct {
	Files   int64 // regular files
	Entries int64 // regular files, directories and symbolic links
	Bytes   int64 // the sum of the regular files' apparent sizes

	// Dropped names at most 100 of the entries that are not a regular file, directory
	// or symbolic link. DroppedCount counts all of them.
	Dropped      []string
	DroppedCount int64

	// Digest is "sha256:" and the hexadecimal SHA-256 of the tree's canonical
	// listing: in depth-first order, the names of a directory sorted by their
	// bytes, one record for every entry but the tree's root,
	//
	//	f MODE CONTENT PATH NUL   a regular file, CONTENT its SHA-256 in hex
	//	d MODE - PATH NUL         a directory
	//	l - TARGET PATH NUL       a symbolic link, TARGET its target's SHA-256
	//
	// MODE is the octal permission bits (four digits, without setuid, setgid
	// and sticky), PATH is relative with slashes. Owners, times, links between
	// files and dropped entries do not count.
	Digest string
}

// DigestTree reads the tree below root and reports its digest. Like CopyTree
// it follows no symbolic link and never blocks on a fifo. Errors match
// ErrTooBig when a bound is exceeded.
func DigestTree(ctx context.Context, root *os.Root, opts TreeOptions) (TreeReport, error) {
	src, err := root.Open(".")
	if err != nil {
		return TreeReport{}, fmt.Errorf("open tree: %w", err)
	}
	defer shut(src)
	w := newTreeWalk(ctx, opts)
	if err := w.root(int(src.Fd()), noCopy); err != nil {
		return w.finish(), fmt.Errorf("digest tree: %w", err)
	}
	return w.finish(), nil
}

// noCopy takes the place of the destination's descriptor in a walk that only reads.
const noCopy = -1

// treeWalk is one walk over a tree, copying when it has a destination. It holds open one
// descriptor per level (two when copying) and resolves no path of several elements.
type treeWalk struct {
	ctx    context.Context // kept because the walk lives no longer than the call that made it
	opts   TreeOptions
	report TreeReport
	named  int64 // names read in directories so far
	list   hash.Hash
	buf    []byte

	// asset is set when a pack's files are copied into a workspace, where files with
	// the same names may exist.
	asset *assetCopy
}

func newTreeWalk(ctx context.Context, opts TreeOptions) *treeWalk {
	return &treeWalk{ctx: ctx, opts: opts.withDefaults(), list: sha256.New(), buf: make([]byte, 128<<10)}
}

func (w *treeWalk) finish() TreeReport {
	w.report.Digest = "sha256:" + hex.EncodeToString(w.list.Sum(nil))
	return w.report
}

// record adds an entry to the listing that is digested.
func (w *treeWalk) record(format string, args ...any) {
	w.list.Write(append(fmt.Appendf(nil, format, args...), 0))
}

// root walks the whole tree.
func (w *treeWalk) root(src, dst int) error {
	if err := w.dir(src, dst, "", 1); err != nil {
		return err
	}
	return w.opts.attributes.finished()
}

// dir walks the open directory src and copies it into the open directory dst.
func (w *treeWalk) dir(src, dst int, rel string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: more than %d directories deep", ErrTooBig, maxDepth)
	}
	names, err := w.names(src, rel)
	if err != nil {
		return err
	}
	for _, name := range names {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		if w.report.Entries+w.report.DroppedCount >= w.opts.MaxFiles {
			return w.tooMany()
		}
		if err := w.entry(src, dst, name, path.Join(rel, name), depth); err != nil {
			return err
		}
	}
	return nil
}

// names returns the sorted names in a directory. It fails as soon as the walk has read more
// than it may visit.
func (w *treeWalk) names(src int, rel string) ([]string, error) {
	names, err := readNames(src, w.opts.MaxFiles-w.named)
	w.named += int64(len(names))
	if errors.Is(err, ErrTooBig) {
		return nil, w.tooMany()
	}
	if err != nil {
		return nil, fmt.Errorf("read directory %q: %w", rel, err)
	}
	slices.Sort(names)
	return names, nil
}

func (w *treeWalk) tooMany() error {
	return fmt.Errorf("%w: more than %d files", ErrTooBig, w.opts.MaxFiles)
}

// readNames returns the names in the open directory fd, at most limit of them,
// without moving or closing fd.
func readNames(fd int, limit int64) ([]string, error) {
	dir, err := rewound(fd)
	if err != nil {
		return nil, err
	}
	defer shut(dir)
	var names []string
	for {
		chunk, err := dir.Readdirnames(1024)
		names = append(names, chunk...)
		if int64(len(names)) > limit {
			return nil, ErrTooBig
		}
		if len(chunk) == 0 || err != nil {
			return names, ignoreEOF(err)
		}
	}
}

// rewound returns a duplicate of the open directory fd, at the directory's start. Both
// share their position. Opening the directory again would need a permission that an agent
// may have removed.
func rewound(fd int) (*os.File, error) {
	again, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	dir := os.NewFile(uintptr(again), ".")
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		shut(dir)
		return nil, err
	}
	return dir, nil
}

func (w *treeWalk) entry(src, dst int, name, rel string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(src, name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("stat %q: %w", rel, err)
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG, unix.S_IFDIR, unix.S_IFLNK:
		if err := w.attributes(dst, rel, &st); err != nil {
			return err
		}
	}
	switch st.Mode & unix.S_IFMT {
	case unix.S_IFREG:
		w.report.Files++
		w.report.Entries++
		return w.file(src, dst, name, name, rel, &st)
	case unix.S_IFDIR:
		w.report.Entries++
		return w.subdir(src, dst, name, rel, &st, depth)
	case unix.S_IFLNK:
		if w.asset != nil {
			return fmt.Errorf("%q: %w", rel, errSymlink)
		}
		w.report.Entries++
		return w.link(src, dst, name, rel, &st)
	default:
		if w.asset != nil {
			return fmt.Errorf("%q is a %s, not a file or folder", rel, typeName(st.Mode))
		}
		w.drop(rel, st.Mode)
		return nil
	}
}

func (w *treeWalk) drop(rel string, mode uint32) {
	w.report.DroppedCount++
	if len(w.report.Dropped) < maxDropped {
		w.report.Dropped = append(w.report.Dropped, rel+" ("+typeName(mode)+")")
	}
}

func typeName(mode uint32) string {
	switch mode & unix.S_IFMT {
	case unix.S_IFSOCK:
		return "socket"
	case unix.S_IFIFO:
		return "fifo"
	case unix.S_IFCHR:
		return "character device"
	case unix.S_IFBLK:
		return "block device"
	}
	return "unknown"
}

func (w *treeWalk) subdir(src, dst int, name, rel string, st *unix.Stat_t, depth int) error {
	w.record("d %04o - %s", st.Mode&0o777, rel)
	in, restore, err := openUntrusted(src, name, unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open directory %q: %w", rel, err)
	}
	defer closeFD(in)
	err = w.below(in, dst, name, rel, st, depth)
	return errors.Join(err, restore())
}

// below walks the open directory in, and creates and fills the directory name in dst.
func (w *treeWalk) below(in, dst int, name, rel string, st *unix.Stat_t, depth int) error {
	if dst == noCopy {
		return w.dir(in, noCopy, rel, depth+1)
	}
	if err := unix.Mkdirat(dst, name, 0o700); err != nil && (w.asset == nil || !errors.Is(err, unix.EEXIST)) {
		return fmt.Errorf("make directory %q: %w", rel, err)
	}
	out, err := unix.Openat(dst, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open copied directory %q: %w", rel, err)
	}
	defer closeFD(out)
	if err := w.dir(in, out, rel, depth+1); err != nil {
		return err
	}
	return w.settle(out, rel, st)
}

func (w *treeWalk) link(src, dst int, name, rel string, st *unix.Stat_t) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(src, name, buf)
	if err != nil {
		return fmt.Errorf("read link %q: %w", rel, err)
	}
	target := string(buf[:n])
	w.record("l - %x %s", sha256.Sum256(buf[:n]), rel)
	if dst == noCopy {
		return nil
	}
	if err := unix.Symlinkat(target, dst, name); err != nil {
		return fmt.Errorf("make link %q: %w", rel, err)
	}
	uid, gid := w.owner(st)
	if uid < 0 && gid < 0 {
		return nil
	}
	if err := unix.Fchownat(dst, name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("change owner of link %q: %w", rel, err)
	}
	return nil
}

// shut closes without checking the error, for what was only read from or is not needed
// after an earlier error.
func shut(c io.Closer) { _ = c.Close() }

// closeFD is shut for a descriptor.
func closeFD(fd int) { _ = unix.Close(fd) }
