package record

import (
	"bytes"
	"cmp"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/workspace/foreign"
	"github.com/securebench/sbench/workspace/foreign/lines"
)

// Trust says what the records in a directory must prove before they are used. The
// zero Trust requires a seal but no signature.
type Trust struct {
	Key ed25519.PublicKey // must have signed the seal; nil requires no signature
	// AcceptUnsigned accepts records that lack the required seal or signature; the next
	// seal states how many. Damaged records are never accepted.
	AcceptUnsigned bool
	// Resume accepts a run that was interrupted and so has no seal. A signed run is accepted
	// only with its Key, since its signature would otherwise be lost.
	Resume bool
}

// Read calls each with every record in dir, without locking it, and returns the manifest and the seal that covers the
// records, without a time. After an error, such as [ErrDamaged] or [ErrUnsigned], the caller must discard what each was
// given.
func Read(dir string, t Trust, each func(Record) error) (Manifest, Seal, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return Manifest{}, Seal{}, err
	}
	defer func() { _ = root.Close() }()
	var c chain
	err = c.read(root, t, each)
	return c.manifest, c.seal(), err
}

// chain is what was read from a directory, from the manifest to the seal.
type chain struct {
	manifest  Manifest
	findings  []Finding
	faults    int // findings that are no notes
	records   int
	last      string // digest of the last line, or of the manifest
	end, torn int64  // bytes of the complete lines, and of an incomplete last one
	sealed    bool   // the seal covers the last line, and a session's end wrote it
	signature bool   // there is a signature, by whatever key
	unsigned  error  // why a required signature is missing, or why a signature does not fit
	accepted  int    // see Seal.AcceptedUnsigned
	planned   int    // see Seal.Planned
	at        time.Time
}

func (c *chain) seal() Seal {
	return Seal{RunID: c.manifest.RunID, Records: c.records, Last: c.last, AcceptedUnsigned: c.accepted, Planned: max(c.manifest.Planned, c.planned)}
}

// maxFindings bounds the faults that are kept, and the notes: somebody else's run can have a fault in each
// byte. The reading of a file ends with the last fault that is kept.
const maxFindings = 1000

var errEnough = errors.New("too many findings")

// enough returns an error if no more faults are kept.
func (c *chain) enough() error {
	if c.faults < maxFindings {
		return nil
	}
	return errEnough
}

func (c *chain) wrong(file string, line int, format string, args ...any) {
	if c.enough() != nil {
		return
	}
	message := fmt.Sprintf(format, args...)
	if c.faults++; c.enough() != nil {
		message += "; what comes after this was not looked at"
	}
	c.findings = append(c.findings, Finding{File: file, Line: line, Message: message})
}

func (c *chain) note(file string, format string, args ...any) {
	if len(c.findings)-c.faults < maxFindings {
		c.findings = append(c.findings, Finding{File: file, Message: fmt.Sprintf(format, args...), Note: true})
	}
}

// read follows the chain, and returns an error if it must not be used under t.
func (c *chain) read(root *os.Root, t Trust, each func(Record) error) error {
	if err := c.follow(root, t.Key, func(_ int, r Record) error { return each(r) }); err != nil {
		return err
	}
	return c.checkTrust(t)
}

// follow reads the chain from the manifest to the signature, and notes what is wrong as findings. It calls each
// for every line, even a damaged one, with the fields that could be decoded.
func (c *chain) follow(root *os.Root, key ed25519.PublicKey, each func(n int, r Record) error) error {
	manifest, err := foreign.Read(root, ManifestFile, MaxSmall)
	if err != nil {
		return err
	}
	if err := foreign.Decode(manifest, &c.manifest, MaxManifest); err != nil {
		c.wrong(ManifestFile, 0, "is no run's manifest: %v", err)
	}
	seal, err := c.readSeal(root, key)
	if err != nil {
		return err
	}
	f, err := foreign.Open(root, RecordsFile, maxLines)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	c.last = Digest(manifest)
	shards := shardChains{rest: c.manifest.Merged}
	fits := seal == nil || seal.Records == 0 && seal.Last == c.last
	c.torn, err = eachLine(f, func(n int, line []byte) error {
		r, err := check(line, c.last)
		if err != nil {
			c.wrong(RecordsFile, n, "%v", err)
		} else if err := shards.take(line); err != nil {
			c.wrong(RecordsFile, n, "%v", err)
		}
		c.records, c.last, c.end = n, r.Digest, c.end+int64(len(line))+1
		fits = fits || n == seal.Records && r.Digest == seal.Last
		return errors.Join(each(n, r), c.enough())
	})
	if errors.Is(err, errEnough) {
		return nil
	}
	if missing := shards.end(); missing != nil && err == nil {
		c.wrong(RecordsFile, 0, "%v", missing)
	}
	switch {
	case seal == nil:
	case seal.Records > c.records:
		c.wrong(RecordsFile, c.records, "ends here, but the seal covers %d records: restore the whole file", seal.Records)
	case !fits:
		c.wrong(SealFile, 0, "does not fit the chain at record %d", seal.Records)
	case seal.Records < c.records:
		c.note(SealFile, "the run went on after it, by %d records, and was interrupted: these are not sealed, and it is unknown whether more are missing", c.records-seal.Records)
		if key != nil && c.unsigned == nil {
			c.unsigned = fmt.Errorf("it covers the first %d of %d records", seal.Records, c.records)
		}
	case seal.Open:
		c.note(SealFile, "the session that began with it goes on, or was killed")
	default:
		c.sealed = true
	}
	return err
}

// readSeal reads the seal, nil if it is missing or invalid, and its signature. Faults become findings.
func (c *chain) readSeal(root *os.Root, key ed25519.PublicKey) (*Seal, error) {
	signed, err := foreign.Read(root, SignatureFile, MaxSmall)
	if c.signature = err == nil; err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	if !c.signature && key != nil {
		c.unsigned = errors.New("it is missing: a run is signed when it begins, and when it ends")
	}
	data, err := foreign.Read(root, SealFile, MaxSmall)
	switch {
	case errors.Is(err, fs.ErrNotExist) && c.signature:
		c.wrong(SealFile, 0, "is missing, and %s is there", SignatureFile)
		return nil, nil
	case errors.Is(err, fs.ErrNotExist):
		c.note(SealFile, "is missing: the run was interrupted, and it is unknown whether records at its end are missing")
		return nil, nil
	case err != nil:
		return nil, err
	}
	if c.signature {
		c.unsigned = checkSignature(signed, data, key)
	}
	seal, err := decodeSeal(data)
	if err != nil {
		c.wrong(SealFile, 0, "%v", err)
		return nil, nil
	}
	c.planned, c.at = seal.Planned, seal.At
	if c.accepted = seal.AcceptedUnsigned; c.accepted > 0 {
		c.note(SealFile, "it is not known who wrote the first %d records: they were accepted unsigned", c.accepted)
	}
	return &seal, nil
}

// damage returns an error if something is wrong with what was read.
func (c *chain) damage() error {
	if i := slices.IndexFunc(c.findings, func(f Finding) bool { return !f.Note }); i >= 0 {
		return fmt.Errorf("%w: %s", ErrDamaged, c.findings[i])
	}
	return nil
}

// checkTrust returns an error if the records must not be used under t. If only t.AcceptUnsigned
// permits them, it counts them as accepted.
func (c *chain) checkTrust(t Trust) error {
	if err := c.damage(); err != nil {
		return err
	}
	var why error
	switch {
	case c.unsigned != nil:
		why = fmt.Errorf("%s: %w", SignatureFile, c.unsigned)
	case c.signature && t.Key == nil && t.Resume:
		why = fmt.Errorf("%s would be lost: sign with its key again", SignatureFile)
	case !c.sealed && !t.Resume:
		why = errors.New("there is no seal at their end: the run is not over, or was interrupted")
	default:
		return nil
	}
	if !t.AcceptUnsigned {
		return fmt.Errorf("%w: %w", ErrUnsigned, why)
	}
	c.accepted = c.records
	return nil
}

func (s Seal) encode() ([]byte, error) {
	s.Digest = ""
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	s.Digest = Digest(body)
	return indented(s)
}

func decodeSeal(data []byte) (Seal, error) {
	var s Seal
	if err := foreign.Decode(data, &s, maxValues); err != nil {
		return s, err
	}
	if again, err := s.encode(); err != nil || !bytes.Equal(again, data) {
		return s, errors.New("its bytes are not what its digest says")
	}
	return s, nil
}

// OpenFile opens a regular file in a run's directory for writing, with mode 0644 if flags create it. It follows
// no symbolic link and opens no pipe or device: the directory may come from somebody else.
func OpenFile(root *os.Root, name string, flags int) (*os.File, error) {
	irregular := fmt.Errorf("%s is no regular file", name)
	if info, err := root.Lstat(name); err == nil && !info.Mode().IsRegular() {
		return nil, irregular
	}
	f, err := root.OpenFile(name, flags|unix.O_NONBLOCK, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if named, namedErr := root.Lstat(name); err != nil || namedErr != nil || !info.Mode().IsRegular() || !os.SameFile(info, named) { // replaced meanwhile
		return nil, errors.Join(irregular, err, namedErr, f.Close())
	}
	return f, nil
}

// Bounds, in bytes.
const (
	MaxSmall = 16 << 20      // of a file that is read into memory as a whole
	maxLine  = 256 << 20     // of a line: a candidate has at most 16 MiB, and JSON takes up to six bytes for one
	maxLines = math.MaxInt64 // of a file that is read line by line
)

// The most JSON values in what is decoded.
const (
	maxValues   = 1 << 19 // of a record, which has the public resources of its task
	MaxManifest = 1 << 21 // of a manifest, which lists the attempts of a shard
)

// CheckResources returns an error if a task has more resources than its records have room for: half of their values.
func CheckResources(all []compiler.ResourceSummary) error {
	data, err := json.Marshal(all)
	if n := foreign.Values(data); err == nil && n > maxValues/2 {
		err = fmt.Errorf("the task's resources have %d JSON values, and a record has room for %d", n, maxValues/2)
	}
	return err
}

// Decode decodes a line of the records that somebody else may have written.
func Decode(line []byte) (r Record, err error) {
	err = foreign.Decode(line, &r, maxValues)
	return r, err
}

// eachLine calls each with every line of r, numbered from 1 and valid only during the call. A last line without
// a newline is skipped; torn is its length.
func eachLine(r io.Reader, each func(n int, line []byte) error) (torn int64, err error) {
	in := lines.NewReader(r, 0, maxLine)
	for n := 1; ; n++ {
		l, err := in.Next()
		switch {
		case err == io.EOF:
			return 0, nil
		case err != nil:
			return 0, fmt.Errorf("line %d: %w", n, err)
		case !l.Whole:
			return l.Size, nil
		}
		if err := each(n, l.Text); err != nil {
			return 0, err
		}
	}
}

// check decodes a line, and compares it with its own digest and with the digest of the line before.
// Even with an error, it returns the fields that could be decoded.
func check(line []byte, previous string) (Record, error) {
	r, err := Decode(line)
	if err != nil {
		return r, fmt.Errorf("no record: %w", err)
	}
	const tail = len(`""}`) + len(digestName) + hexDigits
	if len(line) < tail {
		return r, errors.New("no digest")
	}
	body := line[:len(line)-tail]
	switch want := Digest(body); {
	case string(line[len(body):]) != fmt.Sprintf("%q}", want):
		return r, errors.New("its bytes are not what its digest says")
	case r.Previous != previous:
		return r, errors.New("it does not follow what is before it: a line was removed, added or moved")
	case !r.VerificationStatus.Valid():
		return r, fmt.Errorf("status %q", r.VerificationStatus)
	}
	return r, nil
}

// unlink returns a line without the fields that link it to the line before it.
func unlink(line []byte) ([]byte, error) {
	const length = len(`,"previous":""`) + len(digestName) + hexDigits + len(`,"digest":""}`) + len(digestName) + hexDigits
	if len(line) < length || !bytes.HasPrefix(line[len(line)-length:], []byte(`,"previous":"`+digestName)) {
		return nil, errors.New("its end is no link of a chain")
	}
	return line[:len(line)-length], nil
}

// link returns a line that follows previous in a chain, without a newline, and its digest.
func link(head []byte, previous string) (line []byte, digest string) {
	line = fmt.Appendf(slices.Clip(head), `,"previous":%q,"digest":`, previous)
	digest = Digest(line)
	return fmt.Appendf(line, "%q}", digest), digest
}

// shardChains compares the records of a merged run with the chains of its shards before the merge.
type shardChains struct {
	rest []Merged // the shard that is being compared, and those after it
	seen int      // records of the first of rest
	last string   // digest of the last of these records; "" before the first
}

// take compares the next line of the merged run.
func (p *shardChains) take(line []byte) error {
	if err := p.finish(); err != nil || len(p.rest) == 0 {
		return err
	}
	head, err := unlink(line)
	if err != nil {
		return err
	}
	_, p.last = link(head, cmp.Or(p.last, p.rest[0].Manifest))
	p.seen++
	return nil
}

// finish goes on to the next shard that has more records.
func (p *shardChains) finish() error {
	for len(p.rest) > 0 && p.seen == p.rest[0].Records {
		part, last := p.rest[0], cmp.Or(p.last, p.rest[0].Manifest)
		p.rest, p.seen, p.last = p.rest[1:], 0, ""
		if last != part.Last {
			return fmt.Errorf("the records of shard %d, which end before this line, are not those that were merged", part.Index)
		}
	}
	return nil
}

// end returns an error if records of a shard are missing, or are not those that were merged.
func (p *shardChains) end() error {
	if err := p.finish(); err != nil || len(p.rest) == 0 {
		return err
	}
	return fmt.Errorf("ends within the records of shard %d: there were %d", p.rest[0].Index, p.rest[0].Records)
}
