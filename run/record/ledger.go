package record

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/filelock"
)

// Errors that callers tell apart.
var (
	// ErrExists: the folder holds records already.
	ErrExists = errors.New("there are records already")
	// ErrInUse: another process works in the folder.
	ErrInUse = errors.New("another process works in this folder")
	// ErrDamaged: the records are not what was written.
	ErrDamaged = errors.New("records are damaged")
)

const (
	lockFile   = ".lock"
	digestName = "sha256:"
	hexDigits  = 2 * sha256.Size
)

// Digest returns "sha256:" and the hexadecimal digest of data.
func Digest(data []byte) string {
	sum := sha256.Sum256(data)
	return digestName + hex.EncodeToString(sum[:])
}

// A Ledger appends to the records of a run's folder, which no other process can
// do meanwhile. Each line ends with the digest of itself up to there, and holds
// that of the line before it; the first that of run.json. It is used by one
// goroutine at a time.
type Ledger struct {
	dir   string
	lock  *os.File
	file  *os.File
	runID string
	last  string
	count int
}

// Create begins a chain in a folder. If it is missing it is made, and nobody but
// its owner can look into it; one that is there keeps its mode. A folder with
// records is ErrExists, and stays as it is.
func Create(dir string, m Manifest) (*Ledger, error) {
	if err := makeFolder(dir); err != nil {
		return nil, err
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, err
	}
	l := &Ledger{dir: dir, lock: lock, runID: m.RunID}
	if err := l.create(m); err != nil {
		return nil, errors.Join(err, l.release())
	}
	return l, nil
}

func makeFolder(dir string) error {
	dir = filepath.Clean(dir) // a slash at its end would name a folder in it
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil // that it is a folder shows with the first file
}

func (l *Ledger) create(m Manifest) error {
	for _, name := range []string{RecordsFile, ManifestFile} {
		if _, err := os.Lstat(filepath.Join(l.dir, name)); !errors.Is(err, fs.ErrNotExist) {
			if err == nil {
				err = fmt.Errorf("%s: %w", filepath.Join(l.dir, name), ErrExists)
			}
			return err
		}
	}
	data, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	data = append(data, '\n')
	if err := writeWhole(l.dir, ManifestFile, data); err != nil {
		return err
	}
	l.last = Digest(data)
	l.file, err = os.OpenFile(filepath.Join(l.dir, RecordsFile), os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY, 0o644)
	return err
}

func lockFolder(dir string) (*os.File, error) {
	f, err := openRecords(filepath.Join(dir, lockFile), os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = fmt.Errorf("%s: %w", dir, ErrInUse)
		}
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// writeWhole makes a file appear with all of its content, or not at all.
func writeWhole(dir, name string, data []byte) error {
	f, err := os.CreateTemp(dir, ".new-*")
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	err = errors.Join(err, f.Chmod(0o644), f.Sync(), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), filepath.Join(dir, name))
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return syncFolder(dir)
}

func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// Resume opens the chain of a folder, hands every record to each, and goes on at
// its end. What a crash left of a last line is cut off; torn is how many bytes
// that were. Lines that are not what was written are ErrDamaged, and so is a chain that
// does not reach what its seal speaks of: it is left as it is.
func Resume(dir string, each func(Record) error) (l *Ledger, m Manifest, torn int64, err error) {
	if _, err := os.Stat(filepath.Join(dir, ManifestFile)); err != nil {
		return nil, m, 0, err
	}
	lock, err := lockFolder(dir)
	if err != nil {
		return nil, m, 0, err
	}
	l = &Ledger{dir: dir, lock: lock}
	if m, torn, err = l.resume(each); err != nil {
		return nil, m, 0, errors.Join(err, l.release())
	}
	return l, m, torn, nil
}

func (l *Ledger) resume(each func(Record) error) (m Manifest, torn int64, err error) {
	data, err := os.ReadFile(filepath.Join(l.dir, ManifestFile))
	if err != nil {
		return m, 0, err
	}
	if err := json.Unmarshal(data, &m); err != nil {
		return m, 0, fmt.Errorf("%s: %w: %w", ManifestFile, ErrDamaged, err)
	}
	l.last, l.runID = Digest(data), m.RunID
	name := filepath.Join(l.dir, RecordsFile)
	if l.file, err = openRecords(name, os.O_CREATE|os.O_APPEND|os.O_RDWR); err != nil {
		return m, 0, err
	}
	seal, err := l.readSeal()
	if err != nil {
		return m, 0, err
	}
	end, sealed := int64(0), seal == nil || seal.Records == 0 && seal.Last == l.last
	torn, err = Lines(l.file, func(n int, line []byte) error {
		rec, err := Check(line, l.last)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		l.last, l.count, end = rec.Digest, n, end+int64(len(line))+1
		sealed = sealed || n == seal.Records && rec.Digest == seal.Last
		return each(rec)
	})
	if err == nil && !sealed {
		err = fmt.Errorf("%s: %w: it holds %d records, and %s speaks of %d that end with another digest: bring the whole file back", name, ErrDamaged, l.count, SealFile, seal.Records)
	}
	if err == nil && torn > 0 {
		err = errors.Join(l.file.Truncate(end), l.file.Sync())
	}
	return m, torn, err
}

// readSeal returns the folder's seal, nil if it has none.
func (l *Ledger) readSeal() (*Seal, error) {
	name := filepath.Join(l.dir, SealFile)
	f, err := openRecords(name, os.O_RDONLY)
	if errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Lstat(filepath.Join(l.dir, SignatureFile)); err == nil {
			return nil, fmt.Errorf("%s: %w: it is missing, and %s is there", name, ErrDamaged, SignatureFile)
		}
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxSmall))
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	s, err := readSeal(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &s, nil
}

// openRecords opens a regular file. A pipe, which nobody may ever write to, would hold
// up the program for ever, and a link lead to a file of somebody else's.
func openRecords(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|unix.O_NONBLOCK|unix.O_NOFOLLOW, 0o644)
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%s is no regular file", name)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Append completes a record with its place in the chain and writes it: when it
// returns without an error, the line is on disk.
func (l *Ledger) Append(r Record) (Record, error) {
	if !r.VerificationStatus.Valid() {
		return r, fmt.Errorf("record of task %q: status %q is invalid", r.TaskID, r.VerificationStatus)
	}
	r.Previous, r.Digest = l.last, ""
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // "<redacted>" is to be found as it is
	if err := enc.Encode(r); err != nil {
		return r, fmt.Errorf("record of task %q: %w", r.TaskID, err)
	}
	body, ok := bytes.CutSuffix(b.Bytes(), []byte("\"\"}\n")) // Digest is the last field
	if !ok {
		return r, fmt.Errorf("record of task %q: does not end with its digest", r.TaskID)
	}
	r.Digest = Digest(body)
	line := fmt.Appendf(body, "%q}\n", r.Digest)
	if err := appendLine(l.file, line); err != nil {
		return r, fmt.Errorf("record of task %q: %w", r.TaskID, err)
	}
	l.last, l.count = r.Digest, l.count+1
	return r, nil
}

// appendLine writes a line to the end of a file and to disk. What a full disk took of it
// is taken back: a line is whole, or not there.
func appendLine(f *os.File, line []byte) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err = f.Write(line); err == nil { // one call: a crash may leave it torn, never mixed
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(end))
	}
	return nil
}

// Seal writes down where the chain ends. A key signs that; nil signs nothing, and
// removes the signature of an earlier seal.
func (l *Ledger) Seal(s Seal, key *Key) error {
	s.RunID, s.Records, s.Last = l.runID, l.count, l.last
	data, err := s.encode()
	if err != nil {
		return err
	}
	if err := os.Remove(filepath.Join(l.dir, SignatureFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := writeWhole(l.dir, SealFile, data); err != nil || key == nil {
		return err
	}
	envelope, err := key.sign(data)
	if err != nil {
		return err
	}
	return writeWhole(l.dir, SignatureFile, envelope)
}

// encode writes a seal with its own digest.
func (s Seal) encode() ([]byte, error) {
	s.Digest = ""
	body, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	s.Digest = Digest(body)
	data, err := json.MarshalIndent(s, "", "  ")
	return append(data, '\n'), err
}

func readSeal(data []byte) (Seal, error) {
	var s Seal
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if again, err := s.encode(); err != nil || !bytes.Equal(again, data) {
		return s, fmt.Errorf("%w: its bytes are not what its digest says", ErrDamaged)
	}
	return s, nil
}

// Close gives the folder free.
func (l *Ledger) Close() error { return l.release() }

func (l *Ledger) release() error {
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.lock.Close())
}

// Lines hands the lines of a file to each, without their ends, numbered from 1. A
// last line without an end is not one; torn is its length. The bytes are good until
// each returns.
func Lines(r io.Reader, each func(n int, line []byte) error) (torn int64, err error) {
	const chunk = 1 << 16
	var line []byte
	buffer := make([]byte, chunk)
	for n := 1; ; {
		count, err := r.Read(buffer)
		for rest := buffer[:count]; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				line = append(line, rest...)
				break
			}
			line = append(line, rest[:i]...)
			if err := each(n, line); err != nil {
				return 0, err
			}
			n, line, rest = n+1, line[:0], rest[i+1:]
		}
		if errors.Is(err, io.EOF) {
			return int64(len(line)), nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// Check reads a line, and compares it with its own digest and with that of the
// line before it. It returns the record also with an error, as far as it can be
// read.
func Check(line []byte, previous string) (Record, error) {
	var r Record
	if err := json.Unmarshal(line, &r); err != nil {
		return r, fmt.Errorf("%w: no record: %w", ErrDamaged, err)
	}
	const tail = len(`""}`) + len(digestName) + hexDigits
	if len(line) < tail {
		return r, fmt.Errorf("%w: no digest", ErrDamaged)
	}
	body := line[:len(line)-tail]
	switch want := Digest(body); {
	case string(line[len(body):]) != fmt.Sprintf("%q}", want):
		return r, fmt.Errorf("%w: its bytes are not what its digest says", ErrDamaged)
	case r.Previous != previous:
		return r, fmt.Errorf("%w: it does not follow what is before it: a line was removed, added or moved", ErrDamaged)
	case !r.VerificationStatus.Valid():
		return r, fmt.Errorf("%w: status %q", ErrDamaged, r.VerificationStatus)
	}
	return r, nil
}

// Read hands every record of a folder to each, without taking the folder. A last
// line that was not finished is left out. Lines that are not what was written are
// ErrDamaged.
func Read(dir string, each func(Record) error) error {
	manifest, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if err != nil {
		return err
	}
	name := filepath.Join(dir, RecordsFile)
	f, err := openRecords(name, os.O_RDONLY)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	last := Digest(manifest)
	_, err = Lines(f, func(n int, line []byte) error {
		rec, err := Check(line, last)
		if err != nil {
			return fmt.Errorf("%s: line %d: %w", name, n, err)
		}
		last = rec.Digest
		return each(rec)
	})
	return err
}
