package idmap

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/thread"
)

// Probe returns why sandboxes whose mounts are below dir cannot have ids of
// their own on this host, nil if they can. Lowers are folders on the file
// systems that hold the layers of images; they are read only. It does what a
// sandbox's root needs, in a mount namespace that ends with it.
func (p *Pool) Probe(dir string, lowers ...string) error {
	if err := procCovered(); err != nil {
		return err
	}
	r, err := p.Take()
	if err != nil {
		return err
	}
	at, err := os.MkdirTemp(dir, "probe-")
	if err != nil {
		return errors.Join(err, r.Close())
	}
	err = os.Chmod(at, 0o711)
	if err == nil {
		err = r.reach(at)
	}
	if err == nil {
		err = thread.Run(func() error { return r.tryRoot(at, lowers) })
	}
	return errors.Join(err, os.Remove(at), r.Close())
}

// procCovered: the kernel lets a user namespace mount proc only where a whole
// one is mounted (mount_namespaces(7), "Restrictions on mount namespaces"). What
// is mounted on a directory that is always empty does not count.
func procCovered() error {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) < 5 || !strings.HasPrefix(fields[4], "/proc/") {
			continue
		}
		if point := fields[4]; point != "/proc/sys/fs/binfmt_misc" && point != "/proc/fs/nfsd" {
			return fmt.Errorf("%s is mounted over, so that a user namespace may not mount /proc", point)
		}
	}
	return nil
}

// reach says whether the range's root gets to the folder at, as the OCI runtime
// must within the sandbox's user namespace.
func (r *Range) reach(at string) error {
	return thread.Run(func() error {
		if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
			return fmt.Errorf("drop groups: %w", errno)
		}
		if err := becomeForFiles(r.base); err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Stat(at, &st); err != nil {
			return fmt.Errorf("a folder on the way to %s cannot be passed by other users: %w", at, err)
		}
		return nil
	})
}

// tryRoot mounts a root of all lowers on a tmpfs at the directory at, and writes
// to it, in a mount namespace of this thread.
func (r *Range) tryRoot(at string, lowers []string) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts private: %w", err)
	}
	if err := unix.Mount("tmpfs", at, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, "size=1m,mode=0711"); err != nil {
		return fmt.Errorf("mount tmpfs at %s: %w", at, err)
	}
	if err := unix.Chdir(at); err != nil {
		return err
	}
	if err := makeAll("layer/upper", "layer/work", "shifted", "root", "low"); err != nil {
		return err
	}
	if err := os.WriteFile("low/file", nil, 0o600); err != nil {
		return err
	}
	options, err := r.shiftAll(append([]string{"low"}, lowers...))
	if err != nil {
		return err
	}
	if err := errors.Join(becomeForFiles(r.base), thread.RaiseCapabilities()); err != nil {
		return err
	}
	if err := overlay("root", options); err != nil {
		return err
	}
	if err := os.WriteFile("root/new", nil, 0o600); err != nil {
		return err
	}
	return errors.Join(r.owner("root/file", r.base), r.owner("root/new", r.base), r.owner("layer/upper/new", 0))
}

// shiftAll mounts the layer writable and each lower below the folder shifted, and
// returns the overlay's options.
func (r *Range) shiftAll(lowers []string) ([]string, error) {
	if err := makeAll("shifted/layer"); err != nil {
		return nil, err
	}
	if err := r.Mount("layer", "shifted/layer", true); err != nil {
		return nil, err
	}
	names := make([]string, len(lowers))
	for i, lower := range lowers {
		names[i] = filepath.Join("shifted", strconv.Itoa(i))
		if err := makeAll(names[i]); err != nil {
			return nil, err
		}
		if err := r.Mount(lower, names[i], false); err != nil {
			return nil, err
		}
	}
	return []string{
		"index=off", "redirect_dir=off", "metacopy=off",
		"lowerdir=" + strings.Join(names, ":"), "upperdir=shifted/layer/upper", "workdir=shifted/layer/work",
	}, nil
}

func makeAll(dirs ...string) error {
	for _, dir := range dirs {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (r *Range) owner(name string, want uint32) error {
	var st unix.Stat_t
	if err := unix.Lstat(name, &st); err != nil {
		return err
	}
	if st.Uid != want || st.Gid != want {
		return fmt.Errorf("ids are not shifted: %s belongs to %d:%d, not %d", name, st.Uid, st.Gid, want)
	}
	return nil
}
