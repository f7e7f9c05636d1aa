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
	h := newPackHasher(t.pack)
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
	return sum(labelManifest, p.manifest.Root().AppendCanonical(nil))
}

// Digest reads all rows and the files they refer to, and returns the digest of these and the
// manifest, in the form of Digests. The error for an invalid row holds Problems.
func (p *Pack) Digest(ctx context.Context) (string, error) {
	h := newPackHasher(p)
	defer h.close()
	pack := sha256.New()
	pack.Write(fmt.Appendf(nil, "%s%s\n", labelPack, p.ManifestDigest()))
	for row, err := range p.rows() {
		if err := errors.Join(err, context.Cause(ctx)); err != nil {
			return "", err
		}
		d, err := h.digests(row.task)
		if err != nil {
			return "", fmt.Errorf("digest of row on line %d: %w", row.task.line, err)
		}
		pack.Write(fmt.Appendf(nil, "%s %s %s\n", d.Row, d.Evaluation, d.Assets))
	}
	return fmt.Sprintf("sha256:%x", pack.Sum(nil)), nil
}

func sum(label string, content []byte) string {
	h := sha256.New()
	h.Write([]byte(label))
	h.Write(content)
	return fmt.Sprintf("sha256:%x", h.Sum(nil))
}

// packHasher computes the digests of rows, and caches the digests of files.
type packHasher struct{ public, eval fileHasher }

func newPackHasher(p *Pack) *packHasher {
	return &packHasher{fileHasher{assetRoot: assetRoot{path: p.PublicRoot}}, fileHasher{assetRoot: assetRoot{path: p.EvalRoot}}}
}

func (h *packHasher) close() {
	h.public.close()
	h.eval.close()
}

func (h *packHasher) digests(t *Task) (Digests, error) {
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
		files = append(files, checker.Files())
	}
	eval := []byte("{}") // if absent or null
	if v := t.eval(); v.Kind() == document.Object {
		eval = v.AppendCanonical(nil)
	}
	d := Digests{Row: sum(labelRow, t.doc.Root().AppendCanonical(nil))}
	var err1, err2 error
	d.Evaluation, err1 = h.eval.sum(labelEvaluation, append(eval, '\n'), files)
	d.Assets, err2 = h.public.sum(labelAssets, nil, assets)
	return d, cmp.Or(err1, err2)
}

// fileHasher hashes files and directories below a root.
type fileHasher struct {
	assetRoot
	known map[string]map[string]string // records by path asked for
	size  int                          // records in known
}

// maxKnown bounds the cached records of a fileHasher, and the answers of a fileProbe.
const maxKnown = 1 << 16

// sum returns the digest of a text and the records of everything at or below the paths, each
// once, sorted by the bytes of the path.
func (h *fileHasher) sum(label string, text []byte, paths []string) (string, error) {
	all := map[string]string{}
	for _, path := range paths {
		records, err := h.records(path)
		if err != nil {
			return "", err
		}
		maps.Copy(all, records)
	}
	for _, path := range slices.Sorted(maps.Keys(all)) {
		text = fmt.Appendf(text, "%s %s\x00", all[path], path)
	}
	return sum(label, text), nil
}

// records returns the record of every file and directory at or below path, by its path: "f
// MODE SHA256" or "d 0755 -", where MODE is 0755 if anyone may execute the file and 0644
// otherwise.
func (h *fileHasher) records(path string) (map[string]string, error) {
	if records, ok := h.known[path]; ok {
		return records, nil
	}
	records := map[string]string{}
	err := h.walk(path, func(name string, info fs.FileInfo) (err error) {
		records[name], err = h.record(name, info)
		return err
	})
	if err != nil {
		return nil, err
	}
	if h.size += len(records); h.known == nil || h.size > maxKnown {
		h.known, h.size = map[string]map[string]string{}, len(records)
	}
	h.known[path] = records
	return records, nil
}

func (h *fileHasher) record(name string, info fs.FileInfo) (string, error) {
	if info.IsDir() {
		return "d 0755 -", nil
	}
	mode := "0644"
	if info.Mode()&0o111 != 0 {
		mode = "0755"
	}
	sum := sha256.New()
	file, err := foreign.Open(h.root, name, math.MaxInt64)
	if err == nil {
		defer shut(file)
		_, err = io.Copy(sum, file)
	}
	if err != nil {
		return "", fmt.Errorf("%q: %w", name, Bare(err))
	}
	return fmt.Sprintf("f %s %x", mode, sum.Sum(nil)), nil
}
