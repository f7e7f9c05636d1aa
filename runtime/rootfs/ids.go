package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/volume"
)

// privateDir prepares the directory. Below it are the running sandbox's files: the root of a sandbox with its own ids
// has to pass it, and no other user of the host may.
func (f *FS) privateDir() error {
	err := os.Mkdir(f.shifter.shifted(""), 0o711)
	if err != nil || f.IDs == nil {
		return err
	}
	return errors.Join(os.Chown(f.Dir, 0, int(f.IDs.Base())), os.Chmod(f.Dir, 0o710), idmap.MountPrivate(f.Dir))
}

// Unmount detaches all mounts below the file system's directory.
func (f *FS) Unmount() error {
	if f.IDs != nil {
		return mounts.Detach(f.Dir) // see idmap.MountPrivate
	}
	return mounts.DetachBelow(f.Dir)
}

// A shifter makes mounts with the ids of a sandbox, and overlays that write to its layer.
type shifter struct {
	dir   string         // for the mounts
	layer *volume.Volume // takes what is written
	ids   *idmap.Range   // nil if the sandbox has the ids of this process
}

// shifted returns the path of a mount or link that has the sandbox's ids.
func (s shifter) shifted(name string) string { return filepath.Join(s.dir, "ids", name) }

// shift mounts a directory or file at shifted(name), with the sandbox's ids. If the sandbox has the ids of this process,
// shift makes a link.
func (s shifter) shift(source, name string, writable bool) error {
	if s.ids == nil {
		return os.Symlink(source, s.shifted(name))
	}
	if err := s.makeTarget(source, name); err != nil {
		return err
	}
	return s.ids.Mount(source, s.shifted(name), writable)
}

func (s shifter) makeTarget(source, name string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.Mkdir(s.shifted(name), 0o711)
	}
	return os.WriteFile(s.shifted(name), nil, 0o644)
}

// overlay mounts lowers as an overlay that writes to the directory name in the sandbox's layer, where every file has its
// owner in the sandbox, and returns the path of the mount. The mount's options name what shift makes: a sandbox can read
// the options of its root mount, which must not reveal paths of the host, overlay does not accept every path, and the
// kernel accepts at most one page of options.
func (s shifter) overlay(lowers []string, name string) (string, error) {
	target := filepath.Join(s.dir, name)
	if err := errors.Join(os.Mkdir(target, 0o711), makeLayer(filepath.Join(s.layer.Path(), name))); err != nil {
		return "", err
	}
	if _, err := os.Lstat(s.shifted("layer")); err != nil {
		if err := s.shift(s.layer.Path(), "layer", true); err != nil {
			return "", err
		}
	}
	var shifted []string
	for i, lower := range lowers {
		at := name + "-" + strconv.Itoa(i)
		if err := s.shift(lower, at, false); err != nil {
			return "", err
		}
		shifted = append(shifted, at)
	}
	upper, work := filepath.Join("layer", name, "upper"), filepath.Join("layer", name, "work")
	options := layerOptions(shifted, upper, work)
	if slices.ContainsFunc(lowers, anonymous) {
		options = append(options, "xino=on")
	}
	return target, s.ids.Overlay(s.shifted(""), target, options)
}

// anonymous reports whether a directory's file system has no UUID. An overlay over it needs xino: without it, a hard
// link to an image's file has another inode number than the file (ovl_lower_uuid_ok), and git clones no repository.
func anonymous(dir string) bool {
	f, err := os.Open(dir)
	if err != nil {
		return false
	}
	defer func() { _ = f.Close() }()
	const getUUID = 0x80111500 // FS_IOC_GETFSUUID, since Linux 6.9
	var uuid struct {
		length byte
		bytes  [16]byte
	}
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, f.Fd(), getUUID, uintptr(unsafe.Pointer(&uuid)))
	return errno == 0 && uuid.bytes == [16]byte{}
}

// inside calls do as the user who can make files in the sandbox's root file system and
// copies: the sandbox's root if it has its own ids.
func (s shifter) inside(do func() error) error {
	if s.ids == nil {
		return do()
	}
	return idmap.As(s.ids.Base(), do)
}

func (s shifter) hostID(id uint32) int {
	if s.ids == nil {
		return int(id)
	}
	return int(s.ids.Base() + id)
}
