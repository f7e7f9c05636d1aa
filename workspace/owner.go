package workspace

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// attributes puts the listed attributes of an entry into st, and reports those that its copy
// will not get to Lost.
func (w *treeWalk) attributes(dst *os.File, rel string, st *unix.Stat_t) error {
	if err := w.opts.attributes.apply(rel, st); err != nil {
		return err
	}
	if !w.opts.Own || w.opts.Lost == nil || dst == nil {
		return nil
	}
	uid, gid := w.owner(st)
	same := uid == int(st.Uid) && gid == int(st.Gid)
	if same && (st.Mode&unix.S_IFMT == unix.S_IFLNK || w.mode(st) == st.Mode&permBits) {
		return nil
	}
	return w.opts.Lost(Attributes{Path: rel, UID: st.Uid, GID: st.Gid, Mode: st.Mode & permBits})
}

// owner returns the owner of an entry's copy; -1 leaves it unchanged.
func (w *treeWalk) owner(st *unix.Stat_t) (uid, gid int) {
	switch {
	case w.opts.Own:
		return os.Geteuid(), os.Getegid()
	case w.opts.Preserve:
		return int(st.Uid), int(st.Gid)
	}
	return -1, -1
}

// mode returns the permission bits of a copy.
func (w *treeWalk) mode(st *unix.Stat_t) uint32 {
	switch {
	case w.asset != nil:
		return w.asset.mode(st)
	case w.opts.Own:
		return ownMode(st.Mode)
	}
	return st.Mode & permBits
}

// ownMode returns the permission bits that TreeOptions.Own gives the copy of a file or
// directory. mode includes the type.
func ownMode(mode uint32) uint32 {
	if mode&unix.S_IFMT == unix.S_IFDIR {
		return mode&permBits | unix.S_IRWXU
	}
	return mode&permBits | unix.S_IRUSR
}

// settle gives the finished copy its owner, permission bits and times, in this order: a
// change of owner may clear bits, and writing changes times.
func (w *treeWalk) settle(f *os.File, rel string, st *unix.Stat_t) error {
	if uid, gid := w.owner(st); uid >= 0 {
		if err := unix.Fchown(fd(f), uid, gid); err != nil {
			return fmt.Errorf("change owner of %q: %w", rel, err)
		}
	}
	if err := unix.Fchmod(fd(f), w.mode(st)); err != nil {
		return fmt.Errorf("change mode of %q: %w", rel, err)
	}
	times := []unix.Timespec{st.Atim, st.Mtim}
	if err := unix.UtimesNanoAt(fd(f), "", times, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("change times of %q: %w", rel, err)
	}
	return nil
}
