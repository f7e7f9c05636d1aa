package split

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler/securebench"
)

// capture is what was taken of a candidate for a task of SecureBench 2.0.
type capture struct {
	root    *os.Root // of the files below the workdir; nil if there are none
	entries []securebench.Entry
	workdir string
	digest  string
	failed  *failure // why nothing could be taken
}

// relative returns the path of an entry below the workdir.
func (c *capture) relative(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, "/"), c.workdir+"/")
}

// failure is the error that a candidate did something wrong.
type failure struct {
	Code    string `json:"code"`
	Message string `json:"message"`
	Source  string `json:"source,omitempty"`
}

// Error implements error.
func (f *failure) Error() string { return f.Message }

// tooLarge is the code of an artifact that exceeds its bounds.
const tooLarge = "artifact_too_large"

func refuse(code, format string, args ...any) error {
	return &failure{Code: code, Message: fmt.Sprintf(format, args...)}
}

// Bounds of a tree beside its own, of which max_files counts its directories and links, too.
const (
	maxEntries = 10_000
	maxDepth   = 128
)

// visit calls f for a file, or for everything in a tree, at name in root, without following links. It refuses
// what is not of the kind, too big or special. rel is "." for the entry itself.
func visit(root *os.Root, name, kind string, limits securebench.Limits, links bool, f func(rel string, info fs.FileInfo) error) error {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if info, err := root.Lstat(at); err != nil || !info.IsDir() {
			return refuse("artifact_missing", "%q is not there", name)
		}
	}
	info, err := root.Lstat(name)
	switch {
	case err != nil, kind == securebench.RegularFile && !info.Mode().IsRegular(), kind == securebench.DirectoryTree && !info.IsDir():
		return refuse("artifact_missing", "%q is no %s", name, kind)
	case kind == securebench.RegularFile && info.Size() > limits.MaxBytes:
		return refuse(tooLarge, "%q has more than %d bytes", name, limits.MaxBytes)
	case kind == securebench.RegularFile:
		return f(".", info)
	}
	tree, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	files, bytes, entries := limits.MaxFiles, limits.MaxTotalBytes, maxEntries
	return fs.WalkDir(tree.FS(), ".", func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return refuse("artifact_unreadable", "%q cannot be read", at)
		}
		info, err := tree.Lstat(at)
		if at == "." {
			return f(at, info)
		}
		entries, files = entries-1, files-1
		switch {
		case err != nil:
			return err
		case entries < 0 || strings.Count(at, "/") >= maxDepth:
			return refuse(tooLarge, "%q has more than %d entries, or entries more than %d directories deep", name, maxEntries, maxDepth)
		case info.Mode().IsRegular():
			bytes -= info.Size()
		case info.IsDir():
		case info.Mode()&fs.ModeSymlink != 0 && links:
			target, err := tree.Readlink(at)
			_, reached := tree.Stat(at) // fails if a link on the way leads out
			if err != nil || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(at), target)) || reached != nil && !errors.Is(reached, fs.ErrNotExist) {
				return refuse("artifact_unsafe", "a symbolic link leads out of %q", name)
			}
			bytes -= int64(len(target))
		default:
			return refuse("artifact_unsafe", "%q is a link or a special file", at)
		}
		if files < 0 || bytes < 0 {
			return refuse(tooLarge, "%q has more than %d entries or %d bytes", name, limits.MaxFiles, limits.MaxTotalBytes)
		}
		return f(at, info)
	})
}

// take copies the entries of a bundle from a workspace into an upper directory over an image, with the modes 0644
// and 0755 and the owner of the image's working directory.
func (c *capture) take(workspace, over string, image *os.Root) error {
	from, err := os.OpenRoot(workspace)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenRoot(over)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	var owner syscall.Stat_t // root if the image has no such directory
	if info, err := image.Lstat(c.workdir); err == nil {
		owner = *info.Sys().(*syscall.Stat_t)
	}
	for _, e := range c.entries {
		rel := c.relative(e.Path)
		if err := layer.MakeParents(to, image, path.Join(c.workdir, rel)); err != nil {
			return err
		}
		err := visit(from, rel, e.Kind, e.Bounds(), e.Links, func(below string, info fs.FileInfo) error {
			at := path.Join(rel, below)
			dest := path.Join(c.workdir, at)
			return errors.Join(copyEntry(from, to, image, at, dest, info), to.Lchown(dest, int(owner.Uid), int(owner.Gid)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copyEntry copies one entry in place of the image's.
func copyEntry(from, to, image *os.Root, name, dest string, info fs.FileInfo) error {
	if mark, err := to.Lstat(dest); err == nil && mark.Mode()&fs.ModeDevice != 0 { // it hides the image's entry
		if err := to.Remove(dest); err != nil {
			return err
		}
	}
	switch {
	case info.IsDir():
		return errors.Join(to.Mkdir(dest, 0o755), layer.Hide(to, image, dest))
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := from.Readlink(name)
		return errors.Join(err, to.Symlink(target, dest))
	}
	in, err := from.Open(name)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, io.LimitReader(in, info.Size()))
	return errors.Join(err, out.Close(), to.Chmod(dest, permissions(info)))
}

// permissions returns 0755 if anybody may execute a file, and else 0644.
func permissions(info fs.FileInfo) fs.FileMode {
	if info.IsDir() || info.Mode()&0o111 != 0 {
		return 0o755
	}
	return 0o644
}

// observation is what a parser saw in an artifact.
type observation struct {
	parser, kind string  // kind is "unknown" if there is no such artifact
	digest       *string // of the artifact
	size         *int64  // of its files, in bytes
	value        json.RawMessage
	failed       *failure // nil if there is a value
}

func (o observation) status() string {
	if o.failed != nil {
		return candidateError
	}
	return observed
}

// read reads an artifact of the candidate.
func (c *capture) read(a securebench.Artifact) observation {
	name, kind, limits := a.Source.Path, securebench.RegularFile, a.Limits
	if i := slices.IndexFunc(c.entries, func(e securebench.Entry) bool { return e.ID == a.Source.Entry }); i >= 0 {
		e := c.entries[i]
		name, kind, limits = path.Join(c.relative(e.Path), a.Source.Subpath), e.Kind, limits.Within(e.Bounds())
		if a.Source.Subpath != "" {
			kind = securebench.RegularFile
		}
	} else if securebench.ReadsTree(a.Parser) {
		kind = securebench.DirectoryTree
	}
	return c.observe(name, kind, a.Parser, limits, maxLine-maxEnvelope)
}

// observe has a parser read the file or tree at name. The value has at most room bytes as JSON.
func (c *capture) observe(name, kind, parser string, limits securebench.Limits, room int) observation {
	o := observation{parser: parser, kind: "unknown"}
	a := artifact{root: c.root, name: name, tree: kind == securebench.DirectoryTree}
	var err error
	switch {
	case c.failed != nil:
		err = c.failed
	case c.root == nil:
		err = refuse("artifact_missing", "there is no candidate")
	default:
		err = visit(c.root, name, kind, limits, true, a.add)
		slices.SortFunc(a.nodes, func(x, y node) int { return strings.Compare(x.Path, y.Path) })
	}
	if err == nil {
		o.digest, o.kind, o.size = new(a.digest()), kind, &a.size
		var value any
		if value, err = a.value(parser); err == nil {
			o.value, err = marshal(value)
		}
		if len(o.value) > room {
			err = tooMuchEvidence()
		}
	}
	if err == nil {
		return o
	}
	if o.value = nil; !errors.As(err, &o.failed) {
		o.failed = &failure{Code: "artifact_unreadable", Message: "the artifact cannot be read"}
	}
	return o
}

func tooMuchEvidence() error {
	return refuse(tooLarge, "the artifact's evidence does not fit in a line of %d bytes", maxLine)
}
