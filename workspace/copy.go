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
	"os"

	"golang.org/x/sys/unix"
)

// CopyTree copies what lies below src into dst, which must not contain any of the same
// names yet, and reports it. It is safe on a tree that an untrusted process created, as
// long as that process has ended:
//
//   - regular files, directories and symbolic links are copied; a symbolic link
//     keeps its target and is never followed;
//   - sockets, fifos and devices are left out and reported;
//   - setuid, setgid and sticky bits, extended attributes and hard links are
//     not carried over; the other permission bits and the times are;
//   - holes stay holes, but count as bytes.
//
// CopyTree stops as soon as a bound is exceeded, with an error that matches ErrTooBig, and
// leaves a partial copy. It also reads files and directories whose mode denies that to
// their owner, if the process owns them or is privileged.
func CopyTree(ctx context.Context, src, dst *os.Root, opts TreeOptions) (TreeReport, error) {
	in, err := src.Open(".")
	if err != nil {
		return TreeReport{}, fmt.Errorf("open tree: %w", err)
	}
	defer shut(in)
	out, err := dst.Open(".")
	if err != nil {
		return TreeReport{}, fmt.Errorf("open destination of copy: %w", err)
	}
	defer shut(out)
	w := newTreeWalk(ctx, opts)
	if err := w.root(int(in.Fd()), int(out.Fd())); err != nil {
		return w.finish(), fmt.Errorf("copy tree: %w", err)
	}
	return w.finish(), nil
}

// errChanged means that a tree that nothing may write to has changed.
var errChanged = errors.New("file changed while it was read")

// file copies the file name of the open directory src into the open directory
// dst under the name to.
func (w *treeWalk) file(src, dst int, name, to, rel string, st *unix.Stat_t) error {
	in, restore, err := openUntrusted(src, name, 0)
	if err != nil {
		return fmt.Errorf("open %q: %w", rel, err)
	}
	from := os.NewFile(uintptr(in), rel)
	defer shut(from)
	if err := restore(); err != nil {
		return fmt.Errorf("restore the mode of %q: %w", rel, err)
	}
	mode, uid, gid := st.Mode, st.Uid, st.Gid
	// Between Fstatat and open the name may have come to mean another file, so the
	// descriptor decides.
	if err := unix.Fstat(in, st); err != nil {
		return fmt.Errorf("stat %q: %w", rel, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("open %q: %w", rel, errChanged)
	}
	st.Mode, st.Uid, st.Gid = mode, uid, gid
	if w.report.Bytes += st.Size; w.report.Bytes > w.opts.MaxBytes {
		return fmt.Errorf("%w: more than %d bytes", ErrTooBig, w.opts.MaxBytes)
	}
	sum := sha256.New()
	if err := w.content(from, dst, to, rel, st, sum); err != nil {
		return err
	}
	w.record("f %04o %x %s", mode&0o777, sum.Sum(nil), rel)
	return nil
}

func (w *treeWalk) content(from *os.File, dst int, name, rel string, st *unix.Stat_t, sum hash.Hash) error {
	if dst == noCopy {
		return w.transfer(from, nil, rel, st, sum)
	}
	if w.asset != nil {
		if err := unlinkFile(dst, name); err != nil {
			return fmt.Errorf("replace %q: %w", rel, err)
		}
	}
	to, err := createFile(dst, name, rel)
	if err != nil {
		return fmt.Errorf("create %q: %w", rel, err)
	}
	defer shut(to)
	if err := w.transfer(from, to, rel, st, sum); err != nil {
		return err
	}
	if err := w.settle(int(to.Fd()), rel, st); err != nil {
		return err
	}
	if err := to.Close(); err != nil {
		return fmt.Errorf("close %q: %w", rel, err)
	}
	return nil
}

// createFile creates the file name, which must not exist, in the open directory dir.
func createFile(dir int, name, shown string) (*os.File, error) {
	const flags = unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL | unix.O_NOFOLLOW | unix.O_CLOEXEC
	fd, err := unix.Openat(dir, name, flags, 0o600)
	return os.NewFile(uintptr(fd), shown), err
}

// transfer reads exactly st.Size bytes into sum and, unless it is nil, to, where it leaves
// out blocks of zeros if the file has holes.
func (w *treeWalk) transfer(from, to *os.File, rel string, st *unix.Stat_t, sum hash.Hash) error {
	if to != nil && st.Size > 0 {
		if err := to.Truncate(st.Size); err != nil {
			return fmt.Errorf("size %q: %w", rel, err)
		}
	}
	buf, sparse := w.buf, st.Blocks*512 < st.Size
	if sparse {
		buf = buf[:len(zeros)]
	}
	for off := int64(0); off < st.Size; {
		if err := context.Cause(w.ctx); err != nil {
			return err
		}
		n, err := from.ReadAt(buf[:min(int64(len(buf)), st.Size-off)], off)
		if n == 0 {
			return fmt.Errorf("copy %q: %w", rel, cmp.Or(ignoreEOF(err), errChanged))
		}
		sum.Write(buf[:n])
		if to != nil && !(sparse && bytes.Equal(buf[:n], zeros[:n])) {
			if _, err := to.WriteAt(buf[:n], off); err != nil {
				return fmt.Errorf("copy %q: %w", rel, err)
			}
		}
		off += int64(n)
	}
	return nil
}

var zeros [16 << 10]byte

// openUntrusted opens name in the open directory dir for reading without following a
// symbolic link or waiting for a fifo's writer. If the mode denies its owner to read it, or
// to search a directory, the mode is changed until restore is called. restore is nil if
// there is an error.
func openUntrusted(dir int, name string, flags int) (fd int, restore func() error, err error) {
	flags |= unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err = unix.Openat(dir, name, flags, 0)
	if err == nil && (flags&unix.O_DIRECTORY == 0 || unix.Faccessat(fd, ".", unix.X_OK, 0) == nil) {
		return fd, func() error { return nil }, nil
	}
	if err == nil {
		closeFD(fd)
	} else if !errors.Is(err, unix.EACCES) {
		return -1, nil, err
	}
	handle, err := unix.Openat(dir, name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(handle, &st); err != nil {
		closeFD(handle)
		return -1, nil, err
	}
	restore = func() error {
		defer closeFD(handle)
		return chmodHandle(handle, st.Mode&0o7777)
	}
	if err := chmodHandle(handle, st.Mode&0o7777|0o500); err != nil {
		closeFD(handle)
		return -1, nil, err
	}
	if fd, err = unix.Openat(dir, name, flags, 0); err != nil {
		return -1, nil, errors.Join(err, restore())
	}
	return fd, restore, nil
}

// chmodHandle changes the mode of the file that an O_PATH descriptor refers to. The
// descriptor's entry in /proc leads to that inode, whatever its name is now (proc(5),
// /proc/pid/fd). It fails for symbolic links.
func chmodHandle(fd int, mode uint32) error {
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", fd), mode)
}

func ignoreEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
