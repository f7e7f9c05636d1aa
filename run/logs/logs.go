// Package logs keeps what sbench logs about the attempts of a run: the log of the network, which all attempts
// share, and for each try its files, what its verifier printed, and the specifications of its sandboxes. No text
// that it writes has a secret of the run.
package logs

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/secrets"
	"github.com/securebench/sbench/workspace"
)

// A Run is the logs of a run.
type Run struct {
	Before record.Logged // by earlier sessions

	out     *os.Root // the run's directory
	secrets secrets.Redactor

	mu     sync.Mutex
	egress *os.File // nil if nothing may leave the sandboxes
}

// Open returns the logs of the run in the directory out. If anything may leave the sandboxes, it opens the log of
// the network, and removes a line that a crash left unfinished. The caller closes the logs, and then out.
func Open(out *os.Root, secrets secrets.Redactor, networked bool) (*Run, error) {
	before, err := record.ReadLogged(out)
	r := &Run{Before: before, out: out, secrets: secrets}
	if err != nil || !networked {
		return r, err
	}
	if r.egress, err = record.OpenFile(out, record.EgressFile, os.O_CREATE|os.O_APPEND|os.O_RDWR); err != nil {
		return nil, err
	}
	if err := r.egress.Truncate(before.End); err != nil {
		return nil, errors.Join(err, r.egress.Close())
	}
	return r, nil
}

// append writes a whole line or, with an error, nothing.
func (r *Run) append(line []byte) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return record.AppendLine(r.egress, line, false)
}

// Close closes the log of the network.
func (r *Run) Close() error {
	if r.egress == nil {
		return nil
	}
	return errors.Join(r.egress.Sync(), r.egress.Close())
}

// An Attempt is what is logged about one try of an attempt.
type Attempt struct {
	Step string // the directory of a task's step in the try's directory; "" for none

	run *Run
	dir string // of the try, relative to the run's directory
	try int

	mu      sync.Mutex
	lines   hash.Hash         // of the egress entries; nil for none
	private record.Private    // what verifiers printed and left
	specs   map[string]string // digests of OCI specifications by sandbox name
	logs    []record.Log
}

// Attempt returns an empty log of a try.
func (r *Run) Attempt(task string, attempt, try int) *Attempt {
	return &Attempt{run: r, dir: record.LogDir(task, attempt, try), try: try, specs: map[string]string{}}
}

// Write appends one line to the log of the network.
func (l *Attempt) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.run.append(p); err != nil {
		return 0, err
	}
	if l.lines == nil {
		l.lines = sha256.New()
	}
	return l.lines.Write(p)
}

// Proxy returns the log for the proxy of the harness's sandbox; nil if nothing may leave the sandboxes.
func (l *Attempt) Proxy() *proxy.Log {
	if l.run.egress == nil {
		return nil
	}
	return l.proxyLog(l)
}

func (l *Attempt) proxyLog(to io.Writer) *proxy.Log {
	log := proxy.NewLog(to)
	log.Try, log.Redact = l.try, l.run.secrets.Text
	return log
}

// AddSpec notes the digest of the specification of a sandbox.
func (l *Attempt) AddSpec(sandbox, digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if digest != "" {
		l.specs[path.Join(l.Step, sandbox)] = digest
	}
}

// Fill moves long outputs of the try's record to log files, and adds the logs, the digest of the try's part of
// the log of the network, and the specifications to the record.
func (l *Attempt) Fill(r *record.Record) error {
	err := l.moveLongOutputs(r)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines != nil {
		r.EgressDigest = workspace.DigestOf(l.lines)
	}
	r.Logs = append(r.Logs, l.logs...)
	r.Provenance.Specs = l.specs
	return err
}

// A File is a log that is being written. Each Write is redacted on its own, so a caller
// must not split a text that may contain a secret.
type File struct {
	record.Log
	of   *Attempt
	file *os.File
	hash hash.Hash
}

// maxLog bounds one log file, in bytes.
const maxLog = 256 << 20

// Create creates a log in the directory of the try or its step. The caller closes it.
func (l *Attempt) Create(name string) (*File, error) {
	dir := filepath.Join(l.dir, l.Step)
	if err := l.run.out.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	f, err := record.OpenFile(l.run.out, path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	return &File{record.Log{Path: path}, l, f, sha256.New()}, err
}

// Write implements io.Writer.
func (f *File) Write(p []byte) (int, error) {
	text := f.of.run.secrets.Text(string(p))
	if f.Bytes+int64(len(text)) > maxLog {
		f.Cut += int64(len(text))
		return len(p), nil
	}
	n, err := f.file.WriteString(text)
	f.Bytes += int64(n)
	_, _ = f.hash.Write([]byte(text[:n])) // a hash never returns an error
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close closes the log, which may be nil, and adds it to the logs of the try.
func (f *File) Close() error {
	if f == nil {
		return nil
	}
	f.Digest = workspace.DigestOf(f.hash)
	f.of.mu.Lock()
	f.of.logs = append(f.of.logs, f.Log)
	f.of.mu.Unlock()
	return f.file.Close()
}

// Text writes a whole log.
func (l *Attempt) Text(name, text string) error {
	f, err := l.Create(name)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.Close())
}

const (
	inlineBytes = 64 << 10 // the longest output that a record holds in full
	edgeBytes   = 16 << 10 // what a record holds from each end of a longer output
)

// moveLongOutputs moves long outputs of a record to log files.
func (l *Attempt) moveLongOutputs(r *record.Record) error {
	var errs []error
	for _, output := range []struct {
		name string
		text *string
	}{
		{"harness-stdout.txt", &r.ProducerStdout}, {"harness-stderr.txt", &r.ProducerStderr},
	} {
		name, text := output.name, output.text
		if len(*text) <= inlineBytes {
			continue
		}
		errs = append(errs, l.Text(name, *text))
		head, tail := (*text)[:edgeBytes], (*text)[len(*text)-edgeBytes:]
		*text = strings.ToValidUTF8(fmt.Sprintf("%s\n[... %d bytes, see %s ...]\n%s", head, len(*text)-2*edgeBytes, path.Join(l.dir, name), tail), "\uFFFD")
	}
	return errors.Join(errs...)
}
