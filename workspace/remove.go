package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxRemoveDepth bounds the descriptors that a removal holds open: directories that lie
// deeper are first moved up.
const maxRemoveDepth = 64

// RemoveAll removes name and everything below it, whatever the permission bits and the
// depth that an agent left, without following a symbolic link or leaving root. It is no
// error if name does not exist. The process must own the tree or be privileged.
func RemoveAll(root *os.Root, name string) error {
	if !filepath.IsLocal(name) || path.Clean(name) == "." {
		return fmt.Errorf("remove %q: %w", name, fs.ErrInvalid)
	}
	parent, err := root.Open(path.Dir(path.Clean(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	defer shut(parent)
	r := remover{top: noCopy}
	if err := r.remove(int(parent.Fd()), path.Base(path.Clean(name)), 0); err != nil {
		return fmt.Errorf("remove %q: %w", name, err)
	}
	return nil
}

// remover removes one tree.
type remover struct {
	top   int // the open directory that deep directories are moved to
	moved int
}

func (r *remover) remove(parent int, name string, depth int) error {
	err := unix.Unlinkat(parent, name, 0)
	if err == nil || errors.Is(err, unix.ENOENT) {
		return nil
	}
	var st unix.Stat_t
	switch statErr := unix.Fstatat(parent, name, &st, unix.AT_SYMLINK_NOFOLLOW); {
	case errors.Is(statErr, fs.ErrNotExist):
		return nil
	case statErr != nil:
		return statErr
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return err
	}
	if depth >= maxRemoveDepth {
		return r.moveUp(parent, name)
	}
	fd, err := openOwned(parent, name)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	if depth == 0 {
		r.top = fd
	}
	if err := r.empty(fd, depth); err != nil {
		return err
	}
	return unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
}

// empty removes the contents of the open directory until it is empty, since directories
// may be moved up into it in the meantime.
func (r *remover) empty(fd, depth int) error {
	for {
		names, err := readNames(fd, defaultMaxFiles)
		if errors.Is(err, ErrTooBig) {
			names, err = readSome(fd)
		}
		if err != nil {
			return err
		}
		if len(names) == 0 {
			return nil
		}
		for _, name := range names {
			if err := r.remove(fd, name, depth+1); err != nil {
				return err
			}
		}
	}
}

// readSome returns some of the names in a directory that has too many for readNames.
func readSome(fd int) ([]string, error) {
	dir, err := rewound(fd)
	if err != nil {
		return nil, err
	}
	defer shut(dir)
	names, err := dir.Readdirnames(100_000)
	return names, ignoreEOF(err)
}

func (r *remover) moveUp(parent int, name string) error {
	fd, err := openOwned(parent, name)
	if err != nil {
		return err
	}
	defer closeFD(fd)
	for {
		r.moved++
		target := ".sbench-remove-" + strconv.Itoa(r.moved)
		err := unix.Renameat2(parent, name, r.top, target, unix.RENAME_NOREPLACE)
		if !errors.Is(err, unix.EEXIST) {
			return err
		}
	}
}

// openOwned gives the owner of a directory all permissions and opens it.
func openOwned(parent int, name string) (int, error) {
	handle, err := unix.Openat(parent, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, err
	}
	defer closeFD(handle)
	if err := chmodHandle(handle, 0o700); err != nil {
		return -1, err
	}
	return unix.Openat(parent, name, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
}
