package record

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/workspace"
)

// A Finding is something that [Verify] reports about a file.
type Finding struct {
	File    string `json:"file"`           // relative to the run's directory
	Line    int    `json:"line,omitempty"` // from 1
	Message string `json:"message"`
	// Note marks a finding that is worth knowing but is not a fault.
	Note bool `json:"note,omitempty"`
}

// String returns the finding in one line: file, line and message.
func (f Finding) String() string {
	text := f.File
	if f.Line > 0 {
		text = fmt.Sprintf("%s:%d", text, f.Line)
	}
	if f.Note {
		text += ": note"
	}
	return text + ": " + f.Message
}

// Verification is the result of [Verify].
type Verification struct {
	Records  int       `json:"records"`
	Sealed   bool      `json:"sealed"` // a seal covers the last record
	Signed   bool      `json:"signed"` // by the key that Verify was given
	Findings []Finding `json:"findings"`
}

// OK reports whether there is no finding except notes.
func (v Verification) OK() bool {
	return !slices.ContainsFunc(v.Findings, func(f Finding) bool { return !f.Note })
}

// Verify compares the run's directory dir, and everything that its records refer to, with the recorded
// digests. If key is not nil, it must have signed the seal. What is wrong is a [Finding]; an error means
// that the directory could not be read.
func Verify(ctx context.Context, dir string, key ed25519.PublicKey) (Verification, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Verification{}, err
	}
	defer func() { _ = root.Close() }()
	v := newVerifier(ctx, root)
	err = v.follow(root, key, func(n int, r Record) error {
		v.record(n, r)
		return ctx.Err()
	})
	if err != nil {
		return Verification{}, err
	}
	if v.torn > 0 {
		v.wrong(RecordsFile, v.records+1, "%d bytes of a line that was not finished; sbench run --resume removes them", v.torn)
	}
	if v.unsigned != nil {
		v.wrong(SignatureFile, 0, "%v", v.unsigned)
	}
	v.inputs()
	v.egressLines()
	return Verification{
		Records: v.records, Sealed: v.sealed, Signed: key != nil && v.sealed && v.unsigned == nil,
		Findings: append([]Finding{}, v.findings...),
	}, nil
}

type egressKey struct {
	Task    string `json:"task"`
	Attempt int    `json:"attempt"`
	Try     int    `json:"try"`
}

// verifier checks the files that the lines of a chain refer to.
type verifier struct {
	chain
	ctx     context.Context
	root    *os.Root
	claimed map[egressKey]claim
}

// A claim is what a line says about the egress log.
type claim struct {
	line   int
	digest string
}

func newVerifier(ctx context.Context, root *os.Root) *verifier {
	return &verifier{ctx: ctx, root: root, claimed: map[egressKey]claim{}}
}

// inputs compares the present contents of the input files with their digests. These files are not in the
// run's directory, so a change is only a note.
func (v *verifier) inputs() {
	for _, name := range slices.Sorted(maps.Keys(v.manifest.Inputs)) {
		in := v.manifest.Inputs[name]
		digest, _, err := digestFile(openInput(in.Path))
		switch {
		case err != nil:
			v.note(ManifestFile, "the %s file %s cannot be compared: %v", name, in.Path, err)
		case digest != in.Digest:
			v.note(ManifestFile, "the %s file %s has changed since the run", name, in.Path)
		}
	}
}

func (v *verifier) record(n int, r Record) {
	for _, text := range []*string{r.CandidateText, r.CandidatePatch} {
		if text != nil && r.CandidateDigest != Digest([]byte(*text)) {
			v.wrong(RecordsFile, n, "candidate_digest is not the candidate's digest")
		}
	}
	if r.CandidateWorkspace != nil && r.WorkspaceDigest != "" {
		v.workspace(n, *r.CandidateWorkspace, r)
	}
	for _, l := range r.Logs {
		v.log(n, l)
	}
	v.claimed[egressKey{r.TaskID, r.Attempt, r.Try}] = claim{n, r.EgressDigest}
}

func (v *verifier) workspace(n int, path string, r Record) {
	if !filepath.IsLocal(path) {
		v.note(RecordsFile, "line %d: candidate_workspace %q is not in this directory, and was not checked", n, path)
		return
	}
	report, err := workspace.StoredTree{Root: v.root, Name: path, List: r.WorkspaceAttributes}.Digest(v.ctx)
	switch {
	case errors.Is(err, workspace.ErrAttributes):
		v.wrong(filepath.Clean(path)+workspace.AttributesSuffix, 0, "the workspace of line %d: %v", n, err)
	case err != nil:
		v.wrong(path, 0, "the workspace of line %d: %v", n, err)
	case report.Digest != r.WorkspaceDigest:
		v.wrong(path, 0, "the workspace is not what line %d recorded", n)
	}
	if r.LayerDigest == "" {
		return
	}
	f, err := layer.Open(v.root, filepath.Clean(path)+layer.Suffix, r.LayerDigest)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		v.wrong(filepath.Clean(path)+layer.Suffix, 0, "the layer of line %d: %v", n, err)
	}
}

func (v *verifier) log(n int, l Log) {
	if !filepath.IsLocal(l.Path) {
		v.wrong(RecordsFile, n, "log %q leads out of the directory", l.Path)
		return
	}
	digest, size, err := digestFile(OpenFile(v.root, l.Path, os.O_RDONLY))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.wrong(l.Path, 0, "the log of line %d is missing", n)
	case err != nil:
		v.wrong(l.Path, 0, "the log of line %d: %v", n, err)
	case digest != l.Digest || size != l.Bytes:
		v.wrong(l.Path, 0, "the log is not what line %d recorded", n)
	}
}

// openInput opens a regular file. The name may now refer to something else, so it neither waits
// for a pipe nor reads a device.
func openInput(name string) (*os.File, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(errors.New("is no regular file"), err, f.Close())
	}
	return f, nil
}

// digestFile digests and closes f. It takes the results of an open: if err is not nil, it returns err.
func digestFile(f *os.File, err error) (digest string, size int64, _ error) {
	if err != nil {
		return "", 0, err
	}
	h := sha256.New()
	size, err = io.Copy(h, f)
	return workspace.DigestOf(h), size, errors.Join(err, f.Close())
}

// egressLines digests the egress log by try, and compares the digests with the records.
func (v *verifier) egressLines() {
	logged := map[egressKey]hash.Hash{}
	f, err := OpenFile(v.root, EgressFile, os.O_RDONLY)
	if err == nil {
		defer func() { _ = f.Close() }()
		_, err = eachLine(f, func(n int, line []byte) error {
			var key egressKey
			if err := json.Unmarshal(line, &key); err != nil {
				v.wrong(EgressFile, n, "no entry: %v", err)
				return nil
			}
			if logged[key] == nil {
				logged[key] = sha256.New()
			}
			_, _ = logged[key].Write(append(slices.Clone(line), '\n')) // a hash never returns an error
			return nil
		})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		v.wrong(EgressFile, 0, "%v", err)
	}
	inOrder := func(a, b egressKey) int { return cmp.Compare(v.claimed[a].line, v.claimed[b].line) }
	for _, key := range slices.SortedFunc(maps.Keys(v.claimed), inOrder) {
		want := v.claimed[key]
		got := ""
		if h := logged[key]; h != nil {
			got = workspace.DigestOf(h)
		}
		if got != want.digest {
			v.wrong(EgressFile, 0, "the entries of task %q, attempt %d, try %d are not what line %d of the records says", key.Task, key.Attempt, key.Try, want.line)
		}
		delete(logged, key)
	}
	if len(logged) > 0 {
		v.note(EgressFile, "holds entries of %d tries that were not recorded: they were interrupted", len(logged))
	}
}
