package record

import (
	"bufio"
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
	"sync"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/filelock"
	"github.com/securebench/sbench/workspace/foreign"
)

// Errors that callers distinguish with errors.Is.
var (
	// ErrExists means that the directory already holds records.
	ErrExists = errors.New("there are records already")
	// ErrInUse means that another process is writing records to the directory.
	ErrInUse = errors.New("another process works in this directory")
	// ErrDamaged means that the records are not what was written.
	ErrDamaged = errors.New("records are damaged")
	// ErrUnsigned means that the records lack the seal or signature that the caller requires.
	ErrUnsigned = errors.New("records are not sealed and signed")
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

// A Ledger appends records to a run's directory, which it locks against other processes. Each line contains the
// digest of the line before it, the first line the digest of run.json, and ends with a digest of itself. Two
// goroutines must not use a Ledger at once, except to call Append.
type Ledger struct {
	root *os.Root
	lock *os.File

	mu   sync.Mutex // guards what follows in Append: records are linked and written one after another
	file *os.File
	seal Seal // of what is written
}

// Create begins a chain in dir, which it makes accessible only to its owner. If dir already holds records,
// nothing changes and the error is [ErrExists]. The caller closes the ledger.
func Create(dir string, m Manifest) (*Ledger, error) {
	l, err := openNew(dir)
	if err != nil {
		return nil, err
	}
	if err := l.create(m); err != nil {
		return nil, errors.Join(err, l.Close())
	}
	return l, nil
}

func (l *Ledger) create(m Manifest) error {
	for _, name := range []string{RecordsFile, ManifestFile} {
		_, err := l.root.Lstat(name)
		if err == nil {
			err = fmt.Errorf("%s: %w", filepath.Join(l.root.Name(), name), ErrExists)
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	data, err := indented(m)
	if err != nil {
		return err
	}
	if foreign.Values(data) > MaxManifest || len(data) > MaxSmall {
		return fmt.Errorf("%s would be too big to be read again: it lists the attempts of the shard; make more shards", ManifestFile)
	}
	if err := l.writeWhole(ManifestFile, data); err != nil {
		return err
	}
	l.seal = Seal{RunID: m.RunID, Last: Digest(data), Planned: m.Planned}
	l.file, err = OpenFile(l.root, RecordsFile, os.O_CREATE|os.O_EXCL|os.O_APPEND|os.O_WRONLY)
	return err
}

// indented returns JSON for files that people read.
func indented(v any) ([]byte, error) {
	data, err := json.MarshalIndent(v, "", "  ")
	return append(data, '\n'), err
}

// openNew is open for a directory that may be missing.
func openNew(dir string) (*Ledger, error) {
	dir = filepath.Clean(dir) // with a trailing slash, filepath.Dir would return dir itself
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) { // open sees whether it is a directory
		return nil, err
	}
	return open(dir)
}

// open opens and locks the directory dir.
func open(dir string) (*Ledger, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := OpenFile(root, lockFile, os.O_CREATE|os.O_RDWR)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", dir, err), root.Close())
	}
	if err := filelock.Try(f, filelock.Exclusive); err != nil {
		if errors.Is(err, filelock.ErrHeld) {
			err = fmt.Errorf("%s: %w", dir, ErrInUse)
		}
		return nil, errors.Join(err, f.Close(), root.Close())
	}
	return &Ledger{root: root, lock: f}, nil
}

// writeWhole writes a file atomically and syncs it to disk.
func (l *Ledger) writeWhole(name string, data []byte) error {
	return l.writeStream(name, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	})
}

// writeStream is writeWhole for data that the function write writes.
func (l *Ledger) writeStream(name string, write func(io.Writer) error) error {
	fresh := ".new-" + name
	if err := l.root.RemoveAll(fresh); err != nil { // left by a killed process
		return err
	}
	f, err := OpenFile(l.root, fresh, os.O_CREATE|os.O_EXCL|os.O_WRONLY)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err = write(w); err == nil {
		err = w.Flush()
	}
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = l.root.Rename(fresh, name)
	}
	if err != nil {
		return errors.Join(err, l.root.RemoveAll(fresh))
	}
	dir, err := l.root.Open(".")
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// Resume calls each with every record in dir, removes an incomplete last line of torn bytes, and opens the
// chain for appending. After an error, such as [ErrDamaged] or [ErrUnsigned], the directory is unchanged, and
// the caller must discard what each was given. The caller closes the ledger.
func Resume(dir string, t Trust, each func(Record) error) (l *Ledger, m Manifest, torn int64, err error) {
	if _, err := os.Lstat(filepath.Join(dir, ManifestFile)); err != nil {
		return nil, m, 0, err
	}
	if l, err = open(dir); err != nil {
		return nil, m, 0, err
	}
	c, err := l.resume(t, each)
	if err != nil {
		return nil, m, 0, errors.Join(err, l.Close())
	}
	return l, c.manifest, c.torn, nil
}

func (l *Ledger) resume(t Trust, each func(Record) error) (c chain, err error) {
	if l.file, err = OpenFile(l.root, RecordsFile, os.O_CREATE|os.O_APPEND|os.O_RDWR); err != nil {
		return c, err
	}
	t.Resume = true
	if err = c.read(l.root, t, each); err != nil {
		return c, fmt.Errorf("%s: %w", l.root.Name(), err)
	}
	l.seal = c.seal()
	if c.torn > 0 {
		err = errors.Join(l.file.Truncate(c.end), l.file.Sync())
	}
	return c, err
}

// Append sets the fields of r that link it into the chain, writes it, and returns it.
// When it returns without an error, the line is on disk, and so are the files that it names.
func (l *Ledger) Append(r Record) (Record, error) {
	if !r.VerificationStatus.Valid() {
		return r, fmt.Errorf("record of task %q: status %q is invalid", r.TaskID, r.VerificationStatus)
	}
	r.Previous, r.Digest = "", ""
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false) // "<redacted>" stays readable
	if err := enc.Encode(r); err != nil {
		return r, fmt.Errorf("record of task %q: %w", r.TaskID, err)
	}
	head, ok := bytes.CutSuffix(b.Bytes(), []byte(`,"previous":"","digest":""}`+"\n")) // the last fields
	if !ok {
		return r, fmt.Errorf("record of task %q: does not end with its digest", r.TaskID)
	}
	if n := foreign.Values(head); n > maxValues {
		return r, fmt.Errorf("record of task %q: has %d JSON values, more than %d", r.TaskID, n, maxValues)
	}
	if r.CandidateWorkspace != nil || len(r.Logs) > 0 || r.EgressDigest+r.PrivateDigest != "" {
		if err := l.sync(); err != nil { // not under mu: calls of Append do not wait for each other's files
			return r, fmt.Errorf("record of task %q: %w", r.TaskID, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	line, digest := link(head, l.seal.Last)
	r.Previous, r.Digest = l.seal.Last, digest
	if err := AppendLine(l.file, append(line, '\n'), true); err != nil {
		return r, fmt.Errorf("record of task %q: %w", r.TaskID, err)
	}
	l.seal.Last, l.seal.Records = r.Digest, l.seal.Records+1
	return r, nil
}

// sync syncs the files that records name: the whole file system, since a workspace may have many files.
func (l *Ledger) sync() error {
	if err := unix.Syncfs(int(l.lock.Fd())); err != nil {
		return fmt.Errorf("sync the files of the run: %w", err)
	}
	return nil
}

// AppendLine appends a whole line to f, and syncs it if sync is set. If that fails, for instance on a full disk, it removes
// the part of the line that was written.
func AppendLine(f *os.File, line []byte, sync bool) error {
	end, err := f.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err = f.Write(line); err == nil && sync { // one call: a crash can only leave the line incomplete
		err = f.Sync()
	}
	if err != nil {
		return errors.Join(err, f.Truncate(end))
	}
	return nil
}

// Seal writes a seal for the present end of the chain and, unless key is nil, signs it. AcceptedUnsigned and
// Planned of an earlier seal stay if they are higher.
func (l *Ledger) Seal(s Seal, key *Key) error {
	l.seal.At, l.seal.Open = s.At, s.Open
	l.seal.Planned, l.seal.AcceptedUnsigned = max(s.Planned, l.seal.Planned), max(s.AcceptedUnsigned, l.seal.AcceptedUnsigned)
	data, err := l.seal.encode()
	if err != nil {
		return err
	}
	if err := l.root.Remove(SignatureFile); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := l.writeWhole(SealFile, data); err != nil || key == nil {
		return err
	}
	envelope, err := key.sign(data)
	if err != nil {
		return err
	}
	return l.writeWhole(SignatureFile, envelope)
}

// Root returns the run's directory. It is closed with the ledger.
func (l *Ledger) Root() *os.Root { return l.root }

// Close releases the lock on the directory.
func (l *Ledger) Close() error {
	var err error
	if l.file != nil {
		err = l.file.Close()
	}
	return errors.Join(err, l.lock.Close(), l.root.Close())
}
