package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/mounts"
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
	if len(lowers) == 1 {
		return mounts.Bind(lowers[0], target)
	}
	options := append(overlayOptions(), "nosuid", "nodev", "ro", "lowerdir="+strings.Join(lowers, ":"))
	return (&mount.Mount{Type: "overlay", Source: "overlay", Options: options}).Mount(target)
}

// makeLayer makes the upper and work directories of an overlay.
func makeLayer(layer string) error {
	return errors.Join(os.MkdirAll(filepath.Join(layer, "upper"), 0o755), os.MkdirAll(filepath.Join(layer, "work"), 0o755))
}

// makeLayerLike makes the upper directory of an overlay with the owner, mode and time of dir, so that
// the overlay's top directory has them.
func makeLayerLike(layer, dir string) error {
	upper := filepath.Join(layer, "upper")
	if err := makeLayer(layer); err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		return err
	}
	return errors.Join(os.Chown(upper, int(st.Uid), int(st.Gid)), unix.Chmod(upper, st.Mode&0o7777), unix.UtimesNano(upper, []unix.Timespec{st.Mtim, st.Mtim}))
}

func layerOptions(lowers []string, upper, work string) []string {
	return append(overlayOptions(), "lowerdir="+strings.Join(lowers, ":"), "upperdir="+upper, "workdir="+work)
}

// overlay mounts an overlay of lower directories at target, which writes to directories that it makes in layer. The
// mount's options name links next to target: a sandbox can read the options of its root mount, which must not reveal
// paths of the host, and the kernel accepts at most one page of options.
func overlay(lowers []string, layer, target string) error {
	if err := makeLayer(layer); err != nil {
		return err
	}
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
