package rootfs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
)

// makeDevices makes the /dev of a sandbox with its own ids. In a user namespace the OCI
// runtime cannot make device files and would mount the host's. The sandbox would then share their
// times, locks and notifications with the host and all other sandboxes.
func (f *FS) makeDevices() error {
	if f.IDs == nil {
		return nil
	}
	if err := os.Mkdir(f.Devices(), 0o711); err != nil {
		return err
	}
	base := f.IDs.Base()
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755,uid=%d,gid=%d", oci.DevBytes, oci.DevInodes, base, base)
	if err := unix.Mount("tmpfs", f.Devices(), "tmpfs", unix.MS_NOSUID|unix.MS_NOEXEC, options); err != nil {
		return fmt.Errorf("mount /dev: %w", err)
	}
	return f.shifter.inside(func() error { return fillDevices(f.Devices()) })
}

// Devices returns the path of the sandbox's /dev; see [Config.IDs].
func (f *FS) Devices() string { return filepath.Join(f.Dir, "dev") }

// fillDevices makes the files of a /dev at dev: those that an OCI runtime makes, with their numbers
// (Documentation/admin-guide/devices.txt).
func fillDevices(dev string) error {
	for name, number := range map[string]uint64{
		"null": unix.Mkdev(1, 3), "zero": unix.Mkdev(1, 5), "full": unix.Mkdev(1, 7),
		"random": unix.Mkdev(1, 8), "urandom": unix.Mkdev(1, 9), "tty": unix.Mkdev(5, 0),
	} {
		path := filepath.Join(dev, name)
		if err := errors.Join(unix.Mknod(path, unix.S_IFCHR, int(number)), os.Chmod(path, 0o666)); err != nil {
			return fmt.Errorf("make /dev/%s: %w", name, err)
		}
	}
	// runc before 1.2 gives a mount the mode of the directory that it is mounted on.
	for name, mode := range map[string]os.FileMode{"pts": 0o755, "shm": os.ModeSticky | 0o777} {
		path := filepath.Join(dev, name)
		if err := errors.Join(os.Mkdir(path, 0o755), os.Chmod(path, mode)); err != nil {
			return err
		}
	}
	for name, target := range map[string]string{
		"fd": "/proc/self/fd", "stdin": "/proc/self/fd/0", "stdout": "/proc/self/fd/1", "stderr": "/proc/self/fd/2", "ptmx": "pts/ptmx",
	} {
		if err := os.Symlink(target, filepath.Join(dev, name)); err != nil {
			return err
		}
	}
	return nil
}
