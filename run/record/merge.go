package record

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"time"
	"unique"

	"github.com/securebench/sbench/workspace/foreign"
)

// ErrShards means that shards cannot be merged: a shard is damaged, or they are not of one run.
var ErrShards = errors.New("the shards cannot be merged")

// MergeOptions say what the shards must prove, and who signs the merged run.
type MergeOptions struct {
	Key  ed25519.PublicKey // must have signed each shard; nil requires no signature
	Sign *Key              // nil for no signature
	// Private also merges the private parts of the records, where they are there.
	Private bool
}

// A MergeReport says what was merged.
type MergeReport struct {
	RunID    string   `json:"run_id"`
	Records  int      `json:"records"`
	Attempts int      `json:"attempts"` // that are recorded
	Planned  int      `json:"planned"`  // attempts of all shards together
	Shards   int      `json:"shards"`   // that were merged
	Count    int      `json:"count"`    // of all shards
	Missing  []string `json:"missing"`  // which attempts have no record, in the order of the shards
}

// Merge verifies the shards in dirs, and writes one run with the records of all that have ended to output,
// which is missing or holds an earlier merge. If a shard is damaged or does not fit the other shards, the error
// is ErrShards, and output is unchanged.
func Merge(ctx context.Context, dirs []string, output string, o MergeOptions) (MergeReport, error) {
	m := &merger{options: o, unfinished: map[int]bool{}}
	defer func() {
		for _, s := range m.shards {
			_ = s.root.Close()
		}
	}()
	if err := m.open(output); err != nil {
		return MergeReport{}, err
	}
	for _, dir := range dirs {
		s, err := m.read(ctx, dir)
		if err != nil {
			return MergeReport{}, err
		}
		if s != nil {
			m.shards = append(m.shards, s)
		}
	}
	slices.SortFunc(m.shards, func(a, b *shard) int { return cmp.Compare(a.manifest.Shard.Index, b.manifest.Shard.Index) })
	if err := m.checkFit(); err != nil {
		return MergeReport{}, fmt.Errorf("%w: %w", ErrShards, err)
	}
	if err := m.write(ctx, output); err != nil {
		return MergeReport{}, err
	}
	return m.report(), nil
}

type merger struct {
	options    MergeOptions
	before     []Merged // shards that the output holds
	shards     []*shard
	unfinished map[int]bool // shards that have not ended, and so are left out
}

// A shard is what the merge has read of a shard.
type shard struct {
	dir      string
	root     *os.Root
	manifest Manifest
	sealed   time.Time
	part     Merged
	done     map[AttemptKey]unique.Handle[origin] // the attempts that are recorded; the last record counts
	files    []string                             // beside the records, relative to root
	private  []string                             // the private parts of the records
	logged   []AttemptKey                         // attempts in the egress log
}

// origin is what an attempt was made from: fields that are the same in a whole run, and the image.
type origin struct {
	Sbench         Version
	Pack           Pack
	Harness        Harness
	Image, ImageID string
}

// open reads the manifest of an earlier merge. The error is ErrExists for any other run, and for one that went on after
// the merge. A merge that was interrupted left no whole chain.
func (m *merger) open(output string) error {
	root, err := os.OpenRoot(output)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	_, none := root.Lstat(ManifestFile)
	if _, err := root.Lstat(RecordsFile); errors.Is(none, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var old chain
	if err := old.follow(root, nil, func(int, Record) error { return nil }); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	merged := 0
	for _, part := range old.manifest.Merged {
		merged += part.Records
	}
	switch m.before = old.manifest.Merged; {
	case m.before == nil:
		return fmt.Errorf("%s: %w, not of a merge", output, ErrExists)
	case old.records > merged && old.damage() == nil:
		return fmt.Errorf("%s: %w, made after the merge: name another directory", output, ErrExists)
	}
	return nil
}

// read verifies the shard in dir. It returns nil for a shard that has not ended.
func (m *merger) read(ctx context.Context, dir string) (_ *shard, err error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	s := &shard{dir: dir, root: root, done: map[AttemptKey]unique.Handle[origin]{}}
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("%w: %s: %w", ErrShards, dir, err), root.Close())
		}
	}()
	data, err := foreign.Read(root, ManifestFile, MaxSmall)
	if err != nil {
		return nil, err
	}
	v := newVerifier(ctx, root)
	err = v.follow(root, m.options.Key, func(n int, r Record) error {
		v.record(n, r)
		if err := s.take(r); err != nil {
			v.wrong(RecordsFile, n, "%v", err)
		}
		return ctx.Err()
	})
	s.manifest, s.sealed = v.manifest, v.at
	switch {
	case err != nil:
		return nil, err
	case s.manifest.Shard == nil || CheckShard(s.manifest.Shard.Index, s.manifest.Shard.Count) != nil:
		return nil, errors.New("is no shard of a run")
	}
	v.egressLines()
	if s.logged = v.logged; v.public {
		s.private = nil
	}
	if err := v.damage(); err != nil {
		return nil, err
	}
	if !v.sealed || v.torn > 0 {
		m.unfinished[s.manifest.Shard.Index] = true
		return nil, root.Close()
	}
	if v.unsigned != nil {
		return nil, fmt.Errorf("%s: %w", SignatureFile, v.unsigned)
	}
	s.part = Merged{Index: s.manifest.Shard.Index, Manifest: Digest(data), Records: v.records, Last: v.last, Unsigned: v.accepted}
	return s, nil
}

// take notes what a record is made from, and which files belong to it.
func (s *shard) take(r Record) error {
	p := r.Provenance
	is := origin{Sbench: p.Sbench, Pack: p.Pack, Harness: p.Harness, Image: r.Image, ImageID: r.ImageID}
	s.done[r.Key()] = unique.Make(is)
	if r.PrivateDigest != "" {
		s.private = append(s.private, r.PrivateFile())
	}
	files, err := r.files()
	s.files = append(s.files, files...)
	return err
}

// checkFit checks that the shards are parts of one run.
func (m *merger) checkFit() error {
	if len(m.shards) == 0 {
		return errors.New("none of them has ended")
	}
	first := m.shards[0]
	known := agreement{images: map[string]string{}}
	owners := map[AttemptKey]int{}
	for i, s := range m.shards {
		if i > 0 && s.part.Index == m.shards[i-1].part.Index {
			return fmt.Errorf("%s and %s are both shard %d", m.shards[i-1].dir, s.dir, s.part.Index)
		}
		if what, a, b := difference(commonFields(first.manifest), commonFields(s.manifest)); what != "" {
			return fmt.Errorf("%s is %s in %s, and %s in %s", what, a, first.dir, b, s.dir)
		}
		for task, numbers := range s.manifest.Shard.Attempts {
			for _, n := range numbers {
				if other, twice := owners[AttemptKey{task, n}]; twice {
					return fmt.Errorf("attempt %d of task %q is in the shards %d and %d", n, task, other, s.part.Index)
				}
				owners[AttemptKey{task, n}] = s.part.Index
			}
		}
		for a, is := range s.done {
			if owners[a] != s.part.Index {
				return fmt.Errorf("%s: attempt %d of task %q does not belong to it", s.dir, a.Number, a.Task)
			}
			if err := known.check(s, is.Value()); err != nil {
				return err
			}
		}
		for _, a := range s.logged {
			if owners[a] != s.part.Index {
				return fmt.Errorf("%s: %s has entries of attempt %d of task %q, which does not belong to it", s.dir, EgressFile, a.Number, a.Task)
			}
		}
		s.part.Missing = s.manifest.Shard.Planned() - len(s.done)
	}
	for _, part := range m.before {
		if !slices.ContainsFunc(m.shards, func(s *shard) bool { return s.part.Index == part.Index }) {
			return fmt.Errorf("shard %d was merged before, and is not among them", part.Index)
		}
	}
	return nil
}

// agreement checks that all attempts have the same origin, but for the image, and that an image is the
// same in all shards.
type agreement struct {
	common origin // zero before the first; without an image
	of     *shard
	images map[string]string // digests of images by reference
}

func (c *agreement) check(s *shard, is origin) error {
	if before := c.images[is.Image]; is.ImageID != "" && before != "" && before != is.ImageID {
		return fmt.Errorf("%s: the image %s is %s, in another shard %s", s.dir, is.Image, is.ImageID, before)
	}
	if is.ImageID != "" {
		c.images[is.Image] = is.ImageID
	}
	is.Image, is.ImageID = "", ""
	if c.of == nil {
		c.common, c.of = is, s
	}
	if is == c.common {
		return nil
	}
	what, a, b := difference(fields(c.common), fields(is))
	return fmt.Errorf("%s of an attempt is %s in %s, and %s in %s", what, a, c.of.dir, b, s.dir)
}

// commonFields returns the fields that must be the same in the manifests of all shards.
func commonFields(m Manifest) map[string]string {
	digests := map[string]string{}
	for name, in := range m.Inputs {
		digests[name] = in.Digest
	}
	return fields(map[string]any{
		"run_id": m.RunID, "sbench": m.Sbench, "pack": m.Pack, "harness": m.Harness, "settings": m.Settings, "attempts": m.Attempts,
		"inputs": digests, "shard.count": m.Shard.Count, "shard.deal": m.Shard.Deal, "shard.whole": m.Shard.Whole,
	})
}

// fields returns the fields of a value's JSON by their paths.
func fields(v any) map[string]string {
	data, _ := json.Marshal(v) // cannot fail: texts and numbers
	var object map[string]any
	all := map[string]string{}
	if json.Unmarshal(data, &object) != nil {
		return map[string]string{"": string(data)}
	}
	for key, value := range object {
		for inner, text := range fields(value) {
			if inner != "" {
				inner = "." + inner
			}
			all[key+inner] = text
		}
	}
	return all
}

// difference returns the first field in which a and b differ; what is "" if there is none.
func difference(a, b map[string]string) (what, inA, inB string) {
	names := slices.Sorted(maps.Keys(a))
	for _, name := range slices.Concat(names, slices.Sorted(maps.Keys(b))) {
		if a[name] != b[name] {
			return name, cmp.Or(a[name], "missing"), cmp.Or(b[name], "missing")
		}
	}
	return "", "", ""
}

func (m *merger) manifest() Manifest {
	all := m.shards[0].manifest
	all.Planned, all.Shard, all.Merged, all.Jobs = all.Shard.Whole, nil, []Merged{}, 0
	for _, s := range m.shards {
		all.Merged = append(all.Merged, s.part)
		all.Jobs += s.manifest.Jobs
		if s.manifest.StartedAt.Before(all.StartedAt) {
			all.StartedAt = s.manifest.StartedAt
		}
	}
	return all
}

// write writes the merged run, the manifest before the records. Until both fit, the directory is no valid run.
func (m *merger) write(ctx context.Context, output string) error {
	l, err := openNew(output)
	if err != nil {
		return err
	}
	defer func() { _ = l.Close() }()
	var last time.Time // when a shard was sealed
	for _, s := range m.shards {
		if s.sealed.After(last) {
			last = s.sealed
		}
		files := s.files
		if m.options.Private {
			files = append(files, s.private...)
		}
		for _, name := range files {
			if err := linkTree(ctx, s.root, l.root, name); err != nil {
				return fmt.Errorf("%s: %w", s.dir, err)
			}
		}
	}
	manifest := m.manifest()
	data, err := indented(manifest)
	if err != nil {
		return err
	}
	l.seal = Seal{RunID: manifest.RunID, Last: Digest(data), At: last, Planned: manifest.Planned}
	for _, name := range []string{SealFile, SignatureFile} { // of an earlier merge
		if err := l.root.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := l.writeWhole(ManifestFile, data); err != nil {
		return err
	}
	if err := l.sync(); err != nil {
		return err
	}
	if err := m.records(ctx, l); err != nil {
		return err
	}
	if err := m.egress(l); err != nil {
		return err
	}
	if err := verifyMerged(ctx, l.root); err != nil {
		return errors.Join(fmt.Errorf("%w: %s: %w", ErrShards, output, err), l.root.Remove(RecordsFile))
	}
	return l.Seal(l.seal, m.options.Sign)
}

// verifyMerged verifies a run that has no seal yet.
func verifyMerged(ctx context.Context, root *os.Root) error {
	v := newVerifier(ctx, root)
	if err := v.lines(nil); err != nil {
		return err
	}
	v.egressLines()
	return v.damage()
}

func (m *merger) records(ctx context.Context, l *Ledger) error {
	return l.writeStream(RecordsFile, func(w io.Writer) error {
		for _, s := range m.shards {
			own := s.part.Manifest
			err := s.lines(RecordsFile, func(n int, line []byte) error {
				head, err := unlink(line)
				if err != nil {
					return err
				}
				_, own = link(head, own)
				linked, digest := link(head, l.seal.Last)
				if _, err = w.Write(append(linked, '\n')); err == nil {
					l.seal.Last, l.seal.Records = digest, l.seal.Records+1
				}
				if n <= s.part.Unsigned {
					l.seal.AcceptedUnsigned = l.seal.Records // a seal counts from the first record on
				}
				return errors.Join(err, ctx.Err())
			})
			if err == nil && own != s.part.Last {
				err = errors.New("was written to while it was merged")
			}
			if err != nil {
				return fmt.Errorf("%s: %w", s.dir, err)
			}
		}
		return nil
	})
}

// egress writes the egress logs of all shards one after the other.
func (m *merger) egress(l *Ledger) error {
	logged := slices.ContainsFunc(m.shards, func(s *shard) bool {
		_, err := s.root.Lstat(EgressFile)
		return err == nil
	})
	if !logged {
		return nil
	}
	return l.writeStream(EgressFile, func(w io.Writer) error {
		for _, s := range m.shards {
			err := s.lines(EgressFile, func(_ int, line []byte) error {
				_, err := w.Write(append(slices.Clone(line), '\n'))
				return err
			})
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("%s: %w", s.dir, err)
			}
		}
		return nil
	})
}

func (s *shard) lines(name string, each func(n int, line []byte) error) error {
	f, err := foreign.Open(s.root, name, maxLines)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	_, err = eachLine(f, each)
	return err
}

func (m *merger) report() MergeReport {
	first := m.shards[0].manifest
	r := MergeReport{RunID: first.RunID, Planned: first.Shard.Whole, Shards: len(m.shards), Count: first.Shard.Count, Missing: []string{}}
	there := map[int]bool{}
	for _, s := range m.shards {
		r.Records, r.Attempts = r.Records+s.part.Records, r.Attempts+len(s.done)
		there[s.part.Index] = true
		for _, task := range slices.Sorted(maps.Keys(s.manifest.Shard.Attempts)) {
			for _, n := range s.manifest.Shard.Attempts[task] {
				if _, done := s.done[AttemptKey{task, n}]; !done {
					r.Missing = append(r.Missing, fmt.Sprintf("attempt %d of task %q, of shard %d", n, task, s.part.Index))
				}
			}
		}
	}
	for i := 1; i <= first.Shard.Count; i++ {
		switch {
		case m.unfinished[i]:
			r.Missing = append(r.Missing, fmt.Sprintf("shard %d of %d, which has not ended", i, first.Shard.Count))
		case !there[i]:
			r.Missing = append(r.Missing, fmt.Sprintf("shard %d of %d", i, first.Shard.Count))
		}
	}
	return r
}
