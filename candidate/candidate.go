// Package candidate extracts what a harness produced from a sandbox that has stopped.
//
// A [Candidate] is data of bounded size, without anything that could harm a reader: it has no
// devices, pipes or setuid bits, and its links are never followed. [Extract] takes a text, code or
// workspace, [ExtractPatch] takes a patch, and [Candidate.WriteLayer] takes the changes to a whole
// machine.
package candidate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"unicode/utf8"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	fileBytes    = 8 << 10 // bytes of a workspace's bound for each file or hard link
	minFiles     = 1000
	maxFileBytes = 4 << 20
	phase        = "extraction"
)

// A Candidate is what a harness produced. Which field counts depends on the task's kind of
// candidate.
type Candidate struct {
	Text      string   // of a text or code candidate, UTF-8
	Patch     string   // in git's format, UTF-8
	Foreign   bool     // Patch was made elsewhere: a verifier reads and applies it as SWE-bench's harness does
	Workspace string   // host directory, absolute
	Digest    string   // of the tree as the agent left it; see workspace.TreeReport
	Dropped   []string // special files that were not copied; see workspace.TreeReport
	// Attributes is the digest of the list of owners and modes that the files in Workspace have
	// lost; "" for no list. The list's name is Workspace with workspace.AttributesSuffix.
	Attributes string
	// Layer is the digest of the layer with all changes outside the workspace; "" unless the whole
	// machine is the candidate. The layer's name is Workspace with layer.Suffix.
	Layer string

	stored string // the workspace that Workspace copies, with the layer beside it; "" if Workspace is no copy
}

// Restored returns the candidate with its workspace in the directory dir: a copy in which files have their
// original owners and modes. The layer stays where it is.
func (c Candidate) Restored(dir string) Candidate {
	c.stored, c.Workspace, c.Attributes = cmp.Or(c.stored, c.Workspace), dir, ""
	return c
}

// HasOwners reports whether the files of Workspace have the owners and modes that a harness gave them in a sandbox.
func (c Candidate) HasOwners() bool { return c.stored != "" }

// A Failure is a fault of the candidate or of its harness, not of sbench.
type Failure struct {
	Reason  string `json:"reason"`  // producer_timeout, producer_failed, candidate_missing, …
	Phase   string `json:"phase"`   // producer or extraction
	Message string `json:"message"` // for people; never quotes the agent's output
}

// A Source says where Extract takes a candidate from, and where it puts the workspace. Nothing may
// write to Workspace any more.
type Source struct {
	Kind       compiler.CandidateKind
	Stdout     runtime.Output // the candidate without a File
	Workspace  string         // host directory
	Attributes string         // as in Candidate, if Workspace is an earlier candidate's; else ""
	File       string         // of a text or code candidate, relative to the workspace; "" for standard output
	Dest       string         // existing, empty host directory, which receives a copy of the workspace
	MaxBytes   int64          // of the workspace
}

// StoredTree returns the candidate's workspace with the attributes that its files have lost. The
// caller closes its Root.
func (c Candidate) StoredTree() (workspace.StoredTree, error) {
	root, err := os.OpenRoot(filepath.Dir(c.Workspace))
	return workspace.StoredTree{Root: root, Name: filepath.Base(c.Workspace), List: c.Attributes}, err
}

// TreeDigest returns the digest of the candidate's workspace as it is now. maxBytes is what bounded the workspace when it
// was stored; 0 means 8 GiB.
func (c Candidate) TreeDigest(ctx context.Context, maxBytes int64) (string, error) {
	tree, err := c.StoredTree()
	if err != nil {
		return "", err
	}
	defer func() { _ = tree.Root.Close() }()
	report, err := tree.Copy(ctx, nil, workspace.TreeOptions{MaxBytes: maxBytes})
	return report.Digest, err
}

// Extract extracts the candidate, except for a patch. A Failure is the candidate's fault. An error
// means that sbench could not extract it. Extract copies the workspace for every kind of candidate,
// so that people can look at it.
func Extract(ctx context.Context, s Source) (Candidate, *Failure, error) {
	var c Candidate
	root, err := os.OpenRoot(s.Workspace)
	if err != nil {
		return c, nil, err
	}
	defer func() { _ = root.Close() }()
	failure := c.takeText(s, root)
	tooBig, err := c.copyWorkspace(ctx, s)
	return c, cmp.Or(failure, tooBig), err
}

func (c *Candidate) takeText(s Source, root *os.Root) *Failure {
	switch {
	case s.Kind != compiler.CandidateText && s.Kind != compiler.CandidateCode:
		return nil
	case s.File == "":
		if s.Stdout.Cut() > 0 {
			return &Failure{"candidate_too_big", phase, "the answer on standard output is longer than its limit"}
		}
		return c.setText(s.Stdout.Bytes(), "standard output")
	}
	text, err := foreign.Read(root, s.File, maxFileBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return &Failure{"candidate_missing", phase, "there is no " + s.File}
	}
	if err != nil {
		return &Failure{"candidate_missing", phase, fmt.Sprintf("%s is no readable regular file of at most %d bytes", s.File, maxFileBytes)}
	}
	return c.setText(text, s.File)
}

func (c *Candidate) setText(text []byte, where string) *Failure {
	if !utf8.Valid(text) {
		return &Failure{"candidate_not_utf8", phase, where + " is not valid UTF-8"}
	}
	c.Text = string(text)
	return nil
}

// CheckText returns what is wrong with the Text or Patch of a candidate that was made elsewhere: a record holds at most
// 16 MiB of UTF-8.
func (c Candidate) CheckText() *Failure {
	text := cmp.Or(c.Text, c.Patch)
	switch {
	case len(text) > maxPatchBytes:
		return &Failure{"candidate_too_big", phase, fmt.Sprintf("the answer is longer than %d bytes", maxPatchBytes)}
	case !utf8.ValidString(text):
		return &Failure{"candidate_not_utf8", phase, "the answer is not valid UTF-8"}
	}
	return nil
}

func (c *Candidate) copyWorkspace(ctx context.Context, s Source) (*Failure, error) {
	from, err := Candidate{Workspace: s.Workspace, Attributes: s.Attributes}.StoredTree()
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Root.Close() }()
	to, err := os.OpenRoot(s.Dest)
	if err != nil {
		return nil, err
	}
	defer func() { _ = to.Close() }()
	// The list has the owners, which the files get back for the verifier.
	list, err := workspace.NewAttributesWriter(s.Dest + workspace.AttributesSuffix)
	if err != nil {
		return nil, err
	}
	report, err := from.Copy(ctx, to, workspace.TreeOptions{
		MaxBytes: s.MaxBytes, MaxFiles: max(minFiles, s.MaxBytes/fileBytes), Lost: list.Add,
	})
	attributes := ""
	if err == nil {
		attributes, err = list.Close()
	} else if discard := list.Discard(); discard != nil {
		return nil, fmt.Errorf("copy the workspace: %w", errors.Join(err, discard))
	}
	if errors.Is(err, workspace.ErrTooBig) {
		return &Failure{"candidate_too_big", phase, err.Error()}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("copy the workspace: %w", err)
	}
	c.Workspace, c.Digest, c.Attributes, c.Dropped = s.Dest, report.Digest, attributes, report.Dropped
	return nil, nil
}

// WriteLayer writes the changes of a stopped sandbox to its image as a layer beside the directory
// dest, and sets c.Layer. maxBytes bounds the layer.
func (c *Candidate) WriteLayer(ctx context.Context, s runtime.Sandbox, dest string, maxBytes int64) (*Failure, error) {
	changes, err := s.Changes()
	if err != nil {
		return nil, err
	}
	f, err := os.OpenFile(dest+layer.Suffix, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	report, err := layer.Write(ctx, f, changes, LayerBudget(maxBytes))
	err = errors.Join(err, f.Close())
	switch {
	case err == nil:
		c.Layer, c.Dropped = report.Digest, report.Dropped
		return nil, nil
	case errors.Is(err, workspace.ErrTooBig):
		return &Failure{"candidate_too_big", phase, err.Error()}, os.Remove(f.Name())
	}
	return nil, errors.Join(fmt.Errorf("write the changes to the image: %w", err), os.Remove(f.Name()))
}

// OpenLayer opens the candidate's layer after checking its digest. The caller closes it.
func (c Candidate) OpenLayer(ctx context.Context) (*os.File, error) {
	stored := cmp.Or(c.stored, c.Workspace)
	root, err := os.OpenRoot(filepath.Dir(stored))
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	return layer.Open(ctx, root, filepath.Base(stored)+layer.Suffix, c.Layer)
}

// LayerBudget returns the budget of a layer of at most maxBytes.
func LayerBudget(maxBytes int64) layer.Budget {
	return layer.Budget{Bytes: maxBytes, Entries: max(minFiles, maxBytes/fileBytes)}
}
