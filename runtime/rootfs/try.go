package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// Try mounts an overlay that writes to a directory below dir, and replaces a directory in the overlay.
// With inMemory, a file system in memory covers dir. The mounts end with a thread of their own. Two
// calls for the same dir without inMemory must not overlap: each begins by removing what a killed
// process left.
func Try(dir string, inMemory bool) error {
	return thread.Run(func() (err error) {
		if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
			return os.NewSyscallError("unshare", err)
		}
		if err := unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""); err != nil {
			return fmt.Errorf("make the mounts of a thread its own: %w", err)
		}
		if inMemory {
			if err := unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m"); err != nil {
				return fmt.Errorf("mount tmpfs at %s: %w", dir, err)
			}
		}
		at := filepath.Join(dir, "overlay-trial")
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(at)) }()
		return replaceDirectory(at)
	})
}

// replaceDirectory mounts an overlay in dir, and replaces a directory in the overlay.
func replaceDirectory(dir string) error {
	lower, layer, target := filepath.Join(dir, "lower"), filepath.Join(dir, "layer"), filepath.Join(dir, "target")
	old, replaced := filepath.Join(lower, "dir", "old"), filepath.Join(target, "dir")
	if err := errors.Join(os.MkdirAll(filepath.Dir(old), 0o755), os.WriteFile(old, nil, 0o644), os.Mkdir(target, 0o755), makeLayer(layer)); err != nil {
		return err
	}
	options := layerOptions([]string{lower}, filepath.Join(layer, "upper"), filepath.Join(layer, "work"))
	if err := unix.Mount("overlay", target, "overlay", unix.MS_NOSUID|unix.MS_NODEV, strings.Join(options, ",")); err != nil {
		return fmt.Errorf("mount overlay at %s: %w", target, err)
	}
	err := errors.Join(os.RemoveAll(replaced), os.Mkdir(replaced, 0o755))
	if _, statErr := os.Lstat(filepath.Join(replaced, "old")); err == nil && !errors.Is(statErr, os.ErrNotExist) {
		err = fmt.Errorf("a directory that was made anew is not empty (%v)", statErr)
	}
	return errors.Join(err, unix.Unmount(target, 0))
}
