package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"
)

// ErrTooBig means that a tree exceeds one of its bounds, or that the file system of the copy does not take a name
// or the target of a link.
var ErrTooBig = errors.New("tree is too big")

const (
	defaultMaxBytes = 8 << 30   // TreeOptions.MaxBytes
	defaultMaxFiles = 1_000_000 // TreeOptions.MaxFiles, at least
	fileBytes       = 8 << 10   // of TreeOptions.MaxBytes for each entry, if that is room for more entries
	maxDepth        = 512       // directories inside one another
	maxDropped      = 100       // names in TreeReport.Dropped
	sparseFactor    = 4         // TreeOptions.MaxBytes, for files with their holes, which take time to read
)

// TreeOptions bound a walk over a tree, and say what a copy is like. A tree may be at most 512
// directories deep.
type TreeOptions struct {
	MaxBytes int64 // of all regular files, without holes, and a quarter of them with holes; 0 means 8 GiB
	MaxFiles int64 // entries of any type; 0 means a million or, if that is more, one for each 8 KiB of MaxBytes
	// Lost, if not nil, says that the calling process's user owns each entry of the copy, and can read and remove the copy
	// without privileges, even if it is incomplete: directories have at least u+rwx, files at least u+r. It is called with
	// the attributes of every entry that does not belong to root or does not keep its mode, in the order of the walk. An
	// error of Lost ends the walk. If it is nil, a process of root gives each entry the numeric owner of its source.
	Lost func(Attributes) error
	// Link makes hard links of files and symbolic links instead of copies, where that is possible.
	// The walk does not read linked files, so the report lacks their digests and bytes.
	Link bool
	// Shared, for StoredTree.Restore, lets every user read and execute what its owner may.
	Shared bool
	// attributes, if not nil, replace the attributes of the listed entries, both in the digest and in
	// the copy. Errors match ErrAttributes if the list does not match the tree.
	attributes *attributesReader
	restore    bool // all permission bits, for a copy that only sandboxes see
	judged     bool // the digest also covers owners, times and the root, on which a verdict can depend
}

// TreeReport says what a walk over a tree found.
type TreeReport struct {
	Bytes   int64    // of all regular files, without holes
	Dropped []string // the first 100 entries that are no regular file, directory or symbolic link
	// Digest is "sha256:" and the hexadecimal SHA-256 of the tree's canonical listing: in
	// depth-first order, the names of a directory sorted by their bytes, one record for every
	// entry but the tree's root, a directory after its contents,
	//
	//	f MODE CONTENT PATH NUL   a regular file, CONTENT its SHA-256 in hex
	//	d MODE - PATH NUL         a directory
	//	l - TARGET PATH NUL       a symbolic link, TARGET its target's SHA-256
	//
	// MODE is the permission bits as four octal digits, with setuid, setgid and sticky. PATH
	// is relative, with slashes. Hard links and dropped entries do not count. The digest
	// of a StoredTree also covers the tree's root, with the path ".", and owners and modification times: a space and
	// UID:GID follow the first letter of each record and then, but for symbolic links, a space and
	// SECONDS.NANOSECONDS. It has fifos and sockets, as "s", with their type in MODE and "-" for CONTENT. The names of
	// a file with several begin with hN in place of f, N counting such files.
	Digest string
}

// DigestTree reads the tree below root and reports its digest. Like CopyTree it follows no
// symbolic link and never blocks on a fifo. Errors match ErrTooBig if a bound is exceeded.
func DigestTree(ctx context.Context, root *os.Root, opts TreeOptions) (TreeReport, error) {
	return newTreeWalk(ctx, opts).tree("digest tree", root, nil)
}

// treeWalk is one walk over a tree, which copies unless its destination is nil. It has one open
// descriptor per level, or two when it copies, and never resolves a path of several elements.
type treeWalk struct {
	ctx    context.Context // allowed in a struct here: a walk ends with the call that made it
	opts   TreeOptions
	report TreeReport
	named  int64 // names read in directories so far
	size   int64 // of all regular files so far, holes included
	list   hash.Hash
	buf    []byte

	dst    *os.Root       // nil without a copy
	links  map[inode]int  // the number of each file with several names
	firsts map[int]string // the first name of each, once restored
}

// inode identifies a file, in a stored tree by the number that its list has.
type inode struct{ device, number uint64 }

func newTreeWalk(ctx context.Context, opts TreeOptions) *treeWalk {
	opts.MaxFiles = cmp.Or(opts.MaxFiles, max(defaultMaxFiles, opts.MaxBytes/fileBytes))
	opts.MaxBytes = cmp.Or(opts.MaxBytes, defaultMaxBytes)
	return &treeWalk{ctx: ctx, opts: opts, list: sha256.New(), buf: make([]byte, readBytes), links: map[inode]int{}, firsts: map[int]string{}}
}

// tree walks the whole tree src. It returns a report even with an error, which begins with what.
func (w *treeWalk) tree(what string, src, dst *os.Root) (TreeReport, error) {
	err := w.root(src, dst)
	if errors.Is(err, unix.ENAMETOOLONG) { // of a link's target, XFS takes less than ext4
		err = fmt.Errorf("%w: %w", ErrTooBig, err)
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", what, err)
	}
	w.report.Digest = DigestOf(w.list)
	return w.report, err
}

// record adds an entry to the listing of TreeReport.Digest.
func (w *treeWalk) record(kind string, st *unix.Stat_t, format string, args ...any) {
	line := []byte(kind)
	if w.opts.judged {
		line = fmt.Appendf(line, " %d:%d", st.Uid, st.Gid)
		if kind != "l" {
			line = fmt.Appendf(line, " %d.%09d", st.Mtim.Sec, st.Mtim.Nsec)
		}
	}
	w.list.Write(append(fmt.Appendf(line, " "+format, args...), 0))
}

func (w *treeWalk) root(src, dst *os.Root) error {
	w.dst = dst
	in, err := src.Open(".")
	if err != nil {
		return err
	}
	defer shut(in)
	var out *os.File
	if dst != nil {
		if out, err = dst.Open("."); err != nil {
			return err
		}
		defer shut(out)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd(in), &st); err != nil {
		return fmt.Errorf("stat %q: %w", topDir, err)
	}
	if _, err := w.attributes(out, topDir, &st); err != nil {
		return err
	}
	if err := w.dir(in, out, "", 1); err != nil {
		return err
	}
	if err := w.endDir(out, topDir, &st); err != nil {
		return err
	}
	return w.opts.attributes.finished()
}

// topDir is the path of a tree's root.
const topDir = "."

// endDir gives the copy of a directory, if there is one, its attributes after its contents, and records the directory.
func (w *treeWalk) endDir(dst *os.File, rel string, st *unix.Stat_t) error {
	if dst != nil {
		if err := w.setMetadata(dst, rel, st); err != nil {
			return err
		}
	}
	if rel != topDir || w.opts.judged {
		w.record("d", st, "%04o - %s", st.Mode&permBits, rel)
	}
	return nil
}

// dir walks the directory src, from which nothing has been read, and copies it into dst.
func (w *treeWalk) dir(src, dst *os.File, rel string, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("%w: more than %d directories deep", ErrTooBig, maxDepth)
	}
	names, err := src.Readdirnames(int(w.opts.MaxFiles-w.named) + 1)
	if w.named += int64(len(names)); w.named > w.opts.MaxFiles {
		return fmt.Errorf("%w: more than %d files", ErrTooBig, w.opts.MaxFiles)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("read directory %q: %w", rel, err)
	}
	slices.Sort(names)
	for _, name := range names {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		if err := w.entry(src, dst, name, path.Join(rel, name), depth); err != nil {
			return err
		}
	}
	return nil
}

func (w *treeWalk) entry(src, dst *os.File, name, rel string, depth int) error {
	var st unix.Stat_t
	if err := unix.Fstatat(fd(src), name, &st, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return fmt.Errorf("stat %q: %w", rel, err)
	}
	kind := st.Mode & unix.S_IFMT
	keeps := special(kind) && w.opts.judged && w.opts.attributes == nil && (dst == nil || w.opts.restore || w.opts.Lost != nil)
	if kind != unix.S_IFREG && kind != unix.S_IFDIR && kind != unix.S_IFLNK && !keeps {
		w.drop(rel, st.Mode)
		return nil
	}
	links, err := w.attributes(dst, rel, &st)
	if err != nil {
		return err
	}
	if special(st.Mode) {
		return w.special(dst, name, rel, &st)
	}
	if w.opts.Link && dst != nil && kind != unix.S_IFDIR {
		if linked, err := Link(src, dst, name); linked || err != nil {
			return err
		}
	}
	switch kind {
	case unix.S_IFREG:
		return w.file(src, dst, name, rel, &st, links)
	case unix.S_IFDIR:
		return w.subdir(src, dst, name, rel, &st, depth)
	}
	return w.link(src, dst, name, rel, &st)
}

// Link makes a hard link of the file or symbolic link name of the directory src in the directory
// dst. It returns false without an error where no hard link is possible, as between file systems.
func Link(src, dst *os.File, name string) (bool, error) {
	err := unix.Linkat(fd(src), name, fd(dst), name, 0)
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.EPERM) || errors.Is(err, unix.EMLINK) {
		return false, nil
	}
	if err != nil {
		return false, &os.LinkError{Op: "link", Old: name, New: name, Err: err}
	}
	return true, nil
}

func (w *treeWalk) drop(rel string, mode uint32) {
	if len(w.report.Dropped) < maxDropped {
		w.report.Dropped = append(w.report.Dropped, rel+" ("+TypeName(mode)+")")
	}
}

// TypeName names the type of a special file; "" for any other file.
func TypeName(mode uint32) string {
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
	return ""
}

// subdir walks the directory name of src, and makes and fills one in dst.
func (w *treeWalk) subdir(src, dst *os.File, name, rel string, st *unix.Stat_t, depth int) error {
	in, err := openAt(src, name, unix.O_DIRECTORY)
	if err != nil {
		return fmt.Errorf("open directory %q: %w", rel, err)
	}
	defer shut(in)
	var out *os.File
	if dst != nil {
		if err := unix.Mkdirat(fd(dst), name, 0o700); err != nil {
			return fmt.Errorf("make directory %q: %w", rel, err)
		}
		if out, err = openAt(dst, name, unix.O_DIRECTORY); err != nil {
			return fmt.Errorf("open copied directory %q: %w", rel, err)
		}
		defer shut(out)
	}
	if err := w.dir(in, out, rel, depth+1); err != nil {
		return err
	}
	return w.endDir(out, rel, st)
}

func (w *treeWalk) link(src, dst *os.File, name, rel string, st *unix.Stat_t) error {
	buf := make([]byte, unix.PathMax)
	n, err := unix.Readlinkat(fd(src), name, buf)
	if err != nil {
		return fmt.Errorf("read link %q: %w", rel, err)
	}
	w.record("l", st, "- %x %s", sha256.Sum256(buf[:n]), rel)
	if dst == nil {
		return nil
	}
	if err := unix.Symlinkat(string(buf[:n]), fd(dst), name); err != nil {
		return fmt.Errorf("make link %q: %w", rel, err)
	}
	if uid, gid := w.owner(st); uid >= 0 {
		if err := unix.Fchownat(fd(dst), name, uid, gid, unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("change owner of link %q: %w", rel, err)
		}
	}
	return nil
}

// openAt opens name in dir for reading, or as flags say, and follows no symbolic link.
func openAt(dir *os.File, name string, flags int) (*os.File, error) {
	fd, err := unix.Openat(fd(dir), name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

func fd(f *os.File) int { return int(f.Fd()) }

// shut closes a file whose close error does not matter: it was only read, or an error came before.
func shut(c io.Closer) { _ = c.Close() }
