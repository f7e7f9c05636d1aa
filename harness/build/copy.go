package build

import (
	"archive/tar"
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/passwd"
	"github.com/securebench/sbench/workspace"
)

// copying is a COPY or an ADD.
type copying struct {
	instructions.SourcesAndDest
	from, chown, chmod string
	parents            bool     // keep the directories of the sources
	unpack             bool     // archives
	exclude            []string // patterns
	text               string   // for people
}

// layered is a step whose layer holds what fill writes to an upper directory.
func (s *stage) layered(ctx context.Context, key, name string, fill func(*upper) error) error {
	return s.step(ctx, key, name, func(to *os.File) (report layer.Report, err error) {
		view, err := s.Engine.View(ctx, s.image)
		if err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, view.Close()) }()
		root, closeVolume, err := s.volume(ctx)
		if err != nil {
			return report, err
		}
		defer func() { err = errors.Join(err, closeVolume()) }()
		if err := fill(&upper{to: root, image: view.Root()}); err != nil {
			return report, err
		}
		return layer.Write(ctx, to, runtime.Changes{Dir: root.Name()}, layer.Budget{Bytes: s.Limits.LayerBytes, Entries: maxEntries})
	})
}

// maxEntries bounds what a step copies.
const maxEntries = 1 << 18

// volume makes a directory for what a step copies, which closeVolume removes.
func (s *stage) volume(ctx context.Context) (root *os.Root, closeVolume func() error, err error) {
	vol, err := s.Engine.NewVolume(ctx, runtime.VolumeConfig{Bytes: s.Limits.LayerBytes, Inodes: maxEntries})
	if err != nil {
		return nil, nil, err
	}
	if root, err = os.OpenRoot(vol.Path()); err != nil {
		return nil, nil, errors.Join(err, vol.Close())
	}
	return root, func() error { return errors.Join(root.Close(), vol.Close()) }, nil
}

// upper is the upper directory of an overlay over an image.
type upper struct {
	to, image *os.Root
	uid, gid  int
	mode      fs.FileMode // of files and directories; 0 keeps theirs
}

// resolve returns the path in the overlay to which p leads, relative to its root.
func (u *upper) resolve(p string) string {
	at := workspace.Follow(p, func(at string) string {
		name := strings.TrimPrefix(at, "/")
		if _, err := u.to.Lstat(name); err == nil {
			target, _ := u.to.Readlink(name)
			return target
		}
		target, _ := u.image.Readlink(name)
		return target
	}, nil)
	return path.Join(".", strings.TrimPrefix(at, "/"))
}

func (u *upper) isDir(name string) bool {
	for _, root := range []*os.Root{u.to, u.image} {
		if info, err := root.Lstat(name); err == nil {
			return info.IsDir()
		}
	}
	return name == "."
}

// match returns the names of the sources in a tree. It is a Fault if there are none for a pattern.
func (c copying) match(source tree) (names []string, err error) {
	for _, pattern := range c.SourcePaths {
		if c.parents && strings.Contains(pattern, "/./") {
			return nil, fmt.Errorf("COPY --parents of %s is %w", pattern, errUnsupported)
		}
		found, err := fs.Glob(source.FS(), path.Join(".", path.Clean("/" + pattern)[1:]))
		found = slices.DeleteFunc(found, func(name string) bool {
			info, lstatErr := source.Lstat(name)
			skip, whole, skipErr := source.skip(name)
			err = errors.Join(err, lstatErr, skipErr)
			return whole || skip && err == nil && !info.IsDir()
		})
		if err != nil || len(found) == 0 {
			return nil, Fault{errors.Join(err, fmt.Errorf("there is no %s in %s, or it is ignored", pattern, cmp.Or(c.from, "the build context")))}
		}
		names = append(names, found...)
	}
	return names, nil
}

func (s *stage) copy(ctx context.Context, c copying) error {
	source, closeSource, err := s.source(ctx, c.from)
	if err != nil {
		return err
	}
	defer closeSource()
	if source, err = source.without(c.exclude); err != nil {
		return Fault{err}
	}
	names, err := c.match(source)
	if err != nil {
		return err
	}
	content, err := digestFiles(ctx, source, names)
	if err != nil {
		return err
	}
	for _, inline := range c.SourceContents {
		content += digest(inline.Path, inline.Data)
	}
	dest := c.DestPath
	if !path.IsAbs(dest) {
		dest = path.Join("/", s.workdir) + "/" + dest
	}
	key := digest("copy", s.key, strings.Join(names, "\x00"), content, dest, c.chown, c.chmod, fmt.Sprint(c.parents, c.unpack))
	return s.layered(ctx, key, c.text, func(u *upper) error { return c.fill(ctx, u, source, names, dest) })
}

// fill copies or unpacks the named sources to dest, and writes the contents that the Dockerfile has itself.
func (c copying) fill(ctx context.Context, u *upper, source tree, names []string, dest string) error {
	if err := u.setOwner(c.chown, c.chmod); err != nil {
		return err
	}
	at := u.resolve(path.Clean(dest))
	into := strings.HasSuffix(dest, "/") || strings.HasSuffix(dest, "/.") || len(names)+len(c.SourceContents) > 1 || u.isDir(at)
	to := func(name string) string {
		if into {
			return path.Join(at, name)
		}
		return at
	}
	for _, name := range names {
		info, err := source.Stat(name)
		if err != nil {
			return err
		}
		if c.unpack && info.Mode().IsRegular() {
			unpacked, err := u.unpack(ctx, source, name, at, c.chown != "")
			if err != nil {
				return err
			}
			if unpacked {
				continue
			}
		}
		dest := at
		if c.parents {
			dest = path.Join(at, name)
		} else if !info.IsDir() {
			dest = to(path.Base(name))
		}
		if err := u.copyTree(ctx, source, name, dest); err != nil {
			return err
		}
	}
	for _, inline := range c.SourceContents {
		if err := u.write(to(inline.Path), strings.NewReader(inline.Data), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// source opens what a COPY reads: the context, an earlier stage or an image.
func (s *stage) source(ctx context.Context, from string) (tree, func(), error) {
	if from == "" {
		return s.context, func() {}, nil
	}
	var img runtime.Image
	var err error
	if earlier, ok := s.stages[strings.ToLower(from)]; ok {
		img = earlier.image
	} else if img, err = s.Images.Resolve(ctx, from); err != nil {
		return tree{}, nil, err
	}
	view, err := s.Engine.View(ctx, img)
	if err != nil {
		return tree{}, nil, err
	}
	return tree{Root: view.Root()}, func() { _ = view.Close() }, nil
}

// digestFiles returns a digest of the files and directories: paths, modes and contents.
func digestFiles(ctx context.Context, root tree, names []string) (string, error) {
	h := sha256.New()
	for _, name := range names {
		err := walk(ctx, root, name, func(p string, info fs.FileInfo) error {
			_, _ = fmt.Fprintf(h, "%q %s ", p, info.Mode())
			switch {
			case info.Mode().IsRegular():
				f, err := root.Open(p)
				if err != nil {
					return err
				}
				_, _ = fmt.Fprintf(h, "%d ", info.Size()) // so that no content reads like more files
				_, err = io.Copy(h, f)
				return errors.Join(err, f.Close())
			case info.Mode()&fs.ModeSymlink != 0:
				target, err := root.Readlink(p)
				_, _ = fmt.Fprintf(h, "%q ", target)
				return err
			}
			return nil
		})
		if err != nil {
			return "", err
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

// walk calls visit for name and everything below it that is not ignored.
func walk(ctx context.Context, root tree, name string, visit func(p string, info fs.FileInfo) error) error {
	return fs.WalkDir(root.FS(), name, func(p string, d fs.DirEntry, err error) error {
		if err == nil {
			err = context.Cause(ctx)
		}
		if err != nil {
			return err
		}
		skip, whole, err := root.skip(p)
		switch {
		case err != nil:
			return err
		case skip && whole && d.IsDir():
			return fs.SkipDir
		case skip:
			return nil
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		return visit(p, info)
	})
}

// setOwner sets the owner and the mode of what is copied, from --chown and --chmod; "" is root, and the mode of the source.
func (u *upper) setOwner(chown, chmod string) error {
	user, group, _ := strings.Cut(chown, ":")
	user = cmp.Or(user, "0")
	if _, err := strconv.ParseUint(user, 10, 31); err == nil {
		group = cmp.Or(group, user) // the group of a user's number is by default the same number
	}
	owner, err := passwd.Lookup(u.image.Name(), strings.TrimSuffix(user+":"+group, ":"))
	if err != nil {
		return Fault{err}
	}
	u.uid, u.gid = int(owner.UID), int(owner.GID)
	if chmod != "" {
		mode, err := strconv.ParseUint(chmod, 8, 12)
		if err != nil {
			return Fault{fmt.Errorf("--chmod=%s is not supported: write octal digits, such as 755", chmod)}
		}
		u.mode = fs.FileMode(mode) & fs.ModePerm
	}
	return nil
}

// maxWindow bounds zstd's window when reading an archive, in bytes, as zstd's own program does.
const maxWindow = 128 << 20

// unpack extracts a file to the directory at if the file is a tar archive, compressed or not, and reports whether it is. Unless
// owned, the files belong to whom the archive names.
func (u *upper) unpack(ctx context.Context, source tree, name, at string, owned bool) (bool, error) {
	f, err := source.Open(name)
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }()
	compressed, plain := bufio.NewReader(f), io.Reader(nil)
	magic, _ := compressed.Peek(4)
	switch {
	case bytes.HasPrefix(magic, []byte("\x1f\x8b")):
		plain, err = gzip.NewReader(compressed)
	case bytes.HasPrefix(magic, []byte("BZh")):
		plain = bzip2.NewReader(compressed)
	case bytes.HasPrefix(magic, []byte("\x28\xb5\x2f\xfd")):
		var z *zstd.Decoder
		if z, err = zstd.NewReader(compressed, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(maxWindow)); err == nil {
			defer z.Close()
			plain = z
		}
	case bytes.HasPrefix(magic, []byte("\xfd7zX")):
		return false, Fault{fmt.Errorf("ADD of %s, which xz has compressed, is not supported: compress it with gzip or zstd, or COPY it to keep it as it is", name)}
	default:
		plain = compressed
	}
	if err != nil {
		return false, nil // not compressed
	}
	archive := tar.NewReader(plain)
	for n := 0; ; n++ {
		h, err := archive.Next()
		switch {
		case err != nil && n == 0:
			return false, nil // no archive
		case errors.Is(err, io.EOF):
			return true, nil
		}
		if err = cmp.Or(err, context.Cause(ctx)); err == nil {
			err = u.extract(archive, h, at, owned)
		}
		if err != nil {
			return true, Fault{fmt.Errorf("%s: %w", name, err)}
		}
	}
}

// extract extracts an entry of an archive below the directory dir.
func (u *upper) extract(archive *tar.Reader, h *tar.Header, dir string, owned bool) error {
	into := *u
	if into.mode = 0; !owned {
		into.uid, into.gid = h.Uid, h.Gid
	}
	name := path.Join("/", dir, path.Clean("/"+h.Name))
	at, mode := path.Join(u.resolve(path.Dir(name)), path.Base(name)), h.FileInfo().Mode()&^fs.ModeType
	if h.Typeflag == tar.TypeXGlobalHeader || at == "." {
		return nil
	}
	if err := u.makeParents(at); err != nil {
		return err
	}
	if h.Typeflag == tar.TypeDir {
		return errors.Join(into.makeDirectory(at, mode), u.to.Lchown(at, into.uid, into.gid), u.to.Chmod(at, mode))
	}
	if err := u.to.RemoveAll(at); err != nil {
		return err
	}
	switch h.Typeflag {
	case tar.TypeReg:
		return errors.Join(into.write(at, archive, mode), u.to.Chtimes(at, h.ModTime, h.ModTime))
	case tar.TypeSymlink:
		return errors.Join(u.to.Symlink(h.Linkname, at), u.to.Lchown(at, into.uid, into.gid))
	case tar.TypeLink:
		return u.to.Link(u.resolve(path.Join("/", dir, path.Clean("/"+h.Linkname))), at)
	}
	return fmt.Errorf("%s is no file, directory or link: leave it out of the archive", h.Name)
}

// copyTree copies a file, or the contents of a directory, to the path at.
func (u *upper) copyTree(ctx context.Context, source tree, name, at string) error {
	return walk(ctx, source, name, func(p string, info fs.FileInfo) error {
		to := path.Join(at, strings.TrimPrefix(strings.TrimPrefix(p, name), "/"))
		if name == "." {
			to = path.Join(at, p)
		}
		switch {
		case info.IsDir():
			return u.makeDirectory(to, info.Mode())
		case info.Mode()&fs.ModeSymlink != 0:
			target, err := source.Readlink(p)
			if err == nil {
				err = u.makeParents(to)
			}
			if err == nil {
				_ = u.to.Remove(to)
				err = errors.Join(u.to.Symlink(target, to), u.to.Lchown(to, u.uid, u.gid))
			}
			return err
		case !info.Mode().IsRegular():
			return Fault{fmt.Errorf("%s is no file, directory or link: leave it out by .dockerignore or --exclude", p)}
		}
		f, err := source.Open(p)
		if err != nil {
			return err
		}
		return errors.Join(u.write(to, f, info.Mode().Perm()), f.Close())
	})
}

// makeDirectory makes a directory, unless the image has it.
func (u *upper) makeDirectory(at string, mode fs.FileMode) error {
	if err := u.makeParents(path.Join(at, "x")); err != nil {
		return err
	}
	if info, err := u.image.Lstat(at); err == nil && info.IsDir() {
		return nil // it keeps its owner and mode
	}
	return errors.Join(u.to.Lchown(at, u.uid, u.gid), u.to.Chmod(at, cmp.Or(u.mode, mode.Perm())))
}

// makeParents makes the directories above name. Directories that are new get the owner.
func (u *upper) makeParents(name string) error {
	var made []string
	for dir := path.Dir(name); dir != "."; dir = path.Dir(dir) {
		_, err := u.to.Lstat(dir)
		_, imageErr := u.image.Lstat(dir)
		if err != nil && imageErr != nil {
			made = append(made, dir)
		}
	}
	err := layer.MakeParents(u.to, u.image, name)
	for _, dir := range made {
		err = cmp.Or(err, u.to.Lchown(dir, u.uid, u.gid))
	}
	return err
}

func (u *upper) write(at string, from io.Reader, mode fs.FileMode) error {
	if err := u.makeParents(at); err != nil {
		return err
	}
	f, err := u.to.OpenFile(at, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close(), u.to.Lchown(at, u.uid, u.gid), u.to.Chmod(at, cmp.Or(u.mode, mode)))
}

// tree is a directory that a COPY reads, without what is ignored there.
type tree struct {
	*os.Root
	patterns []string                       // of an ignore file
	ignored  *patternmatcher.PatternMatcher // of the patterns; nil for none
}

// without returns the tree without what the patterns match, too.
func (t tree) without(patterns []string) (_ tree, err error) {
	if len(patterns) == 0 {
		return t, nil
	}
	t.patterns = slices.Concat(t.patterns, patterns)
	t.ignored, err = patternmatcher.New(t.patterns)
	return t, err
}

// skip reports whether a file or directory is left out; whole says that nothing below it is kept.
func (t tree) skip(name string) (skip, whole bool, err error) {
	if t.ignored == nil || name == "." {
		return false, false, nil
	}
	skip, err = t.ignored.MatchesOrParentMatches(filepath.FromSlash(name))
	return skip, skip && !t.ignored.Exclusions(), err
}

// open opens a file of a build context for reading. A pipe, which nobody writes to, is empty.
func open(context *os.Root, name string) (*os.File, error) {
	return context.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
}

// openContext opens a build context without what its ignore file names. The ignore file is the
// Dockerfile's own or, if there is none, .dockerignore.
func openContext(dir, file string) (tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return tree{}, err
	}
	context := tree{Root: root}
	for _, name := range []string{file + ".dockerignore", ".dockerignore"} {
		f, err := open(root, name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var patterns []string
		if err == nil {
			patterns, err = ignorefile.ReadAll(f)
			err = errors.Join(err, f.Close())
		}
		if err == nil {
			context, err = context.without(patterns)
		}
		if err != nil {
			return tree{}, errors.Join(Fault{fmt.Errorf("%s: %w", filepath.Join(dir, name), err)}, root.Close())
		}
		break
	}
	return context, nil
}
