package rootfs

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	securejoin "github.com/cyphar/filepath-securejoin"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/mounts"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	maxSockets    = 64  // of another sandbox that a sandbox shows
	maxSocketPath = 107 // bytes of a path that connect takes, unix(7)
)

// ShowSockets shows the UNIX sockets that processes have made in the root file system of other and in its writable
// mounts, at the same paths. It leaves out a socket below sealed, at a mount of f, behind a link, or at a path that f cannot
// have, and a socket that vanishes: no socket is an error.
func (f *FS) ShowSockets(other *FS, sealed []string) error {
	root := runtime.Mount{Source: other.Root(), Dest: "/"}
	err := f.showSockets(root, other.Layers()[0], sealed) // the layer is the root without what is the image's
	for _, m := range other.mounts {
		if err == nil && m.Writable {
			err = f.showSockets(m, m.Source, sealed)
		}
	}
	if err != nil {
		return fmt.Errorf("UNIX sockets of another sandbox: %w", err)
	}
	return nil
}

// showSockets shows the sockets in the directory tree, which m mounts in the other sandbox.
func (f *FS) showSockets(m runtime.Mount, tree string, sealed []string) error {
	root, err := os.OpenRoot(tree)
	if errors.Is(err, unix.ENOTDIR) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	most := len(f.Files) + len(f.Mounts) + maxSockets
	err = foreign.Walk(root, maxDepth, func(e foreign.Entry) error {
		dest := path.Join(m.Dest, e.Path)
		if e.Info.Mode().Type() != fs.ModeSocket || len(f.mounts) >= most || !f.canShow(dest, sealed) {
			return nil
		}
		at := filepath.Join(f.Dir, fmt.Sprintf("socket-%d", len(f.mounts)))
		if f.makeInnermost(dest, false) == nil && bindSocket(m.Source, e.Path, at) == nil {
			f.mounts = append(f.mounts, runtime.Mount{Source: at, Dest: dest})
		}
		return nil
	})
	if errors.Is(err, foreign.ErrBig) {
		return nil
	}
	return err
}

// canShow reports whether f can have a socket at dest: connect takes the path, and no link, mount or sealed path is in the way.
func (f *FS) canShow(dest string, sealed []string) bool {
	if len(dest) > maxSocketPath { // first: SecureJoin looks at each directory of the path
		return false
	}
	below := func(dir string) bool { return dest == dir || strings.HasPrefix(dest, dir+"/") }
	covers := func(m runtime.Mount) bool { return dest == m.Dest || !m.Copy && below(m.Dest) }
	strange := func(c rune) bool { return unicode.IsControl(c) || c == unicode.ReplacementChar }
	at, err := securejoin.SecureJoin(f.Root(), dest)
	return !strings.ContainsFunc(dest, strange) && err == nil && at == filepath.Join(f.Root(), dest) &&
		!slices.ContainsFunc(sealed, below) && !slices.ContainsFunc(f.mounts, covers)
}

// bindSocket mounts the socket p of a directory in which processes run at a new file at. It follows no links.
func bindSocket(dir, p, at string) error {
	top, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer func() { _ = top.Close() }()
	fd, err := unix.Openat2(int(top.Fd()), p, &unix.OpenHow{Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return unix.ENOTSOCK
	}
	if err := os.WriteFile(at, nil, 0o644); err != nil {
		return err
	}
	return mounts.Bind(fmt.Sprintf("/proc/self/fd/%d", fd), at)
}
