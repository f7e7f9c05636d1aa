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
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/runtime/userns"
)

// maxMemoryVolume is the size, in bytes, of the largest volume kept in memory. Its pages
// count as memory of the sandbox that writes them.
const maxMemoryVolume = 64 << 20

const (
	fullBytes  = 128 << 10 // a volume with fewer bytes left is full; overlay and ext4 round up
	fullInodes = 1         // the same for inodes
)

// volume implements runtime.Volume. It is a separate file system: a tmpfs, or a sparse
// ext4 image on a loop device. The image file has no name, so that the kernel frees it
// after the unmount. A layer that can be neither is a directory on disk whose size is
// watched; see [Run.newLayer] and [Box.overflow].
//
// Making and removing an image takes longer than most attempts. A closed one is therefore
// emptied and kept mounted for the run's next volume of that size. Its old contents cannot
// be read any more, because ext4 does not show a block before it is written.
type volume struct {
	run        *Run
	cfg        runtime.VolumeConfig
	mountPoint string
	data       string // the directory to write to; "" once closed
	image      bool
	folder     bool    // a directory on disk; the kernel does not bound it
	writes     *writes // nil unless it is an image
}

// writes tells whether everything written to an image file has reached it. Image files are
// sparse: when the disk below --root is full, writes to them are lost and the writer gets
// no error.
type writes struct {
	// since was opened before anything was written. syncfs(2) on it reports, once, that
	// something written later was lost.
	since *os.File

	mu   sync.Mutex
	lost error
}

func (w *writes) check(root string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := unix.Syncfs(int(w.since.Fd())); err != nil && w.lost == nil {
		w.lost = fmt.Errorf("%w: what was written to a volume below %s is lost, for its disk is full or fails: %w", runtime.ErrUnavailable, root, err)
	}
	return w.lost
}

const (
	// maxIdle is how many emptied images of one size a run keeps.
	maxIdle = 16
	// maxEmptiedFiles and maxEmptiedBytes are how many inodes and bytes an image may hold
	// to be emptied. If it holds more, it is faster to remove the whole image.
	maxEmptiedFiles = 2000
	maxEmptiedBytes = 256 << 20
)

// NewVolume makes a volume, which the caller closes. Up to 64 MiB it is usually in memory.
// A larger one is an image on disk if the host has loop devices, else in memory, too. Its
// directory is owned by root and has mode 0755.
func (r *Run) NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error) {
	v, err := r.newVolume(ctx, cfg)
	if err != nil {
		return nil, err
	}
	return v, nil
}

func (r *Run) newVolume(ctx context.Context, cfg runtime.VolumeConfig) (*volume, error) {
	if cfg.Bytes <= 0 || cfg.Inodes <= 0 {
		return nil, fmt.Errorf("volume: %d bytes and %d inodes are no size", cfg.Bytes, cfg.Inodes)
	}
	if v := r.takeIdle(cfg); v != nil {
		return v, nil
	}
	dir := filepath.Join(r.dir, "volume-"+randomID())
	if err := os.Mkdir(dir, 0o700); err != nil {
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
	image := r.c.ids.onDisk || cfg.Bytes > maxMemoryVolume && r.c.diskVolumes()
	if !image {
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0700", cfg.Bytes, cfg.Inodes)
		err = unix.Mount("tmpfs", dir, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	} else {
		err = r.mountImage(ctx, dir, cfg)
	}
	if err != nil {
		return nil, err
	}
	v := &volume{run: r, cfg: cfg, mountPoint: dir, image: image}
	if image {
		v.writes = &writes{}
		if v.writes.since, err = os.Open(dir); err == nil {
			r.mu.Lock()
			r.images[dir] = v.writes
			r.mu.Unlock()
		}
	}
	if err == nil {
		err = v.open()
	}
	if err != nil {
		return nil, errors.Join(err, v.forget(), unmount(dir))
	}
	return v, nil
}

// sound returns an error if something that was written has not reached the image file.
func (v *volume) sound() error {
	if v.writes == nil {
		return nil
	}
	return v.writes.check(v.run.c.opts.Root)
}

// sound returns an error if something that was written to the sandbox's volumes has not
// reached the disk.
func (b *Box) sound() error {
	if err := b.layer.sound(); err != nil {
		return err
	}
	for _, m := range b.cfg.Mounts {
		rest, ok := strings.CutPrefix(m.Source, b.run.dir+"/")
		if !ok {
			continue
		}
		top, _, _ := strings.Cut(rest, "/")
		b.run.mu.Lock()
		w := b.run.images[filepath.Join(b.run.dir, top)]
		b.run.mu.Unlock()
		if w == nil {
			continue
		}
		if err := w.check(b.run.c.opts.Root); err != nil {
			return err
		}
	}
	return nil
}

// forget closes the file that would keep an image in use after it is unmounted.
func (v *volume) forget() error {
	if v.writes == nil {
		return nil
	}
	v.run.mu.Lock()
	delete(v.run.images, v.mountPoint)
	v.run.mu.Unlock()
	err := v.writes.since.Close()
	v.writes = nil
	return err
}

// forgetImages does what forget does for all images of the run, including those kept for
// the next volume.
func (r *Run) forgetImages() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	var errs []error
	for _, w := range r.images {
		errs = append(errs, w.since.Close())
	}
	clear(r.images)
	clear(r.idle)
	return errors.Join(errs...)
}

// newLayer makes the volume for what a sandbox writes over its root and copies. Where
// stacker.onDisk is set it is a directory on disk.
func (r *Run) newLayer(ctx context.Context, cfg runtime.VolumeConfig) (*volume, error) {
	if !r.c.stack.onDisk {
		return r.newVolume(ctx, cfg)
	}
	v := &volume{run: r, cfg: cfg, mountPoint: filepath.Join(r.c.volumeFiles(r.id), "layer-"+randomID()), folder: true}
	err := os.MkdirAll(v.mountPoint, 0o700)
	if err == nil {
		err = v.open()
	}
	if err != nil {
		return nil, fmt.Errorf("layer: %w", errors.Join(err, os.RemoveAll(v.mountPoint)))
	}
	return v, nil
}

// open makes the directory to write to, next to ext4's lost+found. Only sbench can pass
// the top of the file system (mode 0700); a sandbox is given the directory below it.
func (v *volume) open() error {
	if err := os.Chmod(v.mountPoint, 0o700); err != nil {
		return err
	}
	v.data = filepath.Join(v.mountPoint, "data-"+randomID())
	if err := os.Mkdir(v.data, 0o755); err != nil {
		v.data = ""
		return err
	}
	return nil
}

// takeIdle returns an emptied volume of the size cfg, nil if there is none.
func (r *Run) takeIdle(cfg runtime.VolumeConfig) *volume {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := r.idle[cfg]
	if len(list) == 0 {
		return nil
	}
	r.idle[cfg] = list[:len(list)-1]
	old := list[len(list)-1]
	v := *old // so that closing the old one again does not close this one
	if v.open() != nil {
		return nil // it stays mounted until the run's end
	}
	return &v
}

// keep empties an image and keeps it for the next volume. It reports whether it did.
func (v *volume) keep() bool {
	if !v.image || v.sound() != nil || !v.emptiable() || remove.Path(v.data) != nil {
		return false
	}
	v.run.mu.Lock()
	defer v.run.mu.Unlock()
	if len(v.run.idle[v.cfg]) >= maxIdle {
		return false
	}
	kept := *v
	v.run.idle[v.cfg] = append(v.run.idle[v.cfg], &kept)
	return true
}

func (v *volume) emptiable() bool {
	var st unix.Statfs_t
	if unix.Statfs(v.mountPoint, &st) != nil {
		return false
	}
	return int64(st.Files-st.Ffree) < maxEmptiedFiles && int64(st.Blocks-st.Bfree)*st.Bsize < maxEmptiedBytes
}

// diskVolumes reports whether this host can mount image files.
func (c *Client) diskVolumes() bool {
	_, err := os.Stat("/dev/loop-control")
	_, lookErr := exec.LookPath("mke2fs")
	return err == nil && lookErr == nil && os.Geteuid() == 0 && !userns.Inside()
}

// mountImage makes an ext4 image and mounts it at dir. The file system has no journal,
// since its contents are discarded after a crash.
func (r *Run) mountImage(ctx context.Context, dir string, cfg runtime.VolumeConfig) error {
	images := r.c.volumeFiles(r.id)
	if err := os.MkdirAll(images, 0o700); err != nil {
		return err
	}
	image := filepath.Join(images, filepath.Base(dir)+".ext4")
	if err := truncated(image, cfg.Bytes); err != nil {
		return err
	}
	defer func() { _ = os.Remove(image) }() // the loop device keeps the file
	mkfs := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", "-I", "256",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard", "-N", strconv.FormatInt(cfg.Inodes, 10), image)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, bytes.TrimSpace(out))
	}
	m := mount.Mount{Type: "ext4", Source: image, Options: []string{"loop", "nosuid", "nodev", "noatime", "nobarrier", "noinit_itable"}}
	return m.Mount(dir)
}

// volumeFiles returns the directory of a run's image files, which have a name only until
// they are mounted, and of its layers on disk.
func (c *Client) volumeFiles(run string) string { return filepath.Join(c.opts.Root, "volumes", run) }

func truncated(name string, size int64) error {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Truncate(size), f.Close())
}

// Path returns the directory to write to.
func (v *volume) Path() string { return v.data }

// Full reports whether less space or fewer inodes are left than a small file needs.
func (v *volume) Full() (bool, error) {
	if v.folder {
		bytes, inodes, err := v.used(nil)
		if errors.Is(err, errOverflow) {
			return true, nil
		}
		return bytes > v.cfg.Bytes-fullBytes || inodes > v.cfg.Inodes-fullInodes, err
	}
	return full(v.data)
}

func full(dir string) (bool, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return false, fmt.Errorf("room in %s: %w", dir, err)
	}
	return int64(st.Bavail)*st.Bsize < fullBytes || st.Ffree < fullInodes, nil
}

// Close removes the volume, or its contents if it is kept for the next one.
func (v *volume) Close() error {
	if v.data == "" {
		return nil
	}
	if v.keep() {
		v.data = ""
		return nil
	}
	if v.folder {
		if err := remove.Path(v.mountPoint); err != nil {
			return err
		}
		v.data = ""
		return nil
	}
	err := errors.Join(v.forget(), unmount(v.mountPoint))
	if err == nil {
		v.data = ""
	}
	if err == nil {
		err = os.Remove(v.mountPoint)
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}
