package compiler

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math"
	"slices"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/workspace/foreign"
)

// Labels are hashed first, so that digests of different kinds are never equal.
// docs/design/digests.md specifies all digests for other programs.
const (
	labelRow        = "sbench row 1\n"
	labelManifest   = "sbench manifest 1\n"
	labelEvaluation = "sbench evaluation 1\n"
	labelAssets     = "sbench assets 1\n"
	labelPack       = "sbench pack 1\n"
)

// Digests identify what a task is made of, each as "sha256:" and hexadecimal digits. None
// depends on the order of keys, white space or file times.
type Digests struct {
	Row        string // the row as the author wrote it
	Evaluation string // the row's eval values and the bytes of its eval files
	Assets     string // the bytes of the row's public files
}

// Digests reads the files that the row refers to and returns its digests. A missing
// file or a symbolic link is an error.
func (t *Task) Digests() (Digests, error) {
	h := newHasher(t.pack)
	defer h.close()
	var all []Digests
	for _, s := range t.Steps() {
		d, err := h.digests(s)
		if err != nil {
			return Digests{}, fmt.Errorf("digest of task %q: %w", s.id, err)
		}
		all = append(all, d)
	}
	if t.Stepped() {
		return stepDigests(all), nil
	}
	return all[0], nil
}

// ManifestDigest returns the digest of the manifest's content.
func (p *Pack) ManifestDigest() string {
	return sum(labelManifest, document.Canonical(p.manifest.Root()))
}

// Digest reads all rows and the files they refer to, and returns the digest of these and the
// manifest, in the form of Digests. The error for an invalid row holds Problems.
func (p *Pack) Digest(ctx context.Context) (string, error) {
	h := newHasher(p)
	defer h.close()
	pack := sha256.New()
	pack.Write(fmt.Appendf(nil, "%s%s\n", labelPack, p.ManifestDigest()))
	for task, err := range p.rows() {
		if err := errors.Join(err, context.Cause(ctx)); err != nil {
			return "", err
		}
		d, err := h.digests(task)
		if err != nil {
			return "", fmt.Errorf("digest of row on line %d: %w", task.line, err)
		}
		pack.Write(fmt.Appendf(nil, "%s %s %s\n", d.Row, d.Evaluation, d.Assets))
	}
	return fmt.Sprintf("sha256:%x", pack.Sum(nil)), nil
}

func sum(label string, content []byte) string {
	return fmt.Sprintf("sha256:%x", sha256.Sum256(append([]byte(label), content...)))
}

type hasher struct{ public, eval hashedRoot }

// hashedRoot is an asset root that reads each file once, for all rows.
type hashedRoot struct {
	assetRoot
	known map[string]string // the records of files and directories, by path
}

func newHasher(p *Pack) *hasher {
	return &hasher{
		public: hashedRoot{assetRoot{path: p.PublicRoot}, map[string]string{}},
		eval:   hashedRoot{assetRoot{path: p.EvalRoot}, map[string]string{}},
	}
}

func (h *hasher) close() {
	h.public.close()
	h.eval.close()
}

func (h *hasher) digests(t *Task) (Digests, error) {
	var assets, files []string
	for _, v := range t.resources() {
		switch {
		case v.file == nil:
		case v.lane == Public:
			assets = append(assets, v.file.Path)
		default:
			files = append(files, v.file.Path)
		}
	}
	if checker := t.Checker(); checker.Path != "" {
		files = append(files, checker.Files)
	}
	eval := []byte("{}") // if absent or null
	if v := t.Eval(); v.Kind() == document.Object {
		eval = document.Canonical(v)
	}
	evaluation, err1 := h.eval.appendRecords(append(eval, '\n'), files)
	public, err2 := h.public.appendRecords(nil, assets)
	return Digests{
		Row: sum(labelRow, document.Canonical(t.doc.Root())), Evaluation: sum(labelEvaluation, evaluation), Assets: sum(labelAssets, public),
	}, cmp.Or(err1, err2)
}

const maxKnown = 1 << 16

// appendRecords appends to text the records of everything at or below the paths, each once, sorted by the bytes of the
// path.
func (r *hashedRoot) appendRecords(text []byte, paths []string) ([]byte, error) {
	all := map[string]string{}
	if len(r.known) > maxKnown {
		clear(r.known)
	}
	for _, path := range paths {
		err := r.walk(path, func(name string, info fs.FileInfo) (err error) {
			if r.known[name] == "" {
				r.known[name], err = r.record(name, info)
			}
			all[name] = r.known[name]
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		text = fmt.Appendf(text, "%s %s\x00", all[path], path)
	}
	return text, nil
}

// record returns "f MODE SHA256" for a file and "d 0755 -" for a directory, where MODE is 0755 if anyone may execute
// the file and 0644 otherwise.
func (r *hashedRoot) record(name string, info fs.FileInfo) (string, error) {
	if info.IsDir() {
		return "d 0755 -", nil
	}
	mode := "0644"
	if info.Mode()&0o111 != 0 {
		mode = "0755"
	}
	sum := sha256.New()
	file, err := foreign.Open(r.root, name, math.MaxInt64)
	if err == nil {
		defer shut(file)
		_, err = io.Copy(sum, file)
	}
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, document.Bare(err))
	}
	return fmt.Sprintf("f %s %x", mode, sum.Sum(nil)), nil
}
