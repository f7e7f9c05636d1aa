package containerd

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/mount"
	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/userns"
)

// overlayOptions switch off what would let an upper directory that a candidate
// wrote reach outside its layers (overlayfs, "Redirecting directories" and
// "Metadata only copy up").
func overlayOptions() []string {
	options := []string{"index=off", "redirect_dir=nofollow", "metacopy=off"}
	if userns.Inside() { // trusted.* attributes are only for the host's root
		options = append(options, "userxattr")
	}
	return options
}

// mountView mounts lower directories, topmost first, read-only at target.
func mountView(lowers []string, target string) error {
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

// sealMount makes the mount at target read-only and keeps its other flags. The
// OCI runtime's own way, root.readonly, would drop nosuid and nodev.
func sealMount(target string) error {
	err := unix.Mount("", target, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "")
	if err != nil {
		return fmt.Errorf("make %s read-only: %w", target, err)
	}
	return nil
}

// bindMount bind-mounts source at target, which must exist. Mounts below source are not
// included.
func bindMount(source, target string, writable bool) error {
	mode := "ro"
	if writable {
		mode = "rw"
	}
	return (&mount.Mount{Type: "bind", Source: source, Options: []string{"bind", mode, "nosuid", "nodev"}}).Mount(target)
}

// unmount detaches target, even when something still holds a file in it.
func unmount(target string) error {
	err := unix.Unmount(target, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err != nil && !errors.Is(err, unix.EINVAL) && !errors.Is(err, unix.ENOENT) { // not mounted
		return fmt.Errorf("unmount %s: %w", target, err)
	}
	return nil
}

// unmountBelow detaches every mount at or below dir. Detaching an outer mount detaches
// those below it too, which is faster than one by one.
func unmountBelow(dir string) error {
	points, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	var errs []error
	for _, point := range points { // mountinfo lists parents first
		errs = append(errs, unmount(point))
	}
	return errors.Join(errs...)
}

func mountsBelow(dir string) ([]string, error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var points []string
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 {
			continue
		}
		point := unescape(fields[4])
		if point == dir || strings.HasPrefix(point, dir+"/") {
			points = append(points, point)
		}
	}
	return points, nil
}

// unescape undoes the octal escapes of mountinfo, proc(5).
func unescape(s string) string {
	return strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`).Replace(s)
}

// makeMountPoint makes dest, a directory or an empty file, below the root file system at
// root. Nothing else writes there yet, so that resolving the path before making it is not
// a race.
func makeMountPoint(root, dest string, dir bool) error {
	path, err := securejoin.SecureJoin(root, dest)
	if err != nil {
		return fmt.Errorf("mount destination %q: %w", dest, err)
	}
	info, err := os.Lstat(path)
	switch {
	case err == nil && info.IsDir() != dir:
		return fmt.Errorf("mount destination %q: a directory cannot be mounted over a file, nor a file over a directory", dest)
	case err == nil:
		return nil
	case !errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("mount destination %q: %w", dest, err)
	}
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

// clearPath prepares the tree at root, which an agent wrote, for a mount at name, a
// directory or a file. It removes what is not a directory on the way to name, and name
// itself if it is a link or of the wrong kind, so that later processes find the mount under
// that name.
func clearPath(root, name string, dir bool) error {
	r, err := os.OpenRoot(root)
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	at, parts := "", strings.Split(strings.Trim(name, "/"), "/")
	for i, part := range parts {
		at = filepath.Join(at, part)
		info, err := r.Lstat(at)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		last := i == len(parts)-1
		if last && info.Mode().IsRegular() && !dir || info.IsDir() && (dir || !last) {
			continue
		}
		return r.RemoveAll(at)
	}
	return nil
}
