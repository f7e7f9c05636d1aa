package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	"golang.org/x/sys/unix"

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
