package rootfs

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/containerd/mounts"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/userns"
)

// overlayOptions disable what would let an upper directory written by a candidate reach
// outside its layers (overlayfs, "Redirecting directories" and "Metadata only copy up").
func overlayOptions() []string {
	options := []string{"index=off", "redirect_dir=nofollow", "metacopy=off"}
	if userns.Inside() { // trusted.* attributes are only for the host's root
		options = append(options, "userxattr")
	}
	return options
}

// View mounts lower directories, topmost first, read-only at target.
func View(lowers []string, target string) error {
	m := mount.Mount{Type: "bind", Source: lowers[0], Options: []string{"bind", "ro", "nosuid", "nodev"}}
	if len(lowers) > 1 {
		m = mount.Mount{Type: "overlay", Source: "overlay", Options: append(overlayOptions(), "nosuid", "nodev", "ro", "lowerdir="+strings.Join(lowers, ":"))}
	}
	return m.Mount(target)
}

// makeLayer makes the upper and work directories of an overlay.
func makeLayer(layer string) (upper, work string, err error) {
	upper, work = filepath.Join(layer, "upper"), filepath.Join(layer, "work")
	return upper, work, errors.Join(os.MkdirAll(upper, 0o755), os.MkdirAll(work, 0o755))
}

func layerOptions(lowers []string, upper, work string) []string {
	return append(overlayOptions(), "lowerdir="+strings.Join(lowers, ":"), "upperdir="+upper, "workdir="+work)
}

// A Stacker makes overlays. The zero value uses the kernel's overlayfs.
type Stacker struct {
	Fuse string // the program; "" for the kernel's overlayfs
	// OnDisk means that writes go to a directory on disk, since a user's overlay needs
	// user.* attributes, which tmpfs has from Linux 6.6 on (tmpfs(5)).
	OnDisk bool
}

// Overlay mounts an overlay of lower directories at target, which writes to directories that
// it makes in layer.
func (s Stacker) Overlay(lowers []string, layer, target string) error {
	upper, work, err := makeLayer(layer)
	if err != nil {
		return err
	}
	if s.Fuse == "" {
		return mountNamed(lowers, layer, target)
	}
	options := "lowerdir=" + strings.Join(lowers, ":") + ",upperdir=" + upper + ",workdir=" + work
	// It goes into the background and ends at the unmount.
	cmd := exec.Command(s.Fuse, "-o", options, target)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fuse-overlayfs: %w: %s", err, bytes.TrimSpace(out))
	}
	err = unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_NOSUID|unix.MS_NODEV, "")
	if err != nil {
		return errors.Join(fmt.Errorf("fuse-overlayfs: %w", err), mounts.Detach(target))
	}
	return nil
}

// mountNamed mounts an overlay whose options name links next to its target instead of the
// directories themselves. A sandbox can read the options of its root mount, which must not
// reveal the paths of the host's user; and the kernel accepts at most one page of options.
func mountNamed(lowers []string, layer, target string) error {
	links := target + "-layers"
	if err := errors.Join(os.Mkdir(links, 0o700), os.Symlink(layer, filepath.Join(links, "layer"))); err != nil {
		return err
	}
	names := make([]string, len(lowers))
	for i, lower := range lowers {
		names[i] = strconv.Itoa(i)
		if err := os.Symlink(lower, filepath.Join(links, names[i])); err != nil {
			return err
		}
	}
	return (*idmap.Range)(nil).Overlay(links, target, layerOptions(names, "layer/upper", "layer/work"))
}
