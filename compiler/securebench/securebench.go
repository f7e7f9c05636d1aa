// Package securebench is the format of the packs of SecureBench 2.0, whose tasks are judged in two places; see package
// verifiers/split.
package securebench

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/compiler/schema"
)

// Version is the schema_version of the manifests of SecureBench 2.0.
const Version = "2.0"

// The kinds of candidates and checks.
const (
	Bundle        = "file_bundle"
	GitPatch      = "git_patch"
	ArtifactCheck = "artifact"
	ProtocolCheck = "protocol"
	RegularFile   = "regular_file"
	DirectoryTree = "directory_tree"
)

// Parsers returns the names of the parsers of artifacts; a pack may write each after "securebench.".
func Parsers() []string {
	return []string{"opaque-bytes/v1", "utf8-text/v1", "strict-json/v1", "strict-csv/v1", "ics/v1", "strict-npy-float-summary/v1", "tree-manifest/v1", "git-repository/v1"}
}

// ReadsTree reports whether the parser reads a directory, not a file.
func ReadsTree(parser string) bool {
	name := strings.TrimPrefix(parser, "securebench.")
	return name == "tree-manifest/v1" || name == "git-repository/v1"
}

// inPython are the parsers that are programs in Python.
var inPython = []string{"strict-csv/v1", "ics/v1", "strict-npy-float-summary/v1", "git-repository/v1"}

// NeedsPython reports whether the oracle's image must have a python3, which runs a parser.
func (v *Verification) NeedsPython() bool {
	needs := func(parser string) bool { return slices.Contains(inPython, strings.TrimPrefix(parser, "securebench.")) }
	return slices.ContainsFunc(v.Checks, func(c Check) bool {
		return slices.ContainsFunc(c.Artifacts, func(a Artifact) bool { return needs(a.Parser) }) ||
			slices.ContainsFunc(c.Outputs, func(o OutputArtifact) bool { return needs(o.Parser) })
	})
}

// Verification says how a task of a pack of SecureBench 2.0 is judged. It prints as "<redacted>". The tags of this
// package say what a file may hold, as in [schema.Fields].
type Verification struct {
	hidden.Fields
	Candidate Candidate `key:"candidate" doc:"" rule:"required candidate"`
	Resources struct {
		Runtime map[string]MountedFile `key:"runtime" doc:"" rule:"ids"`
		Host    map[string]HostFile    `key:"host" doc:"" rule:"ids"`
	} `key:"resources" doc:""`
	Checks []Check `key:"checks" doc:"" rule:"required some checks"`
	Oracle string  `key:"oracle" doc:"" rule:"required"` // "host." and the id of a resource
}

// MountedFile is a file or directory of the pack that candidates see.
type MountedFile struct {
	Path  string `key:"path" doc:"" rule:"required path"` // relative to Pack.EvalRoot
	Mount string `key:"mount" doc:"An absolute path." rule:"required absolute"`
}

// HostFile is a file or directory of the pack that only the oracle sees.
type HostFile struct {
	Path string `key:"path" doc:"" rule:"required path"` // relative to Pack.EvalRoot
}

// Candidate says what is taken of a candidate.
type Candidate struct {
	Type            string   `key:"type"` // Bundle or GitPatch
	MaxTotalFiles   int64    `key:"max_total_files" doc:"" rule:"required"`
	MaxTotalBytes   int64    `key:"max_total_bytes" doc:"" rule:"required"`
	Files           []Entry  `key:"files" doc:"" rule:"required some entries"`
	MaxPatchBytes   int64    `key:"max_patch_bytes" doc:"" rule:"required"`
	MaxChangedFiles int64    `key:"max_changed_files" doc:"" rule:"required"`
	MaxChangedBytes int64    `key:"max_changed_bytes" doc:"" rule:"required"`
	AllowPaths      []string `key:"allow_paths" doc:""` // empty means all
	ExcludePaths    []string `key:"exclude_paths" doc:""`
}

// Entry is a file or a tree of a bundle.
type Entry struct {
	ID            string `key:"id" doc:"" rule:"required id"`
	Path          string `key:"path" doc:"An absolute path." rule:"required absolute"`
	Kind          string `key:"kind"` // RegularFile or DirectoryTree
	MaxBytes      int64  `key:"max_bytes" doc:"" rule:"required"`
	MaxFiles      int64  `key:"max_files" doc:"" rule:"required"`
	MaxTotalBytes int64  `key:"max_total_bytes" doc:"" rule:"required"`
	Links         bool   `key:"allow_internal_symlinks" doc:""`
}

// Bounds returns the limits of the entry, and of a file in it.
func (e Entry) Bounds() Limits {
	return Limits{max(e.MaxBytes, e.MaxTotalBytes), e.MaxFiles, e.MaxTotalBytes}
}

// A Check is one check: of artifacts, which are read, or by a protocol, whose adapter asks the candidate.
type Check struct {
	ID        string     `key:"id" doc:"" rule:"required id"`
	Type      string     `key:"type"` // ArtifactCheck or ProtocolCheck
	Artifacts []Artifact `key:"artifacts" doc:"" rule:"required some"`
	Adapter   string     `key:"adapter" doc:"" rule:"required"` // "runtime." and the id of a resource
	Protocol  string     `key:"protocol" doc:"" rule:"required"`
	Challenge struct {
		Source   string `key:"source" doc:"" rule:"required"`
		MaxCases int    `key:"max_cases" doc:"" rule:"required"`
		MaxBytes int64  `key:"max_case_bytes" doc:"" rule:"required"`
	} `key:"challenge" doc:"" rule:"required"`
	Outputs []OutputArtifact `key:"output_artifacts" doc:""`
	Limits  struct {
		Wall  time.Duration `key:"seconds_per_case" doc:"" rule:"required"`
		Bytes int64         `key:"observation_bytes_per_case" doc:"" rule:"required"`
	} `key:"limits" doc:"" rule:"required"`
}

// OutputArtifact is an [Output] that a check reads, and what reads it.
type OutputArtifact struct {
	Name   string `key:"name" doc:"" rule:"required id"`
	Parser string `key:"parser" doc:"What reads the output." rule:"required parser"`
	Limits Limits `key:"limits" doc:"" rule:"required limits"`
}

// Artifact is a file or tree of the candidate, and what reads it.
type Artifact struct {
	ID     string `key:"id" doc:"" rule:"required id"`
	Source struct {
		Entry   string `key:"entry" doc:"" rule:"id"`
		Subpath string `key:"subpath" doc:"" rule:"path"`
		Path    string `key:"path" doc:"" rule:"path"`
	} `key:"source" doc:"" rule:"required"`
	Parser string `key:"parser" doc:"What reads the artifact." rule:"required parser"`
	Limits Limits `key:"limits" doc:"" rule:"required limits"`
}

// Limits bound an artifact.
type Limits struct {
	MaxBytes      int64 `key:"max_bytes" doc:""`
	MaxFiles      int64 `key:"max_files" doc:""`
	MaxTotalBytes int64 `key:"max_total_bytes" doc:""`
}

// Within lowers each limit to the same limit of most. A limit of 0 becomes the limit of most.
func (l Limits) Within(most Limits) Limits {
	least := func(limit, most int64) int64 { return min(cmp.Or(limit, most), most) }
	return Limits{least(l.MaxBytes, most.MaxBytes), least(l.MaxFiles, most.MaxFiles), least(l.MaxTotalBytes, most.MaxTotalBytes)}
}

// NewVerification returns how a row with this key verification is judged. roots are the resource roots of its pack.
func NewVerification(v document.Value, roots map[string]string) *Verification {
	to := new(Verification)
	schema.Decode(v, to)
	for id, f := range to.Resources.Runtime {
		to.Resources.Runtime[id] = MountedFile{path.Join(roots["runtime"], f.Path), f.Mount}
	}
	for id, f := range to.Resources.Host {
		to.Resources.Host[id] = HostFile{path.Join(roots["host"], f.Path)}
	}
	return to
}

// Kept returns the part of a patch that counts, and the files that this part changes or adds, not those that it removes.
// The error says why the patch as a whole does not count.
func (b Candidate) Kept(text string) (kept string, changed []string, err error) {
	if strings.TrimSpace(text) == "" {
		return "", nil, nil
	}
	files, err := patch.Parse(text)
	if err != nil {
		return "", nil, fmt.Errorf("the patch cannot be read: %w", err)
	}
	excluded := slices.Concat(b.ExcludePaths, []string{".git", ".securebench", "securebench"})
	var all strings.Builder
	for _, f := range files {
		if !slices.ContainsFunc(f.Paths(), func(name string) bool { return !patch.Match(excluded, name) }) {
			continue
		}
		for _, name := range f.Paths() {
			if len(b.AllowPaths) > 0 && !patch.Match(b.AllowPaths, name) {
				return "", nil, fmt.Errorf("%q is not in allow_paths", name)
			}
		}
		all.WriteString(f.Text)
		changed = append(changed, f.New)
	}
	if int64(all.Len()) > b.MaxPatchBytes || int64(len(changed)) > b.MaxChangedFiles {
		return "", nil, fmt.Errorf("the patch has more than %d bytes or %d files", b.MaxPatchBytes, b.MaxChangedFiles)
	}
	return all.String(), slices.DeleteFunc(changed, func(name string) bool { return name == "" }), nil
}
