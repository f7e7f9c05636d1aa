package run

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

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace"
)

// networked reports whether a harness or a checker of this run may reach anything, or the run has a judge.
func (c config) networked() bool {
	checkers := c.Tester.Verification.AllowedDomains
	return c.producer().Relay != nil || len(c.Egress.Domains) > 0 || c.Judge != nil || checkers != nil && len(*checkers) > 0
}

// egressFile is the run's egress log, shared by all attempts; nil if nothing may leave the sandboxes.
type egressFile struct {
	mu   sync.Mutex
	file *os.File
}

// openEgress opens the log, and ends a line that a crash left unfinished.
func (s *session) openEgress() (*egressFile, error) {
	if !s.cfg.networked() {
		return nil, nil
	}
	f, err := record.OpenFile(s.out, record.EgressFile, os.O_CREATE|os.O_APPEND|os.O_RDWR)
	if err != nil {
		return nil, err
	}
	e := &egressFile{file: f}
	size, err := f.Seek(0, io.SeekEnd)
	if err != nil || size == 0 {
		return e, err
	}
	last := make([]byte, 1)
	if _, err = f.ReadAt(last, size-1); err == nil && last[0] != '\n' {
		err = e.append([]byte(` {"kind":"malformed","verdict":"error","reason":"unfinished_line"}` + "\n"))
	}
	return e, err
}

// append writes a whole line or, with an error, nothing.
func (e *egressFile) append(line []byte) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	end, err := e.file.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	if _, err := e.file.Write(line); err != nil {
		return errors.Join(err, e.file.Truncate(end))
	}
	return nil
}

func (e *egressFile) close() error {
	if e == nil {
		return nil
	}
	return errors.Join(e.file.Sync(), e.file.Close())
}

// attemptLog is what sbench logs about one try of an attempt: its part of the egress log, the files in
// its log directory, and the specifications of its sandboxes.
type attemptLog struct {
	egress  *egressFile
	secrets redactor
	out     *os.Root // the run's directory
	dir     string   // relative to it

	step string // the directory in it of a task's step; "" for none

	mu      sync.Mutex
	lines   hash.Hash         // of the egress entries; nil for none
	private record.Private    // what verifiers printed and left
	specs   map[string]string // digests of OCI specifications by sandbox name
	logs    []record.Log
}

func (s *session) newLog(a attempt) *attemptLog {
	return &attemptLog{
		egress: s.egress, secrets: s.secrets, out: s.out,
		dir: record.LogDir(a.task.ID(), a.number, a.try), specs: map[string]string{},
	}
}

// Write appends one line to the egress log.
func (l *attemptLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.egress.append(p); err != nil {
		return 0, err
	}
	if l.lines == nil {
		l.lines = sha256.New()
	}
	return l.lines.Write(p)
}

// proxyLog returns the log for the proxy of a try; nil if nothing may leave the sandbox.
func (l *attemptLog) proxyLog(try int) *proxy.Log {
	if l.egress == nil {
		return nil
	}
	log := proxy.NewLog(l)
	log.Try, log.Redact = try, l.secrets.text
	return log
}

func (l *attemptLog) addSpec(sandbox, digest string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if digest != "" {
		l.specs[path.Join(l.step, sandbox)] = digest
	}
}

// fill adds the try's logs, egress digest and specifications to its record.
func (l *attemptLog) fill(r *record.Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lines != nil {
		r.EgressDigest = workspace.DigestOf(l.lines)
	}
	r.Logs = append(r.Logs, l.logs...)
	r.Provenance.Specs = l.specs
}

// logFile is a log that is being written. Each Write is redacted on its own, so a caller
// must not split a text that may contain a secret.
type logFile struct {
	record.Log
	of   *attemptLog
	file *os.File
	hash hash.Hash
}

// maxLog bounds one log file, in bytes.
const maxLog = 256 << 20

func (l *attemptLog) create(name string) (*logFile, error) {
	dir := filepath.Join(l.dir, l.step)
	if err := l.out.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, name)
	f, err := record.OpenFile(l.out, path, os.O_CREATE|os.O_TRUNC|os.O_WRONLY)
	return &logFile{record.Log{Path: path}, l, f, sha256.New()}, err
}

func (f *logFile) Write(p []byte) (int, error) {
	text := f.of.secrets.text(string(p))
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

func (f *logFile) close() error {
	if f == nil {
		return nil
	}
	f.Digest = workspace.DigestOf(f.hash)
	f.of.mu.Lock()
	f.of.logs = append(f.of.logs, f.Log)
	f.of.mu.Unlock()
	return errors.Join(f.file.Sync(), f.file.Close())
}

// writeText writes a whole log.
func (l *attemptLog) writeText(name, text string) error {
	f, err := l.create(name)
	if err != nil {
		return err
	}
	_, err = f.Write([]byte(text))
	return errors.Join(err, f.close())
}

const (
	inlineBytes = 64 << 10 // the longest output that a record holds in full
	edgeBytes   = 16 << 10 // what a record holds from each end of a longer output
)

// moveLongOutputs moves long outputs of a record to log files.
func (l *attemptLog) moveLongOutputs(r *record.Record) error {
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
		errs = append(errs, l.writeText(name, *text))
		head, tail := (*text)[:edgeBytes], (*text)[len(*text)-edgeBytes:]
		*text = strings.ToValidUTF8(fmt.Sprintf("%s\n[... %d bytes, see %s ...]\n%s", head, len(*text)-2*edgeBytes, path.Join(l.dir, name), tail), "\uFFFD")
	}
	return errors.Join(errs...)
}

// openTrace stores an agent's prompt and, if the agent is the tester's own, its descriptor. The
// request's events go to the attempt's trace and to the progress. The trace is nil unless the harness
// is an agent.
func (s *session) openTrace(a attempt, request *harness.Request) (*logFile, error) {
	producer := s.cfg.producer()
	if !producer.Prompted {
		return nil, nil
	}
	prompt, err := harness.Prompt(*request, producer.TaskFile)
	if err == nil {
		err = a.log.writeText("prompt.txt", prompt)
	}
	if err == nil && producer.Descriptor != nil {
		err = a.log.writeText(record.AgentFile, string(producer.Descriptor))
	}
	if err != nil {
		return nil, err
	}
	f, err := a.log.create(record.TraceFile)
	if err != nil {
		return nil, err
	}
	request.Trace = f
	request.OnStep = func(text string) { s.emitFor(a, Event{Kind: AgentOutput, Detail: a.log.secrets.text(text)}) }
	return f, nil
}
