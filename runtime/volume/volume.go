// Package volume makes writable directories of bounded size for one run: file systems in
// memory, ext4 images on loop devices, and directories on disk whose size is watched.
package volume

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/runtime/remove"
	"github.com/securebench/sbench/runtime/userns"
)

// maxMemory is the size, in bytes, of the largest volume kept in memory. Its pages count as
// memory of the sandbox that writes them.
const maxMemory = 64 << 20

const (
	fullBytes  = 128 << 10 // a volume with fewer bytes left is full; overlay and ext4 round up
	fullInodes = 1         // the same for inodes
)

const (
	// maxIdle is how many emptied images of one size a store keeps.
	maxIdle = 16
	// maxEmptiedFiles and maxEmptiedBytes are how many inodes and bytes an image may hold to
	// be emptied. If it holds more, removing the whole image is faster.
	maxEmptiedFiles = 2000
	maxEmptiedBytes = 256 << 20
)

// A Store makes the volumes of one run. Its methods are safe for concurrent use. It empties
// the image of a closed volume and keeps it mounted for the next volume of that size, since
// making one takes longer than most attempts. ext4 does not show a block before it is
// written, so nobody reads the old contents.
type Store struct {
	mounts, root, files string

	mu   sync.Mutex
	open map[string]*Volume // by mount point
	idle map[runtime.VolumeConfig][]*image
}

// NewStore returns a store that mounts volumes in the directory mounts and keeps what is on
// disk below root. The caller closes it, unmounts what is left in mounts, and removes
// [Files].
func NewStore(mounts, root, run string) *Store {
	return &Store{mounts: mounts, root: root, files: Files(root, run), open: map[string]*Volume{}, idle: map[runtime.VolumeConfig][]*image{}}
}

// Files returns the directory for a run's image files, which have a name only until they are
// mounted, and for its volumes that are directories on disk.
func Files(root, run string) string { return filepath.Join(root, "volumes", run) }

// Images reports whether this host can mount image files.
func Images() bool {
	_, err := os.Stat("/dev/loop-control")
	_, lookErr := exec.LookPath("mke2fs")
	return err == nil && lookErr == nil && os.Geteuid() == 0 && !userns.Inside()
}

// An image is a mounted ext4 image on a loop device. Its file has no name, so the kernel
// frees it after the unmount. It is sparse: when the disk below the store's root is full,
// writes to it are lost without an error for the writer.
type image struct {
	mountPoint string
	// since was opened before anything was written. syncfs(2) on it reports, once, that a
	// later write was lost.
	since *os.File

	mu   sync.Mutex
	lost error
}

// A Volume is a file system of its own, in memory or an image, or a directory on disk.
type Volume struct {
	store      *Store
	cfg        runtime.VolumeConfig
	mountPoint string
	data       string // the directory to write to; "" once closed
	image      *image // nil unless it is one
	unbounded  bool   // a directory on disk; the kernel does not bound it
}

// New makes a volume, which the caller closes. Up to 64 MiB it is in memory unless
// imagesOnly is set. A larger one is an image if the host can mount one, otherwise in
// memory, too.
func (s *Store) New(ctx context.Context, cfg runtime.VolumeConfig, imagesOnly bool) (*Volume, error) {
	if cfg.Bytes <= 0 || cfg.Inodes <= 0 {
		return nil, fmt.Errorf("volume: %d bytes and %d inodes are no size", cfg.Bytes, cfg.Inodes)
	}
	if i := s.takeIdle(cfg); i != nil {
		if v, err := s.opened(&Volume{cfg: cfg, mountPoint: i.mountPoint, image: i}); err == nil {
			return v, nil
		}
		_ = i.since.Close() // it stays mounted until the run's end
	}
	v := &Volume{cfg: cfg, mountPoint: filepath.Join(s.mounts, "volume-"+rand.Text())}
	if err := os.Mkdir(v.mountPoint, 0o700); err != nil {
		return nil, fmt.Errorf("volume: %w", err)
	}
	var err error
	if imagesOnly || cfg.Bytes > maxMemory && Images() {
		v.image, err = s.mountImage(ctx, v.mountPoint, cfg)
	} else {
		options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0700", cfg.Bytes, cfg.Inodes)
		err = unix.Mount("tmpfs", v.mountPoint, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options)
	}
	if err == nil {
		_, err = s.opened(v)
	}
	if err != nil {
		return nil, fmt.Errorf("volume of %d bytes: %w", cfg.Bytes, errors.Join(err, v.unmount()))
	}
	return v, nil
}

// NewDirectory makes a volume that is a directory on disk, which the kernel does not bound;
// see [Volume.Exceeded].
func (s *Store) NewDirectory(cfg runtime.VolumeConfig) (*Volume, error) {
	v := &Volume{cfg: cfg, mountPoint: filepath.Join(s.files, "layer-"+rand.Text()), unbounded: true}
	err := os.MkdirAll(v.mountPoint, 0o700)
	if err == nil {
		_, err = s.opened(v)
	}
	if err != nil {
		return nil, fmt.Errorf("layer: %w", errors.Join(err, os.RemoveAll(v.mountPoint)))
	}
	return v, nil
}

// opened makes the directory to write to, next to ext4's lost+found. Only sbench can pass
// the top of the file system (mode 0700); a sandbox gets the directory below it.
func (s *Store) opened(v *Volume) (*Volume, error) {
	data := filepath.Join(v.mountPoint, "data-"+rand.Text())
	if err := errors.Join(os.Chmod(v.mountPoint, 0o700), os.Mkdir(data, 0o755)); err != nil {
		return nil, err
	}
	v.store, v.data = s, data
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open[v.mountPoint] = v
	return v, nil
}

// hashSeed is any UUID. The order in which ext4 lists a directory depends on it, so that directories with the same names
// are listed in the same order in all images.
const hashSeed = "8e1f6d0c-3a57-4b62-9d84-5c7e2b90a1f3"

// mountImage makes an ext4 image and mounts it at dir. The file system has no journal, since
// its contents are discarded after a crash.
func (s *Store) mountImage(ctx context.Context, dir string, cfg runtime.VolumeConfig) (*image, error) {
	if err := os.MkdirAll(s.files, 0o700); err != nil {
		return nil, err
	}
	file := filepath.Join(s.files, filepath.Base(dir)+".ext4")
	f, err := os.OpenFile(file, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.Remove(file) }() // the loop device keeps the file
	if err := errors.Join(f.Truncate(cfg.Bytes), f.Close()); err != nil {
		return nil, err
	}
	mkfs := exec.CommandContext(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-m", "0", "-b", "4096", "-I", "256",
		"-O", "^has_journal,^resize_inode", "-E", "lazy_itable_init=1,nodiscard,hash_seed="+hashSeed, "-N", strconv.FormatInt(cfg.Inodes, 10), file)
	if out, err := mkfs.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mke2fs: %w: %s", err, bytes.TrimSpace(out))
	}
	m := mount.Mount{Type: "ext4", Source: file, Options: []string{"loop", "nosuid", "nodev", "noatime", "nobarrier", "noinit_itable"}}
	err = m.Mount(dir)
	for range maxLoopDevices {
		if err == nil || !makeLoopDevice(err) {
			break
		}
		err = m.Mount(dir)
	}
	if err != nil {
		return nil, err
	}
	since, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	return &image{mountPoint: dir, since: since}, nil
}

const (
	// maxLoopDevices bounds how many loop devices one mount makes: others may use them up.
	maxLoopDevices = 64
	loopMajor      = 7 // of all loop devices (admin-guide/devices.txt)
)

// makeLoopDevice makes the file of the loop device whose absence err reports. The kernel does so
// only in a devtmpfs, which the /dev of a container is not.
func makeLoopDevice(err error) bool {
	var missing *fs.PathError
	if !errors.As(err, &missing) || !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	text, ok := strings.CutPrefix(missing.Path, "/dev/loop")
	n, numErr := strconv.ParseUint(text, 10, 20)
	if !ok || numErr != nil {
		return false
	}
	err = unix.Mknod(missing.Path, unix.S_IFBLK|0o600, int(unix.Mkdev(loopMajor, uint32(n))))
	return err == nil || errors.Is(err, fs.ErrExist)
}

// Of returns the volume that holds a path; nil if none does.
func (s *Store) Of(path string) *Volume {
	s.mu.Lock()
	defer s.mu.Unlock()
	for point, v := range s.open {
		if strings.HasPrefix(path, point+"/") {
			return v
		}
	}
	return nil
}

// Close closes the files that would keep images in use after they are unmounted.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	for _, v := range s.open {
		if v.image != nil {
			errs = append(errs, v.image.since.Close())
		}
	}
	for _, images := range s.idle {
		for _, i := range images {
			errs = append(errs, i.since.Close())
		}
	}
	clear(s.open)
	clear(s.idle)
	return errors.Join(errs...)
}

// unmount removes what [Store.New] made.
func (v *Volume) unmount() error {
	var err error
	if v.image != nil {
		err = v.image.since.Close()
		v.image = nil
	}
	if err = errors.Join(err, mounts.Detach(v.mountPoint)); err != nil {
		return err
	}
	if err = os.Remove(v.mountPoint); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// takeIdle returns an emptied image of the size cfg; nil if there is none.
func (s *Store) takeIdle(cfg runtime.VolumeConfig) *image {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.idle[cfg]
	if len(list) == 0 {
		return nil
	}
	s.idle[cfg] = list[:len(list)-1]
	return list[len(list)-1]
}

// recycle empties a volume's image and makes it idle, for the next volume. It reports whether it did.
func (v *Volume) recycle() bool {
	var st unix.Statfs_t
	if v.image == nil || v.Sound() != nil || unix.Statfs(v.mountPoint, &st) != nil {
		return false
	}
	if int64(st.Files-st.Ffree) >= maxEmptiedFiles || int64(st.Blocks-st.Bfree)*st.Bsize >= maxEmptiedBytes || remove.Path(v.data) != nil {
		return false
	}
	s := v.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle[v.cfg]) >= maxIdle {
		return false
	}
	delete(s.open, v.mountPoint)
	s.idle[v.cfg] = append(s.idle[v.cfg], v.image)
	return true
}

// Path returns the directory to write to.
func (v *Volume) Path() string { return v.data }

// Sound returns an error if something that was written has not reached the disk.
func (v *Volume) Sound() error {
	i := v.image
	if i == nil {
		return nil
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := unix.Syncfs(int(i.since.Fd())); err != nil && i.lost == nil {
		i.lost = fmt.Errorf("%w: what was written to a volume below %s is lost, for its disk is full or fails: %w", runtime.ErrUnavailable, v.store.root, err)
	}
	return i.lost
}

// Full reports whether less space or fewer inodes are left than a small file needs.
func (v *Volume) Full() (bool, error) {
	if v.unbounded {
		bytes, inodes, err := v.used(nil)
		if errors.Is(err, errOverflow) {
			return true, nil
		}
		return bytes > v.cfg.Bytes-fullBytes || inodes > v.cfg.Inodes-fullInodes, err
	}
	var st unix.Statfs_t
	if err := unix.Statfs(v.data, &st); err != nil {
		return false, fmt.Errorf("room in %s: %w", v.data, err)
	}
	return int64(st.Bavail)*st.Bsize < fullBytes || st.Ffree < fullInodes, nil
}

// InMemory returns how many bytes a volume's contents take if the volume is small enough to
// be in memory on any host; 0 for larger ones.
func (v *Volume) InMemory() int64 {
	var st unix.Statfs_t
	if v.cfg.Bytes > maxMemory || v.unbounded || unix.Statfs(v.mountPoint, &st) != nil {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}

// Close removes the volume, or its contents if its image is kept for the next one. It may be
// called again.
func (v *Volume) Close() error {
	if v.data == "" {
		return nil
	}
	var err error
	switch {
	case v.unbounded:
		err = remove.Path(v.mountPoint)
	case !v.recycle():
		err = v.unmount()
	}
	if err != nil {
		return err
	}
	v.store.mu.Lock()
	defer v.store.mu.Unlock()
	if v.store.open[v.mountPoint] == v {
		delete(v.store.open, v.mountPoint)
	}
	v.data = ""
	return nil
}
