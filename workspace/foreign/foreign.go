// Package foreign opens files and directories that somebody else wrote: an agent, another machine, or
// whoever sent a run. None of its functions waits for a pipe, opens a device, follows a symbolic link
// below the root, or reads more than its caller allows.
package foreign

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

var (
	// ErrKind means that a name leads to another kind of file than the caller asked for, or through a
	// symbolic link.
	ErrKind = errors.New("is no regular file, or is reached through a link")
	// ErrBig means that a file has more bytes, or more values, than the caller allows.
	ErrBig = errors.New("is too big")

	errNoDir = errors.New("is no directory, or is reached through a link")
)

// Open opens the regular file name below root, with at most limit bytes, for reading. The caller closes it.
func Open(root *os.Root, name string, limit int64) (*os.File, error) {
	return open(root, name, unix.S_IFREG, limit)
}

// OpenPath is Open for a path of the host. Only the last element may not be a symbolic link.
func OpenPath(name string, limit int64) (*os.File, error) {
	return openPath(name, unix.O_NOFOLLOW, limit)
}

// ReadPath returns the content of a regular file of the host, which has at most limit bytes. The path may
// lead through symbolic links: whoever names the file is trusted, but the file is not.
func ReadPath(name string, limit int64) ([]byte, error) {
	f, err := openPath(name, 0, limit)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

func openPath(name string, flags int, limit int64) (*os.File, error) {
	handle, err := unix.Open(name, flags|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(handle) }()
	return reopen(handle, name, unix.S_IFREG, limit)
}

// OpenDir opens the directory name below root. The caller closes it.
func OpenDir(root *os.Root, name string) (*os.Root, error) {
	f, err := open(root, name, unix.S_IFDIR, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	return os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", f.Fd())) // not by name: another file may have it now
}

// OpenDigest is Open for a file that must have the digest. Errors do not name the file.
func OpenDigest(ctx context.Context, root *os.Root, name, digest string, limit int64) (*os.File, error) {
	f, err := Open(root, name, limit)
	switch named := (*fs.PathError)(nil); {
	case errors.Is(err, fs.ErrNotExist):
		return nil, errors.New("it is missing")
	case errors.As(err, &named):
		return nil, named.Err
	case err != nil:
		return nil, err
	}
	got, err := Digest(ctx, f)
	if err == nil && got != digest {
		err = errors.New("its bytes are not what its digest says")
	}
	if err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Read returns the content of the regular file name below root, which has at most limit bytes.
func Read(root *os.Root, name string, limit int64) ([]byte, error) {
	f, err := Open(root, name, limit)
	if err != nil {
		return nil, err
	}
	return readAll(f, limit)
}

func readAll(f *os.File, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if int64(len(data)) > limit { // it grew
		err = errors.Join(err, fmt.Errorf("%s %w", f.Name(), ErrBig))
	}
	return data, errors.Join(err, f.Close())
}

// Decode decodes JSON into a variable. The error is ErrBig if the JSON may have more than most values.
func Decode(data []byte, into any, most int) error {
	if Values(data) > most {
		return fmt.Errorf("%w: it has more than %d JSON values", ErrBig, most)
	}
	return json.Unmarshal(data, into)
}

// Values returns an upper bound on the number of values in JSON: one, and one more for each comma and each opening
// bracket. Each value takes memory when it is decoded; all of them can take hundreds of times as much as the text.
func Values(data []byte) int {
	values, quoted := 1, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case !quoted && (c == ',' || c == '[' || c == '{'):
			values++
		}
	}
	return values
}

// Digest reads f to its end, and returns "sha256:" and the hexadecimal digest of what it read. It ends
// early with the cause of ctx.
func Digest(ctx context.Context, f io.Reader) (string, error) {
	sum := sha256.New()
	_, err := io.Copy(sum, Until(ctx, f))
	return "sha256:" + hex.EncodeToString(sum.Sum(nil)), err
}

// Until returns a reader of r that fails with the cause of ctx once ctx has ended.
func Until(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context // allowed in a struct here: a reader ends with the call that made it
	io.Reader
}

func (r reader) Read(p []byte) (int, error) {
	if err := context.Cause(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}

// An Entry is what [Walk] finds: the entry Name of the open directory Dir.
type Entry struct {
	Dir  *os.Root
	Name string
	Path string // below the root of the walk
	Info fs.FileInfo
}

// Walk calls visit for everything below root in the order of names, a directory before its contents. It opens each
// directory by its name in the directory above, so names can have any bytes, and paths any length. It follows no link,
// and passes over what is removed meanwhile, and over directories for which visit returns [fs.SkipDir]. The error is ErrBig
// if there are other directories more than depth levels below root.
func Walk(root *os.Root, depth int, visit func(Entry) error) error {
	return walk(root, "", depth, visit)
}

func walk(dir *os.Root, at string, depth int, visit func(Entry) error) error {
	var names []string
	f, err := dir.Open(".")
	if err == nil {
		names, err = f.Readdirnames(-1)
		err = errors.Join(err, f.Close())
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	slices.Sort(names)
	for _, name := range names {
		info, err := dir.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		e := Entry{dir, name, path.Join(at, name), info}
		if err == nil {
			err = visit(e)
		}
		if err == nil && info.IsDir() {
			err = e.walk(depth, visit)
		}
		if err != nil && err != fs.SkipDir {
			return err
		}
	}
	return nil
}

// walk walks below an entry that was a directory.
func (e Entry) walk(depth int, visit func(Entry) error) error {
	if depth == 0 {
		return fmt.Errorf("%w: there are too many directories inside one another", ErrBig)
	}
	below, err := OpenDir(e.Dir, e.Name)
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, errNoDir): // removed or replaced meanwhile
		return nil
	case err != nil:
		return err
	}
	defer func() { _ = below.Close() }()
	return walk(below, e.Path, depth-1, visit)
}

// open opens name below root. The kernel follows no link on the way.
func open(root *os.Root, name string, kind uint32, limit int64) (*os.File, error) {
	if !filepath.IsLocal(name) {
		return nil, fmt.Errorf("%w: %q leads out of the directory", fs.ErrInvalid, name)
	}
	top, err := root.Open(".")
	if err != nil {
		return nil, err
	}
	defer func() { _ = top.Close() }()
	handle, err := unix.Openat2(int(top.Fd()), filepath.Clean(name), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC, Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS,
	})
	if errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) { // a file or a link in the middle of the path
		err = ErrKind
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	defer func() { _ = unix.Close(handle) }()
	return reopen(handle, name, kind, limit)
}

// reopen opens for reading the file of an O_PATH descriptor, if the file is of the kind. The descriptor's entry in /proc
// leads to that file, whatever its present name.
func reopen(handle int, name string, kind uint32, limit int64) (*os.File, error) {
	var st unix.Stat_t
	err := unix.Fstat(handle, &st)
	switch {
	case err != nil:
	case st.Mode&unix.S_IFMT != kind && kind == unix.S_IFDIR:
		err = errNoDir
	case st.Mode&unix.S_IFMT != kind:
		err = ErrKind
	case kind == unix.S_IFREG && st.Size > limit:
		err = fmt.Errorf("%w: it has %d bytes, more than %d", ErrBig, st.Size, limit)
	}
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", handle), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}
