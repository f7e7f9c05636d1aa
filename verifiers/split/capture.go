package split

import (
	"cmp"
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
	"github.com/securebench/sbench/workspace/foreign"
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

// Bounds of a tree beside its own. Its directories and links count as entries, too.
const (
	maxEntries = 10_000
	maxDepth   = 128
)

// entry is a file, directory or link that visit found.
type entry struct {
	fs.FileInfo
	rel     string    // relative to what is visited; "." for that itself
	target  string    // of a link; "" for anything else
	content io.Reader // of a file
}

// permissions returns 0755 for a directory and for a file that anybody may execute, 0 for a link, and else 0644.
func (e entry) permissions() fs.FileMode {
	switch {
	case e.target != "":
		return 0
	case e.IsDir() || e.Mode()&0o111 != 0:
		return 0o755
	}
	return 0o644
}

// visit calls f for a file, or for everything in a tree, at name in root, without following links. It refuses
// what is not of the kind, too big or special.
func visit(root *os.Root, name, kind string, limits securebench.Limits, links bool, f func(e entry) error) error {
	dir, start, want, files, bytes := name, ".", fs.ModeDir, min(limits.MaxFiles, maxEntries), limits.MaxTotalBytes
	if kind == securebench.RegularFile {
		dir, start, want, files, bytes = path.Dir(name), path.Base(name), 0, 1, limits.MaxBytes
	}
	missing := refuse("artifact_missing", "%q is no %s", name, kind)
	tooMuch := refuse(tooLarge, "%q has more than %d entries or %d bytes, or is more than %d directories deep", name, files, bytes, maxDepth)
	tree, err := foreign.OpenDir(root, dir)
	if err != nil {
		return missing
	}
	defer func() { _ = tree.Close() }()
	return fs.WalkDir(tree.FS(), start, func(at string, d fs.DirEntry, err error) error {
		info, failed := tree.Lstat(at)
		if at == start && (failed != nil || info.Mode().Type() != want) {
			return missing
		}
		if err = cmp.Or(err, failed); err != nil {
			return refuse("artifact_unreadable", "%q cannot be read", at)
		}
		e := entry{FileInfo: info, rel: at}
		switch {
		case at == ".":
			return f(e)
		case e.IsDir():
		case e.Mode().IsRegular():
			in, err := tree.Open(at)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }()
			bytes -= e.Size()
			e.content = io.LimitReader(in, e.Size())
		case e.Mode()&fs.ModeSymlink != 0 && links:
			e.target, err = tree.Readlink(at)
			_, reached := tree.Stat(at) // fails if a link on the way leads out
			if err != nil || path.IsAbs(e.target) || !filepath.IsLocal(path.Join(path.Dir(at), e.target)) || reached != nil && !errors.Is(reached, fs.ErrNotExist) {
				return refuse("artifact_unsafe", "a symbolic link leads out of %q", name)
			}
			bytes -= int64(len(e.target))
		default:
			return refuse("artifact_unsafe", "%q is a link or a special file", at)
		}
		if files--; files < 0 || bytes < 0 || strings.Count(at, "/") >= maxDepth {
			return tooMuch
		}
		if at == start {
			e.rel = "."
		}
		return f(e)
	})
}

// take copies the entries of a bundle from a workspace to an upper directory over an image, with the modes 0644
// and 0755 and the owner of the image's working directory.
func (c *capture) take(from, to, image *os.Root) error {
	var owner syscall.Stat_t // root if the image has no such directory
	if info, err := image.Lstat(c.workdir); err == nil {
		owner = *info.Sys().(*syscall.Stat_t)
	}
	for _, each := range c.entries {
		at := path.Join(c.workdir, c.relative(each.Path))
		if err := layer.MakeParents(to, image, at); err != nil {
			return err
		}
		err := visit(from, c.relative(each.Path), each.Kind, each.Bounds(), each.Links, func(e entry) error {
			dest := path.Join(at, e.rel)
			return errors.Join(e.copy(to, image, dest), to.Lchown(dest, int(owner.Uid), int(owner.Gid)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copy copies an entry to an upper directory, in place of the image's.
func (e entry) copy(to, image *os.Root, dest string) error {
	if mark, err := to.Lstat(dest); err == nil && mark.Mode()&fs.ModeDevice != 0 { // it hides the image's entry
		if err := to.Remove(dest); err != nil {
			return err
		}
	}
	switch {
	case e.IsDir():
		return errors.Join(to.Mkdir(dest, 0o755), layer.Hide(to, image, dest))
	case e.target != "":
		return to.Symlink(e.target, dest)
	}
	out, err := to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, e.content)
	return errors.Join(err, out.Close(), to.Chmod(dest, e.permissions()))
}

// observation is what a parser saw in an artifact.
type observation struct {
	kind   string  // "unknown" if there is no such artifact
	digest *string // of the artifact
	size   *int64  // of its files, in bytes
	value  json.RawMessage
	failed *failure // nil if there is a value
}

// status returns the status of the evidence.
func (o observation) status() string {
	if o.failed != nil {
		return candidateError
	}
	return observed
}

// read reads an artifact of the candidate.
func (c *capture) read(a securebench.Artifact) observation {
	name, kind, limits := a.Source.Path, securebench.RegularFile, a.Limits
	if securebench.ReadsTree(a.Parser) {
		kind = securebench.DirectoryTree
	}
	if i := slices.IndexFunc(c.entries, func(e securebench.Entry) bool { return e.ID == a.Source.Entry }); i >= 0 {
		name, limits = path.Join(c.relative(c.entries[i].Path), a.Source.Subpath), limits.Within(c.entries[i].Bounds())
	}
	return c.observe(name, kind, a.Parser, limits, maxLine-maxEnvelope)
}

// observe has a parser read the file or tree at name. The value has at most room bytes as JSON.
func (c *capture) observe(name, kind, parser string, limits securebench.Limits, room int) observation {
	o, a := observation{kind: "unknown"}, artifact{root: c.root, name: name, tree: kind == securebench.DirectoryTree}
	var err error
	switch {
	case c.failed != nil:
		err = c.failed
	case c.root == nil:
		err = refuse("artifact_missing", "there is no candidate")
	default:
		err = visit(c.root, name, kind, limits, true, a.add)
	}
	if err == nil {
		slices.SortFunc(a.nodes, func(x, y node) int { return strings.Compare(x.Path, y.Path) })
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
