package containerd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
)

// maxMemoryVolume is the largest volume kept in memory: its pages count against
// the sandbox that writes them.
const maxMemoryVolume = 64 << 20

const (
	fullBytes  = 128 << 10 // a volume with less left is full; overlay and ext4 round up
	fullInodes = 1
)

// volume is a file system of its own: a tmpfs, or a sparse ext4 image on a loop
// device, which the kernel frees with the mount, since the image has no name.
type volume struct {
	mountPoint string
	data       string
}

// NewVolume makes a bounded directory: in memory up to 64 MiB, above that on
// disk where the host has loop devices. It is owned by root with mode 0755.
func (r *Run) NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error) {
	if cfg.Bytes <= 0 || cfg.Inodes <= 0 {
		return nil, fmt.Errorf("volume: %d bytes and %d inodes are no size", cfg.Bytes, cfg.Inodes)
	}
	dir := filepath.Join(r.dir, "volume-"+randomID())
	if err := os.Mkdir(dir, 0o711); err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	v, err := r.mountVolume(ctx, dir, cfg)
	if err != nil {
		return nil, fmt.Errorf("volume of %d bytes: %w", cfg.Bytes, errors.Join(err, os.Remove(dir)))
	}
	return v, nil
}

func (r *Run) mountVolume(ctx context.Context, dir string, cfg runtime.VolumeConfig) (*volume, error) {
	var err error
	if cfg.Bytes <= maxMemoryVolume || !r.c.diskVolumes() {
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755", cfg.Bytes, cfg.Inodes)
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	} else {
		err = r.mountImage(ctx, dir, cfg)
	}
	if err != nil {
		return nil, err
	}
	v := &volume{mountPoint: dir, data: filepath.Join(dir, "data")} // ext4 has a lost+found beside it
	if err := os.Mkdir(v.data, 0o755); err != nil {
		return nil, errors.Join(err, unmount(dir))
	}
	return v, nil
}

// diskVolumes says whether this host can mount image files.
func (c *Client) diskVolumes() bool {
	_, err := os.Stat("/dev/loop-control")
	_, lookErr := exec.LookPath("mke2fs")
	return err == nil && lookErr == nil && os.Geteuid() == 0
}

// mountImage makes the file system without a journal, which would only protect
// what is thrown away after a crash.
func (r *Run) mountImage(ctx context.Context, dir string, cfg runtime.VolumeConfig) error {
	images := r.c.volumeImages(r.id)
	if err := os.MkdirAll(images, 0o700); err != nil {
		return err
	}
	image := filepath.Join(images, filepath.Base(dir)+".ext4")
	if err := truncated(image, cfg.Bytes); err != nil {
		return err
	}
	defer func() { _ = os.Remove(image) }() // the loop device keeps it
	mkfs := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", "-I", "256",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", "-N", strconv.FormatInt(cfg.Inodes, 10), image)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, bytes.TrimSpace(out))
	}
	m := mount.Mount{Type: "ext4", Source: image, Options: []string{"loop", "nosuid", "nodev", "noatime", "nobarrier"}}
	return m.Mount(dir)
}

// volumeImages is where a run's image files have names, for a moment each.
func (c *Client) volumeImages(run string) string { return filepath.Join(c.opts.Root, "volumes", run) }

func truncated(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// Path is the directory to write to.
func (v *volume) Path() string { return v.data }

// Full says whether less is left than a small file needs.
func (v *volume) Full() (bool, error) { return full(v.data) }

func full(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("room in %s: %w", dir, err)
	}
	return int64(st.Bavail)*st.Bsize < fullBytes || st.Ffree < fullInodes, nil
}

// Close unmounts and removes the volume.
func (v *volume) Close() error {
	err := unmount(v.mountPoint)
	if err == nil {
		err = os.Remove(v.mountPoint)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
