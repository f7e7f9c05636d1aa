package split

import (
	"cmp"
	"context"
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
	"github.com/securebench/sbench/compiler/document"
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
	python  python
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

// node is a file, directory or link of a tree.
type node struct {
	Blob   string `json:"blob,omitempty"` // the digest of a file
	Kind   string `json:"kind"`
	Mode   int    `json:"mode,omitempty"` // 0755 for a directory and for a file that anybody may execute, else 0644
	Path   string `json:"path"`           // relative to what is visited; "." for that itself
	Size   *int64 `json:"size,omitempty"`
	Target string `json:"target,omitempty"`
}

// visit calls f for a file, or for everything in a tree, at name in root, without following links. It refuses
// what is not of the kind, too big or special.
func visit(root *os.Root, name, kind string, limits securebench.Limits, links bool, f func(n node, content io.Reader) error) error {
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
		n, content := node{Path: at}, io.Reader(nil)
		switch mode := info.Mode(); {
		case mode.IsDir():
			n.Kind, n.Mode = "directory", 0o755
		case mode.IsRegular():
			in, err := tree.Open(at)
			if err != nil {
				return err
			}
			defer func() { _ = in.Close() }()
			bytes -= info.Size()
			n.Kind, n.Mode, n.Size, content = securebench.RegularFile, 0o644, new(info.Size()), io.LimitReader(in, info.Size())
			if mode&0o111 != 0 {
				n.Mode = 0o755
			}
		case mode&fs.ModeSymlink != 0 && links:
			target, err := tree.Readlink(at)
			_, reached := tree.Stat(at) // fails if a link on the way leads out
			if err != nil || path.IsAbs(target) || !filepath.IsLocal(path.Join(path.Dir(at), target)) || reached != nil && !errors.Is(reached, fs.ErrNotExist) {
				return refuse("artifact_unsafe", "a symbolic link leads out of %q", name)
			}
			bytes -= int64(len(target))
			n.Kind, n.Target = "symlink", target
		default:
			return refuse("artifact_unsafe", "%q is a link or a special file", at)
		}
		if at != "." {
			files--
		}
		if files < 0 || bytes < 0 || strings.Count(at, "/") >= maxDepth {
			return tooMuch
		}
		if at == start {
			n.Path = "."
		}
		return f(n, content)
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
		err := visit(from, c.relative(each.Path), each.Kind, each.Bounds(), each.Links, func(n node, content io.Reader) error {
			dest := path.Join(at, n.Path)
			return errors.Join(n.copy(content, to, image, dest), to.Lchown(dest, int(owner.Uid), int(owner.Gid)))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// copy makes a node with this content in an upper directory, in place of the image's.
func (n node) copy(content io.Reader, to, image *os.Root, dest string) error {
	if mark, err := to.Lstat(dest); err == nil && mark.Mode()&fs.ModeDevice != 0 { // it hides the image's entry
		if err := to.Remove(dest); err != nil {
			return err
		}
	}
	switch {
	case n.Target != "":
		return to.Symlink(n.Target, dest)
	case content == nil:
		return errors.Join(to.Mkdir(dest, 0o755), layer.Hide(to, image, dest))
	}
	out, err := to.OpenFile(dest, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close(), to.Chmod(dest, fs.FileMode(n.Mode)))
}

// observation is what a parser saw in an artifact.
type observation struct {
	status string
	kind   string  // "unknown" if there is no such artifact
	digest *string // of the artifact
	size   *int64  // of its files, in bytes
	value  json.RawMessage
	failed *failure // nil if there is a value
}

func (c *capture) read(ctx context.Context, a securebench.Artifact) (observation, error) {
	name, kind, limits := a.Source.Path, securebench.RegularFile, a.Limits
	if securebench.ReadsTree(a.Parser) {
		kind = securebench.DirectoryTree
	}
	if i := slices.IndexFunc(c.entries, func(e securebench.Entry) bool { return e.ID == a.Source.Entry }); i >= 0 {
		name, limits = path.Join(c.relative(c.entries[i].Path), a.Source.Subpath), limits.Within(c.entries[i].Bounds())
	}
	return c.observe(ctx, name, kind, a.Parser, limits, maxLine-maxEnvelope)
}

// observe has a parser read the file or tree at name. The value has at most room bytes as JSON.
func (c *capture) observe(ctx context.Context, name, kind, parser string, limits securebench.Limits, room int) (observation, error) {
	o, a := observation{status: candidateError, kind: "unknown"}, artifact{root: c.root, name: name, tree: kind == securebench.DirectoryTree}
	var err error
	switch {
	case c.failed != nil:
		err = c.failed
	case c.root == nil:
		err = refuse("artifact_missing", "there is no candidate")
	default:
		err = visit(c.root, name, kind, limits, true, a.add)
	}
	if err != nil {
		if !errors.As(err, &o.failed) {
			o.failed = &failure{Code: "artifact_unreadable", Message: "the artifact cannot be read"}
		}
		return o, nil
	}
	slices.SortFunc(a.nodes, func(x, y node) int { return strings.Compare(x.Path, y.Path) })
	o.digest, o.kind, o.size = new(a.digest()), kind, &a.size
	value, err := a.value(ctx, parser, c.python)
	if err == nil {
		o.value, err = document.Marshal(value)
	}
	if len(o.value) > room {
		err = tooMuchEvidence()
	}
	if o.status = observed; errors.As(err, &o.failed) {
		o.status, o.value, err = candidateError, nil, nil
	}
	return o, err
}

func tooMuchEvidence() error {
	return refuse(tooLarge, "the artifact's evidence does not fit in a line of %d bytes", maxLine)
}
