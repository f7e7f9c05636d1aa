package split

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	_ "embed" // the program
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

// program reads what Python's own modules read, as strictly as SecureBench 2.0 does.
//
//go:embed parse.py
var program string

// errPython means that the oracle's image cannot run the program.
var errPython = errors.New("the oracle's image has no python3, which reads tables, calendars, arrays and repositories")

// maxParsed bounds what a parser reads, in bytes.
const maxParsed = 16 << 20

// artifact is a file or tree while it is parsed. Parsers never execute it.
type artifact struct {
	root    *os.Root
	name    string
	tree    bool
	content []byte // of a file; only its beginning if it has more than maxParsed bytes
	nodes   []node // of a tree
	size    int64
	sum     string // digest of a file
}

// add notes what visit found.
func (a *artifact) add(n node, content io.Reader) (err error) {
	sum := sha256.New()
	switch {
	case !a.tree:
		a.size, content = *n.Size, io.TeeReader(content, sum)
		if a.content, err = io.ReadAll(io.LimitReader(content, maxParsed+1)); err == nil {
			_, err = io.Copy(io.Discard, content)
		}
		a.sum = workspace.DigestOf(sum)
		return err
	case n.Path == ".":
		return nil
	case content != nil:
		if _, err := io.Copy(sum, content); err != nil {
			return err
		}
		a.size += *n.Size
		n.Blob = workspace.DigestOf(sum)
	}
	a.nodes = append(a.nodes, n)
	return nil
}

// manifest is what tree-manifest/v1 makes of a tree.
func (a *artifact) manifest() any { return object{"nodes": append([]node{}, a.nodes...)} }

func (a *artifact) digest() string {
	if !a.tree {
		return a.sum
	}
	manifest, _ := document.Marshal(a.manifest()) // of strings and numbers
	return digest(manifest)
}

// value returns what a parser makes of the artifact, which it never executes. The error may be a failure.
func (a *artifact) value(ctx context.Context, parser string, run python) (any, error) {
	name := strings.TrimPrefix(parser, "securebench.")
	switch {
	case a.tree != securebench.ReadsTree(parser):
		return nil, refuse("artifact_missing", "the parser does not read such an artifact")
	case len(a.content) > maxParsed:
		code := map[string]string{"strict-csv/v1": "csv_too_large", "strict-npy-float-summary/v1": "npy_too_large"}[name]
		return nil, refuse(cmp.Or(code, tooLarge), "the artifact has more than %d bytes", maxParsed)
	case name != "opaque-bytes/v1" && name != "strict-npy-float-summary/v1" && !utf8.Valid(a.content):
		return nil, refuse("invalid_utf8", "the artifact is not valid UTF-8")
	}
	switch name {
	case "opaque-bytes/v1":
		return object{"byte_count": len(a.content), "sha256": fmt.Sprintf("%x", sha256.Sum256(a.content)), "bytes_base64": base64.StdEncoding.EncodeToString(a.content)}, nil
	case "utf8-text/v1":
		return string(a.content), nil
	case "strict-json/v1":
		return parseJSON(a.content)
	case "tree-manifest/v1":
		return a.manifest(), nil
	case "git-repository/v1":
		files, worktree, err := a.repository()
		if err != nil {
			return nil, err
		}
		objects, err := run(ctx, name, files)
		return object{"format": "git-repository", "objects": objects, "worktree": worktree}, err
	}
	return run(ctx, name, map[string][]byte{"": a.content})
}

// A python has the program read files, by their paths, and returns the value. The error is a failure if the files are at
// fault.
type python func(ctx context.Context, parser string, files map[string][]byte) (json.RawMessage, error)

// python is a python in a new sandbox of the oracle's image.
func (c *check) python(ctx context.Context, parser string, files map[string][]byte) (json.RawMessage, error) {
	request, err := json.Marshal(object{"parser": parser, "files": files})
	if err != nil {
		return nil, err
	}
	exit, err := c.drive(ctx, runtime.Config{Name: "parser", Image: c.in.CheckerImage, Limits: runtime.DefaultLimits(), Workdir: "/"}, nil, runtime.Process{
		Args: []string{"python3", "-I", "-S", "-B", "-c", program}, Stdin: bytes.NewReader(request), Wall: defaultWall, OutputBytes: maxLine,
	})
	switch {
	case err != nil:
		return nil, err
	case exit.Reason == "":
		return nil, errPython
	}
	return valueOf(exit)
}

func valueOf(exit runtime.Exit) (json.RawMessage, error) {
	answer, how := answerOf(exit)
	switch value, code := answer.Get("value"), answer.Get("code").Text(); {
	case exit.Stdout.Cut() > 0:
		return nil, tooMuchEvidence()
	case value.Kind() != 0:
		return value.Raw(), nil
	case code != "":
		return nil, refuse(code, "%s", answer.Get("message").Text())
	}
	return nil, refuse(tooLarge, "the artifact cannot be read, or not within the limits: %s", how)
}

// parseJSON reads a text of at most a line, not counting spaces: parsed, it takes hundreds of bytes of memory for each
// byte.
func parseJSON(text []byte) (any, error) {
	var compact bytes.Buffer
	if err := json.Compact(&compact, text); err == nil && compact.Len() > maxLine {
		return nil, tooMuchEvidence()
	}
	v, err := parse(compact.Bytes())
	if err != nil {
		return nil, refuse("invalid_json", "the artifact is %v", err)
	}
	return json.RawMessage(document.Compact(v)), nil
}

// gitFile matches the files below .git that have objects, or the names of objects that can be reached.
var gitFile = regexp.MustCompile(`^(HEAD|packed-refs|refs/.*|objects/[0-9a-f]{2}/[0-9a-f]{38}|objects/.*\.pack)$`)

// repository returns the files of a repository by their paths below .git, and lists the files of its work tree.
func (a *artifact) repository() (files map[string][]byte, worktree []object, err error) {
	files, worktree = map[string][]byte{}, []object{}
	left := int64(maxParsed)
	for _, n := range a.nodes {
		name, inside := strings.CutPrefix(n.Path, ".git/")
		switch {
		case n.Kind == "symlink":
			return nil, nil, refuse("unsafe_git_repository", "the repository has symbolic links")
		case n.Kind == "directory":
		case inside && slices.Contains([]string{"objects/info/alternates", "objects/info/http-alternates", "info/grafts", "commondir"}, name):
			return nil, nil, refuse("unsafe_git_repository", "the repository takes objects from elsewhere")
		case inside && gitFile.MatchString(name):
			if left -= *n.Size; left < 0 {
				return nil, nil, refuse("git_repository_too_large", "the repository has more than %d bytes", maxParsed)
			}
			if files[name], err = a.root.ReadFile(path.Join(a.name, n.Path)); err != nil {
				return nil, nil, refuse("artifact_unreadable", "%q cannot be read", n.Path)
			}
		case !inside && !strings.HasPrefix(name, ".") && !strings.Contains(name, "/."):
			worktree = append(worktree, object{"path": n.Path, "size": n.Size, "blob": n.Blob})
		}
	}
	return files, worktree, nil
}
