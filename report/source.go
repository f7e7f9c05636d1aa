package report

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace/foreign"
	"github.com/securebench/sbench/workspace/foreign/lines"
)

const (
	maxName     = 4 << 10 // most bytes of a name in memory
	maxMessage  = 600     // most bytes of a message in memory
	maxProblems = 100     // problems in memory

	// The longest lines that are read, in bytes.
	maxRecord = 256 << 20 // as in record.Read
	maxEntry  = 1 << 20   // of the egress log

	maxTrace = 256 << 20 // bytes of an agent's trace, as sbench writes it
)

// ErrNoRun means that a directory does not hold a run.
var ErrNoRun = errors.New("not the directory of a run")

// A Source gives access to a run's directory. It must not be used by two goroutines at once.
type Source struct {
	Dir string // as given to [Open]
	// Private makes details include the private parts of the records, where they are there. They can hold
	// hidden tests.
	Private  bool
	Manifest record.Manifest // zero if there is none
	Planned  int             // attempts that were to be run in all; 0: unknown
	Attempts []Attempt       // in the order of their first tries
	Records  int             // lines that could be read
	Problems []Problem
	more     int // problems beyond maxProblems

	Spent    proxy.Usage // by all tries
	SpentUSD float64     // by all tries; 0 if unknown
	runID    string      // of the first record
	root     *os.Root
	egress   map[record.AttemptKey]*egressIndex // nil until it is needed
}

// An Attempt is a summary of an attempt: its last try, which counts, and a list of all tries.
type Attempt struct {
	Task, Benchmark, Family, Category string
	Number                            int // of the task's attempts, from 1
	Status                            record.Status
	Phase, Reason, Message            string // of a failure; "" for passed
	Tries                             []Try  // all, in the order of the records
	Retried                           bool   // an earlier try could not be measured

	Started, Ended            time.Time
	Producer, Verifier, Total float64      // seconds; 0 if unknown
	Tokens                    *proxy.Usage // nil if unknown
	Cost                      float64      // in US dollars; 0 if unknown
	PeakMemory                int64        // bytes; 0 if unknown
	Agent                     string       // name, version and model
	Isolation                 string       // of its sandboxes; "" if unknown
	Degraded                  []string     // limits that the host did not enforce
	Judge                     string       // the model that judged it; "" for none
	Assurance                 string       // how certain a pass is; "" unless the attempt passed
	Doubtful                  bool         // a pass with some wrong answers to blind tests
	Uncalibrated              bool         // no reference solution has calibrated its blind tests
	AfterTimeout              bool         // judged although its harness ended badly
	rows                      string       // digests of the row and the evaluation
}

// A Try is one line of the records.
type Try struct {
	Line    int           `json:"line"` // from 1
	Status  record.Status `json:"status"`
	Reason  string        `json:"reason"`
	Started string        `json:"started"` // UTC; "" if unknown
	Seconds float64       `json:"seconds"` // in total
	offset  int64         // in bytes, of the line
	size    int64         // in bytes, with the newline
}

// Open reads the records in a run's directory. Lines that are not records become Problems.
// The error wraps [ErrNoRun] if there is no file of records. The caller closes the Source.
func Open(ctx context.Context, dir string) (*Source, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoRun, err)
	}
	s := &Source{Dir: dir, root: root}
	if err := s.read(ctx); err != nil {
		return nil, errors.Join(err, root.Close())
	}
	return s, nil
}

// Close closes the run's directory.
func (s *Source) Close() error { return s.root.Close() }

func (s *Source) read(ctx context.Context) error {
	// A resumed run may have planned more attempts than its manifest says; its seal says how many.
	var seal record.Seal
	s.readFile(record.ManifestFile, &s.Manifest)
	s.readFile(record.SealFile, &seal)
	s.Planned = max(s.Manifest.Planned, seal.Planned)
	f, err := foreign.Open(s.root, record.RecordsFile, math.MaxInt64)
	if err != nil {
		return fmt.Errorf("%w: %s: %w", ErrNoRun, s.Dir, err)
	}
	defer func() { _ = f.Close() }()
	index := map[record.AttemptKey]int{}
	in := lines.NewReader(f, 0, maxRecord)
	for n := 1; ctx.Err() == nil; n++ {
		l, err := in.Next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, lines.ErrLong):
			s.problem(record.RecordsFile, n, err.Error())
		case err != nil:
			return fmt.Errorf("%s: %w", record.RecordsFile, err)
		default:
			s.addLine(index, n, l)
		}
	}
	return context.Cause(ctx)
}

func (s *Source) problem(file string, line int, message string) {
	if len(s.Problems) == maxProblems {
		s.more++
		return
	}
	s.Problems = append(s.Problems, Problem{Finding: record.Finding{File: file, Line: line, Message: message}})
}

// readFile decodes a file of the run, which may be missing.
func (s *Source) readFile(name string, into any) {
	data, err := foreign.Read(s.root, name, record.MaxSmall)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err == nil {
		err = foreign.Decode(data, into, record.MaxManifest)
	}
	if err != nil {
		s.problem(name, 0, err.Error())
	}
}

// addLine adds line n of the records: the next try of an attempt, or a problem.
func (s *Source) addLine(index map[record.AttemptKey]int, n int, l lines.Line) {
	if len(l.Text) == 0 && l.Whole {
		return
	}
	rec, err := decode(l.Text)
	if err != nil {
		message := "no record: " + err.Error()
		if !l.Whole {
			message = "the last line is not whole: the run was stopped while it wrote it, or is writing it now"
		}
		s.problem(record.RecordsFile, n, message)
		return
	}
	if s.Records++; s.Records == 1 {
		s.runID = rec.RunID
	}
	a := summarise(rec)
	s.SpentUSD += a.Cost
	if a.Tokens != nil {
		s.Spent = s.Spent.Add(*a.Tokens)
	}
	a.Tries = []Try{{Line: n, Status: a.Status, Reason: a.Reason, Started: stamp(a.Started), Seconds: a.Total, offset: l.Offset, size: l.Size}}
	key := record.AttemptKey{Task: a.Task, Number: a.Number}
	at, again := index[key]
	if !again {
		index[key] = len(s.Attempts)
		s.Attempts = append(s.Attempts, a)
		return
	}
	before := s.Attempts[at]
	a.Retried = before.Retried || before.Status == record.Error
	a.Tries = append(before.Tries, a.Tries...)
	s.Attempts[at] = a
}

// Require makes passes with a weaker assurance than required count as failures; "" requires nothing.
func (s *Source) Require(required verifiers.Assurance) {
	for i, a := range s.Attempts {
		if assurance := verifiers.Assurance(a.Assurance); a.Status == record.Passed && !record.Suffices(assurance, required) {
			a.Status, a.Phase, a.Reason, a.Message = record.Failed, "verifier", record.TooWeak, fmt.Sprintf("it passed, but the pass is %s, and %s is required", assurance, required)
			s.Attempts[i] = a
		}
	}
}

// decode decodes one record. It fails if the record cannot be counted.
func decode(text []byte) (rec record.Record, err error) {
	rec, err = record.Decode(text)
	switch {
	case err != nil:
	case rec.TaskID == "":
		err = errors.New("it has no task_id")
	case !rec.VerificationStatus.Valid():
		err = errors.New("its verification_status is unknown")
	}
	return rec, err
}

// summarise returns the part of a record that stays in memory.
func summarise(rec record.Record) Attempt {
	a := Attempt{
		Task: rec.TaskID, Benchmark: rec.BenchmarkID, Family: rec.TaskType, Category: rec.Category,
		Number: max(1, rec.Attempt), Status: rec.VerificationStatus, Phase: rec.FailurePhase, Reason: rec.FailureReason,
		Started: rec.StartedAt, Ended: rec.EndedAt, Producer: amount(rec.Times.Producer), Verifier: amount(rec.Times.Verifier),
		Isolation: string(rec.Provenance.Policy.Isolation), Degraded: slices.Concat(rec.Degraded, rec.Provenance.Policy.Degraded), rows: rec.Provenance.Row + rec.Provenance.Evaluation,
	}
	if a.Status == record.Passed {
		a.Phase, a.Reason = "", ""
	} else if t := cutText(rec.FailureMessage, maxMessage); t.Cut > 0 {
		a.Message = t.Head + " … " + t.Tail
	} else {
		a.Message = t.Head
	}
	a.Total = a.Producer + a.Verifier
	if !rec.StartedAt.IsZero() && rec.EndedAt.After(rec.StartedAt) {
		a.Total = rec.EndedAt.Sub(rec.StartedAt).Seconds()
	}
	if rec.VerifierMetadata["judge"] != nil {
		a.Judge = rec.Provenance.Policy.Judge
	}
	a.Assurance, a.Doubtful = string(rec.PassAssurance()), rec.Doubtful()
	a.Uncalibrated, a.AfterTimeout = rec.Uncalibrated(), rec.AfterTimeout()
	if usage, ok := rec.ProducerMetadata["usage"].(map[string]any); ok {
		peak, _ := usage["peak_memory_bytes"].(float64)
		a.PeakMemory = int64(amount(peak))
	}
	if rec.Egress != nil && rec.Egress.Relay != nil {
		u := rec.Egress.Relay.Usage
		a.Cost = amount(rec.Egress.Relay.CostUSD)
		a.Tokens = &proxy.Usage{Input: max(0, u.Input), Cached: max(0, u.Cached), Output: max(0, u.Output), Reasoning: max(0, u.Reasoning), Estimated: u.Estimated}
	}
	if rec.Agent != nil {
		a.Agent = Words(rec.Agent.Name, rec.Agent.Version, rec.Agent.Model)
	}
	for _, name := range []*string{&a.Task, &a.Benchmark, &a.Family, &a.Category, &a.Phase, &a.Reason, &a.Message, &a.Agent, &a.Isolation, &a.Assurance, &a.Judge} {
		*name = strings.Clone(cutText(*name, maxName).Head)
	}
	return a
}

// amount bounds a number of somebody else's records, so that sums of them are numbers, too.
func amount(v float64) float64 { return min(max(0, v), 1<<60) }

// Words joins words by spaces, without the empty ones.
func Words(words ...string) string {
	return strings.Join(slices.DeleteFunc(words, func(w string) bool { return w == "" }), " ")
}

// Find returns the index of an attempt, and the number of its task's attempts. The task is an id, or a pattern that only
// one task matches. Attempt 0 means the first attempt that did not pass, or the first if all passed.
func (s *Source) Find(task string, attempt int) (at, of int, err error) {
	matches := func(a Attempt) bool { return a.Task == task }
	if !slices.ContainsFunc(s.Attempts, matches) {
		matches = func(a Attempt) bool { return compiler.MatchTask(task, a.Task) }
	}
	var all []int // indices of the attempts that match
	ids := map[string]bool{}
	for i, a := range s.Attempts {
		if matches(a) {
			all, ids[a.Task] = append(all, i), true
		}
	}
	switch len(ids) {
	case 0:
		return 0, 0, fmt.Errorf("no attempt of %q is recorded", task)
	case 1:
	default:
		return 0, 0, fmt.Errorf("%q matches %d tasks: name one, such as %q", task, len(ids), s.Attempts[all[0]].Task)
	}
	slices.SortStableFunc(all, func(i, j int) int { return s.Attempts[i].Number - s.Attempts[j].Number })
	i := slices.IndexFunc(all, func(i int) bool {
		if attempt > 0 {
			return s.Attempts[i].Number == attempt
		}
		return s.Attempts[i].Status != record.Passed
	})
	if i < 0 && attempt > 0 {
		return 0, 0, fmt.Errorf("attempt %d of %q is not recorded", attempt, task)
	}
	return all[max(i, 0)], len(all), nil
}

// ErrUntrusted means that the records of a run are damaged, or not signed as they have to be.
var ErrUntrusted = errors.New("the records cannot be trusted")

// OpenOptions say what records must prove, and what is shown.
type OpenOptions struct {
	Key            ed25519.PublicKey // must have signed the records; nil requires no signature
	AcceptUnsigned bool              // what records do not prove is a Problem of the source, and no error
	Private        bool              // show what verifiers printed
}

// OpenAll opens the directories of runs. Without a key, a missing or open seal is no error: the run is in progress, or was killed. The
// caller closes the sources, also after an error.
func OpenAll(ctx context.Context, dirs []string, o OpenOptions) (sources []*Source, err error) {
	for _, dir := range dirs {
		s, err := Open(ctx, dir)
		if err != nil {
			return sources, err
		}
		s.Private = o.Private
		sources = append(sources, s)
		_, seal, err := record.Read(dir, record.Trust{Key: o.Key}, func(record.Record) error { return nil })
		switch {
		case err == nil && seal.AcceptedUnsigned > 0:
			err = fmt.Errorf("the first %d records were accepted unsigned", seal.AcceptedUnsigned)
		case err == nil:
			continue
		case !o.AcceptUnsigned && (o.Key != nil || !errors.Is(err, record.ErrUnsigned)):
			return sources, fmt.Errorf("%w: %s: %w", ErrUntrusted, dir, err)
		}
		s.Problems = append(s.Problems, Problem{Finding: record.Finding{File: record.RecordsFile, Message: err.Error()}, Unverified: true})
	}
	return sources, nil
}

// CloseAll closes the sources.
func CloseAll(sources []*Source) error {
	var errs []error
	for _, s := range sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Below describes the runs in which less than percent of the attempts passed. Attempts without a verdict or
// without a record count as not passed. For nil it returns nothing.
func (r Report) Below(percent *float64) (runs []string) {
	if percent == nil {
		return nil
	}
	for _, run := range r.Runs {
		all := run.Counts.Attempts + run.Missing()
		if share := 100 * float64(run.Counts.Passed) / float64(max(1, all)); all == 0 || share < *percent {
			runs = append(runs, fmt.Sprintf("%q: %d of %d attempts passed (%.1f %%), %d have no verdict", run.Dir, run.Counts.Passed, all, share, all-run.Counts.Scored()))
		}
	}
	return runs
}
