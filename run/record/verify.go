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
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
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

// Verify compares dir, and everything that its records refer to, with the recorded digests; a key that is not
// nil must have signed the seal. What is wrong is a [Finding]; after an error, dir could not be read.
func Verify(ctx context.Context, dir string, key ed25519.PublicKey) (Verification, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Verification{}, err
	}
	defer func() { _ = root.Close() }()
	v := newVerifier(ctx, root)
	if err := v.lines(key); err != nil {
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
	v.unnamed()
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
	named   map[string]bool // paths that the records name
	strange int             // paths that no record names
	logged  []AttemptKey    // that the egress log has entries of
	public  bool            // the private part is not here
}

// A claim is what a line says about the egress log.
type claim struct {
	line    int
	digest  string
	private bool // it has a private part
}

func newVerifier(ctx context.Context, root *os.Root) *verifier {
	_, err := root.Lstat(PrivateDir)
	return &verifier{ctx: ctx, root: root, claimed: map[egressKey]claim{}, named: map[string]bool{}, public: errors.Is(err, fs.ErrNotExist)}
}

// lines follows the chain, and checks what its lines refer to.
func (v *verifier) lines(key ed25519.PublicKey) error {
	return v.follow(v.root, key, func(n int, r Record) error {
		v.record(n, r)
		return v.ctx.Err()
	})
}

// inputs compares the input files with their digests. They are not in the run's directory: a change is a note.
func (v *verifier) inputs() {
	for _, name := range slices.Sorted(maps.Keys(v.manifest.Inputs)) {
		in := v.manifest.Inputs[name]
		digest, err := v.digest(foreign.OpenPath(in.Path, maxInput))
		switch {
		case err != nil:
			v.note(ManifestFile, "the %s file %s cannot be compared: %v", name, in.Path, err)
		case digest != in.Digest:
			v.note(ManifestFile, "the %s file %s has changed since the run", name, in.Path)
		}
	}
}

func (v *verifier) record(n int, r Record) {
	if r.CandidateDigest != r.DigestCandidate() {
		v.wrong(RecordsFile, n, "candidate_digest is not the candidate's digest")
	}
	if r.CandidateWorkspace != nil && !filepath.IsLocal(*r.CandidateWorkspace) {
		v.note(RecordsFile, "line %d: candidate_workspace %q is not in this directory, and was not checked", n, *r.CandidateWorkspace)
		r.CandidateWorkspace = nil
	}
	files, err := r.files()
	if err != nil {
		v.wrong(RecordsFile, n, "%v", err)
		return
	}
	for _, name := range files {
		v.named[name] = true
	}
	if r.CandidateWorkspace != nil {
		v.workspace(n, *r.CandidateWorkspace, r)
	}
	for _, l := range r.Logs {
		v.file(n, "log", l.Path, l.Bytes, l.Digest)
	}
	if r.PrivateDigest != "" && !v.public {
		v.named[r.PrivateFile()] = true
		v.file(n, "private part", r.PrivateFile(), maxLine, r.PrivateDigest)
	}
	key := egressKey{r.TaskID, r.Attempt, r.Try}
	if before, twice := v.claimed[key]; twice {
		v.wrong(RecordsFile, n, "line %d has the same try of this attempt", before.line)
	}
	v.claimed[key] = claim{n, r.EgressDigest, r.PrivateDigest != ""}
}

func (v *verifier) workspace(n int, path string, r Record) {
	report, err := workspace.StoredTree{Root: v.root, Name: path, List: r.WorkspaceAttributes}.Copy(v.ctx, nil, workspace.TreeOptions{MaxBytes: r.Provenance.Policy.WorkspaceBytes})
	switch {
	case errors.Is(err, workspace.ErrAttributes):
		v.wrong(filepath.Clean(path)+workspace.AttributesSuffix, 0, "the workspace of line %d: %v", n, err)
	case err != nil:
		v.wrong(path, 0, "the workspace of line %d: %v", n, err)
	case len(report.Dropped) > 0:
		v.wrong(path, 0, "the workspace of line %d has what sbench never keeps: %s", n, strings.Join(report.Dropped, ", "))
	case report.Digest != r.WorkspaceDigest:
		v.wrong(path, 0, "the workspace is not what line %d recorded", n)
	}
	if r.LayerDigest == "" {
		return
	}
	f, err := layer.Open(v.ctx, v.root, filepath.Clean(path)+layer.Suffix, r.LayerDigest)
	if err == nil {
		err = f.Close()
	}
	if err != nil {
		v.wrong(filepath.Clean(path)+layer.Suffix, 0, "the layer of line %d: %v", n, err)
	}
}

// maxInput bounds an input file that is compared, in bytes.
const maxInput = 1 << 30

// digest digests and closes f. It takes the results of an open: if err is not nil, it returns err.
func (v *verifier) digest(f *os.File, err error) (string, error) {
	if err != nil {
		return "", err
	}
	digest, err := foreign.Digest(v.ctx, f)
	return digest, errors.Join(err, f.Close())
}

// file compares a file that line n names with its digest.
func (v *verifier) file(n int, what, name string, most int64, want string) {
	digest, err := v.digest(foreign.Open(v.root, name, most))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		v.wrong(name, 0, "the %s of line %d is missing", what, n)
	case err != nil:
		v.wrong(name, 0, "the %s of line %d: %v", what, n, err)
	case digest != want:
		v.wrong(name, 0, "the %s is not what line %d recorded", what, n)
	}
}

// maxStrange bounds the findings about files that no record names.
const maxStrange = 20

// logDepth is the number of directories above the deepest directory of logs, which is a step's.
const logDepth = 3

// unnamed notes files that no record names: an interrupted attempt left them, or somebody added them.
func (v *verifier) unnamed() {
	files := []string{RecordsFile, ManifestFile, SealFile, SignatureFile, EgressFile, lockFile}
	dirs := []string{".", WorkspacesDir, LogsDir, PrivateDir}
	err := fs.WalkDir(v.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		inside := (strings.HasPrefix(name, LogsDir+"/") || strings.HasPrefix(name, PrivateDir+"/")) && strings.Count(name, "/") <= logDepth
		switch {
		case err != nil:
			return err
		case v.named[name] && d.IsDir():
			return fs.SkipDir
		case slices.Contains(dirs, name) && !d.IsDir(), slices.Contains(files, name) && !d.Type().IsRegular():
			v.wrong(name, 0, "is another kind of file")
			return v.ctx.Err()
		case v.named[name], slices.Contains(files, name), slices.Contains(dirs, name), d.IsDir() && inside:
			return v.ctx.Err()
		}
		if v.strange++; v.strange <= maxStrange {
			v.note(name, "no record names it: an interrupted attempt left it, or it was added")
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return v.ctx.Err()
	})
	if err != nil {
		v.wrong(".", 0, "%v", err)
	}
	if more := v.strange - maxStrange; more > 0 {
		v.note(".", "%d more files or directories that no record names", more)
	}
	if v.public && slices.ContainsFunc(slices.Collect(maps.Values(v.claimed)), func(c claim) bool { return c.private }) {
		v.note(PrivateDir, "is not here, and was not checked: this is the public form of the run")
	}
}

// Logged is what the log of the network has of earlier sessions. An interrupted try has lines and no record.
type Logged struct {
	Tries   map[AttemptKey]int // the last try of each attempt with lines
	CostUSD float64            // of all tries, in US dollars
	End     int64              // bytes of the complete lines
}

// ReadLogged reads the log of the network of the run in root.
func ReadLogged(root *os.Root) (Logged, error) {
	all := Logged{Tries: map[AttemptKey]int{}}
	f, err := foreign.Open(root, EgressFile, maxLines)
	if errors.Is(err, fs.ErrNotExist) {
		return all, nil
	}
	if err != nil {
		return all, err
	}
	defer func() { _ = f.Close() }()
	_, err = eachLine(f, func(_ int, line []byte) error {
		all.End += int64(len(line)) + 1
		var of struct {
			egressKey
			CostUSD float64 `json:"cost_usd"`
		}
		if json.Unmarshal(line, &of) == nil { // Verify reports another line
			key := AttemptKey{of.Task, of.Attempt}
			all.Tries[key] = max(all.Tries[key], of.Try)
			all.CostUSD += max(of.CostUSD, 0)
		}
		return nil
	})
	if err != nil {
		return all, fmt.Errorf("%s: %w", EgressFile, err)
	}
	return all, nil
}

// egressLines digests the egress log by try, and compares the digests with the records.
func (v *verifier) egressLines() {
	logged := map[egressKey]hash.Hash{} // by the tries that records claim
	others := map[egressKey]bool{}
	f, err := foreign.Open(v.root, EgressFile, maxLines)
	if err == nil {
		defer func() { _ = f.Close() }()
		_, err = eachLine(f, func(n int, line []byte) error {
			var key egressKey
			if err := json.Unmarshal(line, &key); err != nil {
				v.wrong(EgressFile, n, "no entry: %v", err)
				return v.enough()
			}
			if logged[key] == nil && !others[key] {
				v.logged = append(v.logged, AttemptKey{key.Task, key.Attempt})
			}
			switch _, claimed := v.claimed[key]; {
			case claimed:
				if logged[key] == nil {
					logged[key] = sha256.New()
				}
				_, _ = logged[key].Write(append(slices.Clone(line), '\n')) // a hash never returns an error
			case len(others) < MaxManifest:
				others[key] = true
			default:
				return fmt.Errorf("it has entries of more than %d tries that no record names", MaxManifest)
			}
			return nil
		})
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, errEnough) {
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
	}
	if len(others) > 0 {
		v.note(EgressFile, "holds entries of %d tries that were not recorded: they were interrupted", len(others))
	}
}
