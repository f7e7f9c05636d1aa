package workspace

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"math"
	"os"

	"golang.org/x/sys/unix"
)

// CopyTree copies the contents of src into dst, which must not have any of the same names
// yet, gives dst the attributes of src, and reports on the tree. It is safe on a tree that an untrusted process created,
// once that process has ended:
//
//	regular files, directories     copied, with permission bits and times
//	symbolic links                 copied, never followed
//	sockets, fifos, devices        dropped, and reported; StoredTree keeps sockets and fifos
//	setuid and setgid of files     dropped: on the host, the file would run as its owner
//	extended attributes            dropped
//	hard links                     copied as separate files; StoredTree.Restore links them again
//	holes                          stay holes
//
// If a bound is exceeded, CopyTree stops with an error that matches ErrTooBig, and leaves
// a partial copy. Files and directories that their owner may not read need CAP_DAC_OVERRIDE.
func CopyTree(ctx context.Context, src, dst *os.Root, opts TreeOptions) (TreeReport, error) {
	return newTreeWalk(ctx, opts).tree("copy tree", src, dst)
}

// errChanged means that a file changed although nothing may write to the tree any more.
var errChanged = errors.New("file changed while it was read")

// file copies the file name of the directory src into the directory dst.
func (w *treeWalk) file(src, dst *os.File, name, rel string, st *unix.Stat_t, links int) error {
	from, err := openAt(src, name, unix.O_NONBLOCK) // which waits for no writer of a fifo
	if err != nil {
		return fmt.Errorf("open %q: %w", rel, err)
	}
	defer shut(from)
	mode, uid, gid := st.Mode, st.Uid, st.Gid
	// The name may lead to another file than at the time of Fstatat: only the descriptor counts.
	if err := unix.Fstat(fd(from), st); err != nil {
		return fmt.Errorf("stat %q: %w", rel, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("open %q: %w", rel, errChanged)
	}
	st.Mode, st.Uid, st.Gid = mode, uid, gid
	if most := min(w.opts.MaxBytes, math.MaxInt64/sparseFactor) * sparseFactor; st.Size > most-w.size { // the sum of two sizes may be negative
		return fmt.Errorf("%w: more than %d bytes, holes included", ErrTooBig, most)
	}
	w.size += st.Size
	sum := sha256.New()
	first := w.firsts[links]
	if dst == nil || first != "" {
		err = w.transfer(from, nil, rel, st, sum)
	} else {
		err = w.copyFile(from, dst, name, rel, st, sum)
	}
	if err == nil && first != "" {
		err = w.dst.Link(first, rel)
	}
	if links != 0 && w.opts.restore {
		w.firsts[links] = cmp.Or(first, rel)
	}
	if err == nil {
		kind := "f"
		if links != 0 {
			kind = fmt.Sprint("h", links)
		}
		w.record(kind, st, "%04o %x %s", mode&permBits, sum.Sum(nil), rel)
	}
	return err
}

func (w *treeWalk) copyFile(from, dst *os.File, name, rel string, st *unix.Stat_t, sum hash.Hash) error {
	to, err := createFile(dst, name)
	if err != nil {
		return fmt.Errorf("create %q: %w", rel, err)
	}
	err = w.transfer(from, to, rel, st, sum)
	if err == nil {
		err = w.setMetadata(to, rel, st)
	}
	return errors.Join(err, to.Close())
}

func createFile(dir *os.File, name string) (*os.File, error) {
	return openAt(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL)
}

// transfer reads exactly st.Size bytes into sum and, unless to is nil, into to. If the file
// has holes, it leaves holes for blocks of zeros.
func (w *treeWalk) transfer(from, to *os.File, rel string, st *unix.Stat_t, sum hash.Hash) error {
	if to != nil && st.Size > 0 {
		if err := to.Truncate(st.Size); err != nil {
			return fmt.Errorf("size %q: %w", rel, err)
		}
	}
	buf, sparse := w.buf, st.Blocks*512 < st.Size
	if sparse {
		buf = buf[:holeBytes]
	}
	for off := int64(0); off < st.Size; {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		n, err := from.ReadAt(buf[:min(int64(len(buf)), st.Size-off)], off)
		if n == 0 {
			if err == nil || errors.Is(err, io.EOF) {
				err = errChanged
			}
			return fmt.Errorf("copy %q: %w", rel, err)
		}
		sum.Write(buf[:n])
		if hole := (sparse || to == nil) && bytes.Equal(buf[:n], zeros[:n]); !hole {
			if err := w.put(to, buf[:n], off); err != nil {
				return fmt.Errorf("copy %q: %w", rel, err)
			}
		}
		off += int64(n)
	}
	return nil
}

// put counts bytes of a file and, unless to is nil, writes them.
func (w *treeWalk) put(to *os.File, text []byte, off int64) (err error) {
	if w.report.Bytes += int64(len(text)); w.report.Bytes > w.opts.MaxBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrTooBig, w.opts.MaxBytes)
	}
	if to != nil {
		_, err = to.WriteAt(text, off)
	}
	return err
}

const (
	readBytes = 128 << 10 // read at a time
	holeBytes = 16 << 10  // read at a time of a file with holes
)

var zeros [readBytes]byte

// attributes puts the listed attributes of an entry into st, and returns the number of its hard links in the order of
// the walk, 0 for a file with one name. It passes the attributes that the copy will not get to Lost.
func (w *treeWalk) attributes(dst *os.File, rel string, st *unix.Stat_t) (links int, err error) {
	key := inode{st.Dev, st.Ino}
	if w.opts.attributes != nil {
		links, err = w.opts.attributes.apply(rel, st)
		key = inode{0, uint64(links)}
	} else if w.opts.judged && st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 {
		links = 1
	}
	if err != nil {
		return 0, err
	}
	if links != 0 {
		if w.links[key] == 0 {
			w.links[key] = len(w.links) + 1
		}
		links = w.links[key]
	}
	mode := st.Mode & permBits
	switch {
	case dst == nil || w.opts.restore:
		return links, nil
	case w.opts.Lost == nil: // no list will have the lost attributes
		st.Mode = st.Mode&unix.S_IFMT | hostMode(st.Mode)
		return 0, nil
	case special(st.Mode):
		mode = st.Mode
	case links == 0 && st.Uid == 0 && st.Gid == 0 && (st.Mode&unix.S_IFMT == unix.S_IFLNK || w.mode(st) == mode):
		return 0, nil
	}
	return links, w.opts.Lost(Attributes{Path: rel, UID: st.Uid, GID: st.Gid, Mode: mode, Links: links})
}

// special copies a fifo or a socket: to a stored tree as an empty file.
func (w *treeWalk) special(dst *os.File, name, rel string, st *unix.Stat_t) (err error) {
	if dst == nil {
		w.record("s", st, "%06o - %s", st.Mode, rel)
		return nil
	}
	var to *os.File
	if !w.opts.restore {
		to, err = createFile(dst, name)
	} else if err = unix.Mknodat(fd(dst), name, st.Mode&unix.S_IFMT|0o600, 0); err == nil {
		to, err = openAt(dst, name, unix.O_PATH)
	}
	if err != nil {
		return fmt.Errorf("create %q: %w", rel, err)
	}
	err = errors.Join(w.setMetadata(to, rel, st), to.Close())
	w.record("s", st, "%06o - %s", st.Mode, rel)
	return err
}

// owner returns the owner of an entry's copy; -1 leaves it unchanged.
func (w *treeWalk) owner(st *unix.Stat_t) (uid, gid int) {
	switch {
	case w.opts.Lost != nil:
		return os.Geteuid(), os.Getegid()
	case w.opts.restore || os.Geteuid() == 0:
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}

// mode returns the permission bits of a copy.
func (w *treeWalk) mode(st *unix.Stat_t) uint32 {
	switch {
	case w.opts.Lost != nil:
		return callerMode(st.Mode)
	case w.opts.restore && w.opts.Shared:
		return st.Mode&permBits | st.Mode>>6&0o5*0o11
	case w.opts.restore:
		return st.Mode & permBits
	}
	return hostMode(st.Mode)
}

// hostMode returns the permission bits of a copy on the host. mode includes the type.
func hostMode(mode uint32) uint32 {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return mode & permBits
	}
	return mode & permBits &^ (unix.S_ISUID | unix.S_ISGID)
}

// callerMode is hostMode for a copy that its caller has to be able to read and remove.
func callerMode(mode uint32) uint32 {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return hostMode(mode) | unix.S_IRWXU
	}
	return hostMode(mode) | unix.S_IRUSR
}

// setMetadata gives the finished copy its owner, permission bits and modification time, in this order: a
// change of owner may clear permission bits, and writing changes times. No verdict can depend on the time of
// the last access, which becomes the same. A file system may not keep a time as it is, so st gets the one
// that a stored copy has.
func (w *treeWalk) setMetadata(f *os.File, rel string, st *unix.Stat_t) error {
	if uid, gid := w.owner(st); uid >= 0 {
		if err := unix.Fchownat(fd(f), "", uid, gid, unix.AT_EMPTY_PATH); err != nil {
			return fmt.Errorf("change owner of %q: %w", rel, err)
		}
	}
	// f may be one of O_PATH: its entry in /proc leads to the inode (proc(5), /proc/pid/fd).
	if err := unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd(f)), w.mode(st)); err != nil {
		return fmt.Errorf("change mode of %q: %w", rel, err)
	}
	times := []unix.Timespec{st.Mtim, st.Mtim}
	if err := unix.UtimesNanoAt(fd(f), "", times, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("change times of %q: %w", rel, err)
	}
	if w.opts.restore {
		return nil
	}
	var now unix.Stat_t
	if err := unix.Fstat(fd(f), &now); err != nil {
		return fmt.Errorf("stat the copy of %q: %w", rel, err)
	}
	st.Mtim = now.Mtim
	return nil
}
