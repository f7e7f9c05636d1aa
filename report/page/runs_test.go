package page_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// An example is an invented run: all families and statuses, several attempts and
// retries, and agents with traces of what they did.
type example struct {
	RunID    string
	Seed     uint64
	Tasks    int
	Attempts int     // of each task
	Planned  int     // attempts that run.json plans; 0: it does not say
	Skill    float64 // between 0 and 1: the share of attempts that pass
	Agent    string  // codex or claude_code
	Model    string
	// Hostile, when not empty, is put into every field that a candidate or a pack
	// can fill.
	Hostile string
	// Output is how many bytes some outputs have; 0 means few.
	Output int
}

// began is when all runs begin.
func began() time.Time { return time.Date(2026, time.March, 14, 9, 26, 53, 0, time.UTC) }

// write writes the files of the run to the existing directory dir.
func (e example) write(dir string) error {
	w := &writer{example: e, dir: dir, random: rand.New(rand.NewPCG(e.Seed, 7)), now: began(), previous: digest("manifest")}
	return w.run()
}

type object map[string]any

type writer struct {
	example
	dir      string
	random   *rand.Rand
	now      time.Time
	previous string
	records  *os.File
	egress   *os.File
	private  record.Private // of the record that is being invented
}

func (w *writer) run() error {
	if err := w.manifest(); err != nil {
		return err
	}
	var err error
	if w.records, err = os.Create(filepath.Join(w.dir, record.RecordsFile)); err != nil {
		return err
	}
	defer func() { _ = w.records.Close() }() // Sync says what went wrong
	if w.egress, err = os.Create(filepath.Join(w.dir, record.EgressFile)); err != nil {
		return err
	}
	defer func() { _ = w.egress.Close() }()
	for number := 1; number <= max(1, w.Attempts); number++ {
		for i := range w.Tasks {
			if err := w.attempt(i, number); err != nil {
				return err
			}
		}
	}
	return w.records.Sync()
}

func (w *writer) manifest() error {
	m := record.Manifest{
		RunID: w.RunID, StartedAt: w.now, Sbench: version(), Host: host(), Pack: pack(), Jobs: 8, Attempts: max(1, w.Attempts), Planned: w.Planned,
		Harness: record.Harness{Type: w.Agent, Version: "1.4.2", Config: digest("config")},
		Inputs:  map[string]record.Input{"tester": {Path: "/packs/tester.yaml", Digest: digest("tester")}},
	}
	return writeJSON(filepath.Join(w.dir, record.ManifestFile), m)
}

func version() record.Version { return record.Version{Version: "0.3.0", Commit: "98e4cf8"} }

func pack() record.Pack {
	return record.Pack{ID: "workbench-mixed", Version: 3, Manifest: digest("pack")}
}

func host() record.Host {
	return record.Host{
		OS: "linux", Arch: "amd64", Kernel: "6.1.0-28-amd64", CPUs: 16, Memory: 64 << 30,
		Containerd: "2.4.2", Runtime: "runc 1.1.5", Cgroups: "v2", UserNamespace: "own",
	}
}

func digest(parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return "sha256:" + hex.EncodeToString(sum[:])
}

func writeJSON(name string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(name, data, 0o644)
}

// chance returns true with probability p.
func (w *writer) chance(p float64) bool { return w.random.Float64() < p }

// around returns a random number around middle, from a log-normal distribution.
func (w *writer) around(middle float64) float64 {
	return middle * math.Exp(0.55*w.random.NormFloat64())
}

// attempt writes the tries of one attempt.
func (w *writer) attempt(i, number int) error {
	kind := kinds()[i%len(kinds())]
	s := &subject{kind: kind, index: i, number: number, id: fmt.Sprintf("%s/%s-%03d", kind.category, kind.word, i/len(kinds())+1)}
	if w.Hostile != "" {
		s.id += " " + w.Hostile
	}
	for try := 1; ; try++ {
		rec, again, err := w.try(s, try)
		if err != nil {
			return err
		}
		if err := w.append(rec); err != nil {
			return err
		}
		if !again {
			return nil
		}
	}
}

func (w *writer) append(rec record.Record) error {
	rec.Previous = w.previous
	line, err := json.Marshal(rec)
	if err != nil {
		return err
	}
	rec.Digest = digest(string(line))
	w.previous = rec.Digest
	if line, err = json.Marshal(rec); err != nil {
		return err
	}
	_, err = w.records.Write(append(line, '\n'))
	return err
}

// A subject is an attempt that is being invented.
type subject struct {
	kind          kind
	index, number int
	id            string
}

// try invents one try; the second result says that another follows.
func (w *writer) try(s *subject, try int) (record.Record, bool, error) {
	rec, err := w.blank(s, try)
	if err != nil {
		return rec, false, err
	}
	if try == 1 && w.chance(0.06) || try == 2 && w.chance(0.4) {
		rec.VerificationStatus, rec.FailureReason, rec.FailurePhase = record.Error, "infrastructure", "producer"
		rec.FailureMessage = "the provider failed: overloaded, 6 times at the end"
		return rec, try == 1, w.pass(&rec, 0.3)
	}
	if err := w.produce(&rec, s); err != nil {
		return rec, false, err
	}
	w.private = record.Private{}
	w.judge(&rec, s)
	err = w.pass(&rec, 1)
	w.poison(&rec)
	if err != nil || rec.VerifierMetadata == nil {
		return rec, false, err
	}
	root, err := os.OpenRoot(w.dir)
	if err != nil {
		return rec, false, err
	}
	err = record.WritePrivate(root, &rec, w.private)
	return rec, false, errors.Join(err, root.Close())
}

func (w *writer) blank(s *subject, try int) (record.Record, error) {
	rec := record.Record{
		RunID: w.RunID, TaskID: s.id, BenchmarkID: pack().ID, Category: s.kind.category, Attempt: s.number, Try: try,
		HiddenValues: "<redacted>", NetworkEnabled: true, ProducerMetadata: record.Metadata{},
		Image: "docker.io/library/debian-python:bookworm", ImageID: digest("image"), StartedAt: w.now,
		Provenance: record.Provenance{
			Sbench: version(), Pack: pack(), Row: digest("row", s.id), Evaluation: digest("evaluation", s.id), Assets: digest("assets"),
			Harness: record.Harness{Type: w.Agent, Version: "1.4.2", Config: digest("config")}, Host: host(), Inputs: digest("inputs", s.id),
			Specs: map[string]string{"agent": digest("spec", "agent"), "verifier": digest("spec", "verifier")},
			Policy: record.Policy{
				WorkspaceBytes: 1 << 30, OutputBytes: 1 << 20, TimeoutSeconds: 1800, Domains: []string{"pypi.org", "files.pythonhosted.org"},
			},
		},
	}
	limits := &rec.Provenance.Policy.Limits
	limits.Memory, limits.CPUs, limits.Pids, limits.Files = 1<<30, 1, 256, 4096
	limits.LayerBytes, limits.TmpBytes, limits.ShmBytes = 32<<20, 256<<20, 64<<20
	// Types of packages that this one must not import are filled in as JSON.
	return rec, fill(&rec, object{
		"task_type": s.kind.family,
		"agent":     object{"name": w.Agent, "version": "1.4.2", "package": "@example/" + w.Agent, "digest": "sha512-0Zw", "model": w.Model},
		"resource_summary": []object{
			{"name": "instructions", "visibility": "public", "kind": "text", "value": s.kind.prompt + w.Hostile},
			{"name": "tests", "visibility": "evaluation_inputs", "kind": "json", "redacted": true},
		},
	})
}

// fill sets fields of a record by their names.
func fill(rec *record.Record, fields object) error {
	data, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, rec)
}

// pass advances the clock by the time that a try takes.
func (w *writer) pass(rec *record.Record, share float64) error {
	rec.Times = record.Times{
		Waited: w.around(0.4), Producer: share * w.around(95), Verifier: share * w.around(4),
	}
	if rec.VerificationStatus == record.Failed && rec.FailureReason == "producer_timeout" {
		rec.Times.Producer, rec.Times.Verifier = 1800, 0
	}
	took := rec.Times.Producer + rec.Times.Verifier + 0.3
	rec.EndedAt = rec.StartedAt.Add(time.Duration(took * float64(time.Second)))
	w.now = w.now.Add(time.Duration(took / 8 * float64(time.Second)))
	rec.ProducerMetadata["wall_seconds"] = rec.Times.Producer
	rec.ProducerMetadata["exit_reason"], rec.ProducerMetadata["exit_code"] = "exited", 0
	rec.ProducerMetadata["usage"] = object{
		"cpu_ns": int64(0.4e9 * rec.Times.Producer), "peak_memory_bytes": int64(w.around(240 << 20)), "peak_pids": 9,
	}
	in := int64(w.around(64000))
	out := int64(w.around(3100))
	return fill(rec, object{"egress": object{
		"proxy": object{"connections": 4, "allowed": 2, "denied": 1, "up": 2210, "down": 88123},
		"relay": object{"seen": 12, "sent": 12, "succeeded": 12, "usage": object{"input": in, "cached": in * 7 / 10, "output": out, "reasoning": out / 3}},
	}})
}

func (w *writer) produce(rec *record.Record, s *subject) error {
	if err := w.logs(rec, s); err != nil {
		return err
	}
	if err := w.leave(rec.StartedAt, s); err != nil {
		return err
	}
	rec.EgressDigest = digest("egress", s.id)
	rec.ProducerStdout, rec.ProducerStderr = "The work is done.\n"+w.noise(s), "warning: running as root in a sandbox\n"
	switch s.kind.candidate {
	case patch:
		text := s.kind.result
		rec.CandidatePatch = &text
	case directory:
		dir := filepath.Join(record.WorkspacesDir, s.dir())
		rec.CandidateWorkspace = &dir
		if err := w.directory(dir, s); err != nil {
			return err
		}
	default:
		text := s.kind.result
		rec.CandidateText = &text
	}
	rec.CandidateDigest = digest("candidate", s.id)
	return nil
}

// noise returns a long output for some subjects.
func (w *writer) noise(s *subject) string {
	if s.index%5 != 0 || w.Output == 0 {
		return ""
	}
	line := "collecting package metadata: 0123456789abcdef0123456789abcdef\n"
	return strings.Repeat(line, w.Output/len(line)+1)
}

func (w *writer) judge(rec *record.Record, s *subject) {
	if s.kind.pending {
		rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = record.Pending, "no_verifier", "there is no verifier for the family yet"
		return
	}
	ok := w.chance(w.Skill * s.kind.ease)
	score := map[bool]float64{true: 1}[ok]
	rec.Passed, rec.Score = &ok, &score
	rec.VerifierMetadata = record.Metadata{"exit_reason": "exited", "exit_code": 1 - int(score), "wall_seconds": 2.25}
	if ok {
		rec.VerificationStatus, w.private.Stdout = record.Passed, "....................                       [100%]\n20 passed in 1.82s\n"
		rec.Assurance = map[string]verifiers.Assurance{text: verifiers.Sealed, patch: verifiers.Contrasted, directory: verifiers.Executed}[s.kind.candidate]
		return
	}
	rec.VerificationStatus = record.Failed
	reason := s.kind.failures[w.random.IntN(len(s.kind.failures))]
	rec.FailureReason, rec.FailurePhase, rec.FailureMessage = reason, "verifier", "the tests exited with code 1: AssertionError: assert 'hello---world-' == 'hello-world' (tests/test_words.py:14)"
	if strings.HasPrefix(reason, "producer") || reason == "candidate_missing" {
		rec.FailurePhase, rec.FailureMessage = "producer", "the agent was killed after its time limit"
		rec.Passed, rec.Score, rec.VerifierMetadata = nil, nil, nil
		return
	}
	w.private.Stdout = failedTests() + w.noise(s)
	w.private.Stderr = "\x1b[31mFAILED\x1b[0m tests/test_words.py::test_slug_dashes\n"
}

// poison puts hostile text wherever a candidate's text could be.
func (w *writer) poison(rec *record.Record) {
	if w.Hostile == "" {
		return
	}
	for _, text := range []*string{
		&rec.Category, &rec.FailureReason, &rec.FailurePhase, &rec.FailureMessage, &rec.ProducerStdout, &rec.ProducerStderr,
		&w.private.Stdout, &w.private.Stderr, &rec.BenchmarkID, &rec.Image, &rec.ImageID, &rec.CandidateDigest, &rec.Agent.Model,
		&rec.Provenance.Row, &rec.Provenance.Host.Kernel, &rec.Provenance.Harness.Version,
	} {
		*text += w.Hostile
	}
	for _, text := range []*string{rec.CandidateText, rec.CandidatePatch} {
		if text != nil {
			*text += "\n" + w.Hostile + "\n+" + w.Hostile
		}
	}
	rec.TaskType += "<b>"
	rec.ProducerMetadata[w.Hostile], rec.Degraded = w.Hostile, []string{w.Hostile}
	rec.Provenance.Specs[w.Hostile] = w.Hostile
}
