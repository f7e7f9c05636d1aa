package layer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/workspace/foreign"
)

// Apply writes a layer as an upper directory of overlayfs (see runtime.Changes) to the empty
// directory to. image has the image's files. Apply asks accept, unless nil, about each entry. If
// accept refuses an entry, the image's entry stays. Apply still asks about the entries below a
// refused directory if the image has the directory.
//
// Apply needs CAP_CHOWN, and CAP_MKNOD before Linux 5.8. Errors are as for [Entries].
func Apply(ctx context.Context, r io.Reader, to, image *os.Root, limits Budget, accept func(*Entry) (bool, error)) error {
	a := applier{to: to, image: image, accept: accept}
	for e, err := range Entries(ctx, r, limits) {
		if err == nil {
			err = a.apply(e)
		}
		if err != nil {
			return fmt.Errorf("apply layer: %w", err)
		}
	}
	return a.setTimes()
}

type applier struct {
	to, image *os.Root
	accept    func(*Entry) (bool, error)
	times     []dated // of directories, set last: writing into a directory changes its time
}

type dated struct {
	name string
	time time.Time
}

func (a *applier) apply(e *Entry) error {
	parent, err := foreign.OpenDir(a.to, path.Dir(e.Path))
	if err != nil {
		return nil // the parent was left out, or the path leads through a link: accept knows no other path
	}
	_ = parent.Close()
	if a.accept != nil {
		ok, err := a.accept(e)
		if err != nil {
			return err
		}
		if !ok {
			return a.copyDirectory(e)
		}
	}
	if e.Kind == Opaque {
		return Hide(a.to, a.image, e.Path)
	}
	hidden, err := a.clearMark(e.Path)
	if err != nil {
		return err
	}
	switch e.Kind {
	case Removed:
		return remove(a.to, a.image, e.Path)
	case Directory:
		if err := a.to.Mkdir(e.Path, 0o700); err != nil {
			return err
		}
		if hidden { // overlayfs marks only the top of a tree that was made anew
			if err := Hide(a.to, a.image, e.Path); err != nil {
				return err
			}
		}
		return a.setAll(e)
	case Symlink:
		if err := a.to.Symlink(e.Target, e.Path); err != nil {
			return err
		}
		if err := a.to.Lchown(e.Path, e.header.Uid, e.header.Gid); err != nil {
			return err
		}
		return inDirectory(a.to, e.Path, func(dir int, name string) error {
			modified := unix.NsecToTimespec(e.header.ModTime.UnixNano())
			return unix.UtimesNanoAt(dir, name, []unix.Timespec{modified, modified}, unix.AT_SYMLINK_NOFOLLOW)
		})
	case Pipe:
		if err := inDirectory(a.to, e.Path, func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFIFO|0o600, 0) }); err != nil {
			return err
		}
		return a.setAll(e)
	case Hardlink:
		if info, err := a.to.Lstat(e.Target); err != nil || !info.Mode().IsRegular() {
			return nil // the target was left out
		}
		return a.to.Link(e.Target, e.Path)
	}
	return a.file(e)
}

// copyDirectory gives the upper directory the image's directory at an entry's path, so that later
// entries can add to it. It does nothing for other entries.
func (a *applier) copyDirectory(e *Entry) error {
	info, err := a.image.Lstat(e.Path)
	if e.Kind != Directory || err != nil || !info.IsDir() {
		return nil
	}
	st := info.Sys().(*syscall.Stat_t)
	if err := a.to.Mkdir(e.Path, 0o700); err != nil {
		return err
	}
	return a.setMetadata(e.Path, int(st.Uid), int(st.Gid), info.Mode(), info.ModTime())
}

// clearMark removes the mark that Hide may have made at a name, and reports whether there was a mark.
func (a *applier) clearMark(name string) (hidden bool, err error) {
	info, err := a.to.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && info.Mode().Type() != fs.ModeDevice|fs.ModeCharDevice {
		err = fmt.Errorf("%w: two entries for %q", ErrInvalid, name)
	}
	if err != nil {
		return false, err
	}
	return true, a.to.Remove(name)
}

// remove makes a mark that hides the image's entry, if the image has this entry.
func remove(to, image *os.Root, name string) error {
	if _, err := image.Lstat(name); err != nil {
		return nil
	}
	return inDirectory(to, name, func(dir int, name string) error { return unix.Mknodat(dir, name, unix.S_IFCHR, 0) })
}

// inDirectory calls do with the open directory of an entry, and with the entry's name in it.
func inDirectory(root *os.Root, at string, do func(dir int, name string) error) error {
	dir, err := root.Open(path.Dir(at))
	if err != nil {
		return err
	}
	return errors.Join(do(int(dir.Fd()), path.Base(at)), dir.Close())
}

// Hide hides, in an upper directory, everything that the image has in a directory. An attribute of the directory would be
// shorter, but not every file system supports the attributes of an unprivileged overlay.
func Hide(to, image *os.Root, name string) error {
	if info, err := image.Lstat(name); err != nil || !info.IsDir() {
		return nil // there is nothing to hide
	}
	dir, err := image.Open(name)
	if err != nil {
		return err
	}
	names, err := dir.Readdirnames(-1)
	if err = errors.Join(err, dir.Close()); err != nil {
		return err
	}
	for _, below := range names {
		if err := remove(to, image, path.Join(name, below)); err != nil {
			return err
		}
	}
	return nil
}

func (a *applier) file(e *Entry) error {
	f, err := a.to.OpenFile(e.Path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	if err := errors.Join(copySparse(f, e), f.Close()); err != nil {
		return err
	}
	return a.setAll(e)
}

// setAll gives what was made for an entry the entry's owner, mode, time and attributes.
func (a *applier) setAll(e *Entry) error {
	if err := a.setMetadata(e.Path, e.header.Uid, e.header.Gid, e.Mode, e.header.ModTime); err != nil {
		return err
	}
	return writeAttributes(a.to, e.Path, attributesOf(e.header))
}

// copySparse copies a file and leaves holes for blocks of zeros.
func copySparse(to *os.File, e *Entry) error {
	buf, zeros := make([]byte, 64<<10), make([]byte, 64<<10)
	for at := int64(0); ; {
		n, err := io.ReadFull(e, buf)
		if !bytes.Equal(buf[:n], zeros[:n]) {
			if _, err := to.WriteAt(buf[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			if at != e.Size {
				return fmt.Errorf("%w: %q is cut", ErrInvalid, e.Path)
			}
			return to.Truncate(at)
		case err != nil:
			return fmt.Errorf("%w: %q: %w", ErrInvalid, e.Path, err)
		}
	}
}

// setMetadata gives an entry its owner, mode and time, in this order: a change of owner may clear
// permission bits.
func (a *applier) setMetadata(name string, uid, gid int, mode fs.FileMode, modified time.Time) error {
	if err := a.to.Lchown(name, uid, gid); err != nil {
		return err
	}
	if err := a.to.Chmod(name, mode); err != nil {
		return err
	}
	if mode.IsDir() {
		a.times = append(a.times, dated{name, modified})
		return nil
	}
	return a.to.Chtimes(name, modified, modified)
}

func (a *applier) setTimes() error {
	for _, d := range slices.Backward(a.times) {
		if err := a.to.Chtimes(d.name, d.time, d.time); err != nil {
			return fmt.Errorf("apply layer: %w", err)
		}
	}
	return nil
}

// MakeParents makes the directories above name in an upper directory (see runtime.Changes). Each gets
// the owner and mode of the image's directory; if the image has none, root owns it with mode 0755.
func MakeParents(to, image *os.Root, name string) error {
	dir := path.Dir(name)
	if dir == "." {
		return nil
	}
	if info, err := to.Lstat(dir); err == nil && info.IsDir() {
		return nil
	} else if !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s is no directory", dir))
	}
	if err := MakeParents(to, image, dir); err != nil {
		return err
	}
	a := applier{to: to, image: image}
	if info, err := image.Lstat(dir); err == nil && info.IsDir() {
		return errors.Join(a.copyDirectory(&Entry{Path: dir, Kind: Directory}), a.setTimes())
	}
	return to.Mkdir(dir, 0o755)
}
