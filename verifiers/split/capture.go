package split

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
)

// capture is what was taken of a candidate for a task of SecureBench 2.0.
type capture struct {
	root    *os.Root // of the files below the workdir; nil if there are none
	entries []compiler.BundleEntry
	workdir string
	digest  string
	failed  *failure // why nothing could be taken
}

// relative returns the path of an entry below the workdir.
func (c *capture) relative(p string) string {
	return strings.TrimPrefix(strings.TrimPrefix(p, "/"), c.workdir+"/")
}

// node is a file, directory or link of a tree.
type node struct {
	Path   string `json:"path"`
	Kind   string `json:"kind"`
	Mode   int    `json:"mode,omitempty"`
	Size   *int64 `json:"size,omitempty"`
	Blob   string `json:"blob,omitempty"`
	Target string `json:"target,omitempty"`
}

// errTaken is an error that the candidate caused.
type errTaken struct{ failure }

func (e *errTaken) Error() string { return e.Message }

func refuse(code, format string, args ...any) error {
	return &errTaken{failure{Code: code, Message: fmt.Sprintf(format, args...)}}
}

// Bounds of a tree, whose limits do not count its directories.
const (
	maxEntries = 10_000
	maxDepth   = 128
)

// visit calls f for a file, or for everything in a tree, at name in root, without following links. It refuses
// what is not of the kind, too big or special. rel is "." for the entry itself.
func visit(root *os.Root, name, kind string, limits compiler.ArtifactLimits, links bool, f func(rel string, info fs.FileInfo) error) error {
	for at := path.Dir(name); at != "."; at = path.Dir(at) {
		if info, err := root.Lstat(at); err != nil || !info.IsDir() {
			return refuse("artifact_missing", "%q is not there", name)
		}
	}
	info, err := root.Lstat(name)
	switch {
	case err != nil, kind == compiler.RegularFile && !info.Mode().IsRegular(), kind == compiler.DirectoryTree && !info.IsDir():
		return refuse("artifact_missing", "%q is no %s", name, kind)
	case kind == compiler.RegularFile && info.Size() > limits.MaxBytes:
		return refuse("artifact_too_large", "%q has more than %d bytes", name, limits.MaxBytes)
	case kind == compiler.RegularFile:
		return f(".", info)
	}
	tree, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer func() { _ = tree.Close() }()
	files, bytes, entries := limits.MaxFiles, limits.MaxTotalBytes, maxEntries
	return fs.WalkDir(root.FS(), name, func(at string, d fs.DirEntry, err error) error {
		if err != nil {
			return refuse("artifact_unreadable", "%q cannot be read", at)
		}
		info, err := root.Lstat(at)
		entries--
		switch {
		case err != nil:
			return err
		case entries < 0 || strings.Count(at, "/") > maxDepth:
			return refuse("artifact_too_large", "%q has more than %d entries, or entries more than %d directories deep", name, maxEntries, maxDepth)
		case info.Mode().IsRegular():
			files, bytes = files-1, bytes-info.Size()
		case info.IsDir():
		case info.Mode()&fs.ModeSymlink != 0 && links:
			files--
			_, reached := tree.Stat(strings.TrimPrefix(at, name+"/")) // fails if a link on the way leads out
			if errors.Is(reached, fs.ErrNotExist) {
				reached = nil
			}
			if target, err := root.Readlink(at); err != nil || reached != nil || path.IsAbs(target) || !within(path.Join(path.Dir(at), target), name) {
				return refuse("artifact_unsafe", "a symbolic link leads out of %q", name)
			}
		default:
			return refuse("artifact_unsafe", "%q is a link or a special file", at)
		}
		if files < 0 || bytes < 0 {
			return refuse("artifact_too_large", "%q has more than %d files or %d bytes", name, limits.MaxFiles, limits.MaxTotalBytes)
		}
		return f(cmp.Or(strings.TrimPrefix(strings.TrimPrefix(at, name), "/"), "."), info)
	})
}

func within(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }

// take copies the entries of a bundle from a workspace into an upper directory over an image, with the modes 0644
// and 0755 and the owner of the image's working directory.
func (c *capture) take(from, to, image *os.Root) error {
	uid, gid := 0, 0
	if info, err := image.Lstat(c.workdir); err == nil {
		st := info.Sys().(*syscall.Stat_t)
		uid, gid = int(st.Uid), int(st.Gid)
	}
	for _, e := range c.entries {
		rel := c.relative(e.Path)
		limits := compiler.ArtifactLimits{MaxBytes: e.MaxBytes, MaxFiles: e.MaxFiles, MaxTotalBytes: e.MaxTotalBytes}
		if err := layer.MakeParents(to, image, path.Join(c.workdir, rel)); err != nil {
			return err
		}
		err := visit(from, rel, e.Kind, limits, e.Links, func(below string, info fs.FileInfo) error {
			at := path.Join(rel, below)
			return errors.Join(copyEntry(from, to, image, at, path.Join(c.workdir, at), info), to.Lchown(path.Join(c.workdir, at), uid, gid))
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
	Status string `json:"status"`
	Source struct {
		Kind   string  `json:"kind"`
		Digest *string `json:"digest"`
		Size   *int64  `json:"size"`
	} `json:"source"`
	Parser string   `json:"parser"`
	Value  any      `json:"parsed_value"`
	Error  *failure `json:"error"`
}

type artifactEvidence struct {
	CheckID    string `json:"check_id"`
	ArtifactID string `json:"artifact_id"`
	observation
}

// outputEvidence is an observation of what an adapter left, bound to its case.
type outputEvidence struct {
	ChallengeID  string   `json:"challenge_id"`
	EvaluationID string   `json:"evaluation_id"`
	Status       string   `json:"status"`
	Digest       *string  `json:"digest"`
	Size         *int64   `json:"size"`
	Parser       string   `json:"parser"`
	Value        any      `json:"parsed_value"`
	Failure      *failure `json:"failure"`
}

// read reads an artifact of the candidate.
func (c *capture) read(a compiler.ParsedArtifact) observation {
	name, kind := a.Source.Path, compiler.RegularFile
	if i := slices.IndexFunc(c.entries, func(e compiler.BundleEntry) bool { return e.ID == a.Source.Entry }); a.Source.Entry != "" && i >= 0 {
		e := c.entries[i]
		name, kind = path.Join(c.relative(e.Path), a.Source.Subpath), e.Kind
		limits := &a.Limits
		limits.MaxBytes, limits.MaxFiles, limits.MaxTotalBytes = least(limits.MaxBytes, max(e.MaxBytes, e.MaxTotalBytes)), least(limits.MaxFiles, e.MaxFiles), least(limits.MaxTotalBytes, e.MaxTotalBytes)
		if a.Source.Subpath != "" && !readsTree(a.Parser) {
			kind = compiler.RegularFile
		}
	} else if readsTree(a.Parser) {
		kind = compiler.DirectoryTree
	}
	return c.observe(name, kind, a.Parser, a.Limits, maxLine-maxEnvelope)
}

func least(limit, most int64) int64 {
	if limit == 0 {
		return most
	}
	return min(limit, most)
}

// observe has a parser read the file or tree at name. The value has at most room bytes as JSON.
func (c *capture) observe(name, kind, parser string, limits compiler.ArtifactLimits, room int) (o observation) {
	o.Status, o.Parser, o.Source.Kind = candidateError, parser, "unknown"
	switch {
	case c.failed != nil:
		o.Error = c.failed
		return o
	case c.root == nil:
		o.Error = &failure{Code: "artifact_missing", Message: "there is no candidate"}
		return o
	}
	a := artifact{root: c.root, name: name}
	err := visit(c.root, name, kind, limits, true, a.add)
	if err == nil {
		o.Source.Kind = kind
		sum := digest(a.content)
		if kind == compiler.DirectoryTree {
			text, _ := canonical(map[string]any{"nodes": a.nodes})
			sum = digest(text)
		}
		o.Source.Digest, o.Source.Size = &sum, &a.size
		o.Value, err = a.parse(strings.TrimPrefix(parser, "securebench."))
		if text, wrong := marshal(o.Value); err == nil && wrong == nil && len(text) > room {
			err = tooMuchEvidence()
		}
	}
	var wrong *errTaken
	switch {
	case errors.As(err, &wrong):
		o.Value, o.Error = nil, &wrong.failure
	case err != nil:
		o.Value, o.Error = nil, &failure{Code: "artifact_unreadable", Message: "the artifact cannot be read"}
	default:
		o.Status = observed
	}
	return o
}

func tooMuchEvidence() error {
	return refuse("artifact_too_large", "the artifact's evidence does not fit in a line of %d bytes", maxLine)
}

// outputs reads what an adapter left in its stopped sandbox.
func (t *conversation) outputs(s runtime.Sandbox, check compiler.VerificationCheck, adapter compiler.Adapter, e *caseEvidence) error {
	room := maxLine - maxEnvelope - int(min(check.Limits.Bytes, maxAnswer)) // beside the observation
	for _, want := range check.Outputs {
		i := slices.IndexFunc(adapter.Outputs, func(o compiler.AdapterOutput) bool { return o.Name == want.Name }) // there is one: see Pack.Adapter
		output, left := adapter.Outputs[i], capture{}
		dir, err := s.Path(t.in.Task.Environment().Workdir)
		if err == nil {
			left.root, err = os.OpenRoot(dir)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		limits := compiler.ArtifactLimits{MaxBytes: least(want.Limits.MaxBytes, output.Limits.MaxBytes), MaxFiles: least(want.Limits.MaxFiles, output.Limits.MaxFiles), MaxTotalBytes: least(want.Limits.MaxTotalBytes, output.Limits.MaxTotalBytes)}
		o := left.observe(output.Path, output.Kind, want.Parser, limits, room)
		if text, err := marshal(o.Value); err == nil {
			room -= len(text)
		}
		if left.root != nil {
			_ = left.root.Close()
		}
		e.Outputs[want.Name] = outputEvidence{e.Challenge.ID, *e.EvaluationID, o.Status, o.Source.Digest, o.Source.Size, o.Parser, o.Value, o.Error}
	}
	return nil
}
