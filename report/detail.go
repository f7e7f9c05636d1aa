package report

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace/foreign"
	"github.com/securebench/sbench/workspace/foreign/lines"
)

// A Detail is everything that can be shown of one attempt. Its texts are cut.
type Detail struct {
	// Record is the record of the last try, as it counts: a pass with a weaker assurance than [Source.Require] demands has
	// failed.
	Record    record.Record `json:"-"`
	Message   string        `json:"message,omitempty"`
	Prompt    Text          `json:"prompt"`
	Public    []Named       `json:"public,omitempty"` // the task's public values, if there is no prompt
	Trace     *Trace        `json:"trace,omitempty"`  // nil if there is none
	Candidate Candidate     `json:"candidate"`
	Read      *Read         `json:"read,omitempty"` // nil unless the candidate is an answer in words
	Producer  Output        `json:"producer"`
	Verifier  Output        `json:"verifier"` // its output is in the private part of the record
	// Private says what became of the record's private part: "shown", "withheld" or "missing"; "" if it has none.
	Private string `json:"private,omitempty"`
	// Scores are the exact scores of the private part.
	Scores    []record.PrivateScore `json:"-"`
	Logs      []Named               `json:"logs,omitempty"`   // other log files of the attempt
	Egress    *Egress               `json:"egress,omitempty"` // nil if nothing was logged
	Limits    json.RawMessage       `json:"limits"`           // the policy of the record's provenance
	Times     record.Times          `json:"times"`
	Assurance string                `json:"assurance,omitempty"` // how certain a pass is
	Doubtful  bool                  `json:"doubtful,omitempty"`  // a pass with some wrong answers to blind tests
	Facts     [][2]string           `json:"facts"`               // provenance: name and value
	Tries     []Try                 `json:"tries"`               // the last 20
	Missing   []string              `json:"missing,omitempty"`   // what could not be read
}

// A Candidate is a text, a patch or a directory with files, or nothing.
type Candidate struct {
	Text      *Text  `json:"text,omitempty"`
	Code      bool   `json:"code,omitempty"` // the text is a program
	Patch     *Text  `json:"patch,omitempty"`
	Files     []File `json:"files,omitempty"`
	More      bool   `json:"more,omitempty"`   // there are more files
	Directory string `json:"folder,omitempty"` // in the run's directory
}

// A Read is what the verifier read in an answer in words, and by which rule.
type Read struct {
	Text Text   `json:"text"`
	Rule string `json:"rule"` // "" if nothing was found
}

// A Named text is a value or a file with its name.
type Named struct {
	Name string `json:"name"`
	Text Text   `json:"text"`
}

// An Output is the output of a producer or verifier.
type Output struct {
	Stdout   Text            `json:"stdout"`
	Stderr   Text            `json:"stderr"`
	Metadata json.RawMessage `json:"metadata,omitempty"` // an object, or its text if it is too long
}

// Detail reads the details of s.Attempts[at], with texts of about most bytes in total.
func (s *Source) Detail(ctx context.Context, at, most int) (Detail, error) {
	a := s.Attempts[at]
	rec, err := s.reread(a.Tries[len(a.Tries)-1])
	if err != nil {
		return Detail{}, fmt.Errorf("%s of %q: %w", record.RecordsFile, a.Task, err)
	}
	if a.Task != summarise(rec).Task {
		return Detail{}, fmt.Errorf("%s changed while it was read", record.RecordsFile)
	}
	share := max(256, most/12)
	r := reading{root: s.root, most: share, Detail: Detail{
		Record: rec, Message: cutText(rec.FailureMessage, 2000).Head, Times: rec.Times,
		Producer:  output(rec.ProducerStdout, rec.ProducerStderr, rec.ProducerMetadata, share),
		Verifier:  output("", "", rec.VerifierMetadata, share),
		Assurance: string(rec.PassAssurance()), Doubtful: rec.Doubtful(),
		Limits: asJSON(rec.Provenance.Policy, share), Facts: facts(rec), Tries: a.Tries[max(0, len(a.Tries)-20):],
	}}
	d := &r.Detail
	if read, ok := rec.VerifierMetadata[verifiers.Read].(string); ok {
		rule, _ := rec.VerifierMetadata[verifiers.Rule].(string)
		d.Read = &Read{cutText(read, share), rule}
	}
	if a.Status != rec.VerificationStatus {
		d.Record.VerificationStatus, d.Record.FailurePhase, d.Record.FailureReason, d.Record.FailureMessage = a.Status, a.Phase, a.Reason, a.Message
		d.Record.Score = new(0.0)
	}
	r.private(s.Private)
	r.candidate(ctx)
	r.logs()
	if d.Prompt.Empty() {
		d.Public = public(rec, share)
	}
	if err := s.indexEgress(ctx); err != nil {
		d.Missing = append(d.Missing, record.EgressFile+": "+err.Error())
	}
	d.Egress = s.egressOf(a, rec.Try, d, share)
	return *d, ctx.Err()
}

// A reading reads the details of one attempt.
type reading struct {
	Detail          // so far
	root   *os.Root // of the run
	most   int      // bytes of a text, roughly
}

// private adds the private part of a record if the reader asked for it.
func (r *reading) private(show bool) {
	switch {
	case r.Record.PrivateDigest == "":
		return
	case !show:
		r.Private = "withheld"
		return
	}
	p, err := record.ReadPrivate(r.root, &r.Record)
	if err != nil {
		r.Private = "missing"
		r.Missing = append(r.Missing, "private part: "+err.Error())
		return
	}
	r.Private, r.Scores = "shown", p.Scores
	r.Verifier.Stdout, r.Verifier.Stderr = cutText(p.Stdout, r.most), cutText(p.Stderr, r.most)
	for i, l := range p.Logs {
		if i == maxLogs {
			r.Missing = append(r.Missing, Count(len(p.Logs)-i, "further file")+" of the checker")
			break
		}
		r.Logs = append(r.Logs, Named{"checker-" + cutText(l.Name, 200).Head, cutText(l.Text, r.most)})
	}
	if p.Egress != "" {
		r.Logs = append(r.Logs, Named{"checker-egress.jsonl", cutText(p.Egress, r.most)})
	}
}

// reread reads a record again, with all its texts.
func (s *Source) reread(t Try) (record.Record, error) {
	f, err := foreign.Open(s.root, record.RecordsFile, math.MaxInt64)
	if err != nil {
		return record.Record{}, err
	}
	defer func() { _ = f.Close() }()
	l, err := lines.NewReader(io.NewSectionReader(f, t.offset, t.size), t.offset, maxRecord).Next()
	if err != nil {
		return record.Record{}, err
	}
	return decode(l.Text)
}

func output(stdout, stderr string, metadata record.Metadata, most int) Output {
	o := Output{Stdout: cutText(stdout, most), Stderr: cutText(stderr, most)}
	if len(metadata) > 0 {
		o.Metadata = asJSON(metadata, most)
	}
	return o
}

// asJSON returns v as JSON or, if that is too long, its beginning as a string.
func asJSON(v any, most int) json.RawMessage {
	text, err := json.Marshal(v)
	if err == nil && len(text) > most {
		text, err = json.Marshal(cutText(string(text), most).Head + "…")
	}
	if err != nil {
		return json.RawMessage("null")
	}
	return text
}

func public(rec record.Record, most int) []Named {
	var list []Named
	for _, r := range rec.ResourceSummary {
		if r.Redacted || len(r.Value) == 0 || len(list) == 20 {
			continue
		}
		var text string
		if json.Unmarshal(r.Value, &text) != nil {
			text = string(r.Value)
		}
		list = append(list, Named{r.Name, cutText(text, most/2)})
	}
	return list
}

func (r *reading) candidate(ctx context.Context) {
	if r.Record.CandidateText != nil {
		r.Candidate.Text, r.Candidate.Code = new(cutText(*r.Record.CandidateText, 2*r.most)), r.Record.Code()
	}
	if r.Record.CandidatePatch != nil {
		r.Candidate.Patch = new(cutText(*r.Record.CandidatePatch, 3*r.most))
	}
	if r.Record.CandidateWorkspace == nil {
		return
	}
	r.Candidate.Directory = *r.Record.CandidateWorkspace
	var err error
	if r.Candidate.Files, r.Candidate.More, err = files(r.root, *r.Record.CandidateWorkspace, 2*r.most); err != nil {
		r.Missing = append(r.Missing, "candidate: "+err.Error())
	}
	if r.Record.LayerDigest == "" {
		return
	}
	changed, more, err := changes(ctx, r.root, *r.Record.CandidateWorkspace+layer.Suffix, r.Record.LayerDigest, 2*r.most)
	if err != nil {
		r.Missing = append(r.Missing, "the candidate's changes to the image: "+err.Error())
	}
	r.Candidate.Files, r.Candidate.More = append(r.Candidate.Files, changed...), r.Candidate.More || more
}

// maxLogs bounds the log files of one attempt.
const maxLogs = 16

func (r *reading) logs() {
	read := r.parser()
	for i, l := range r.Record.Logs {
		if i == maxLogs {
			r.Missing = append(r.Missing, Count(len(r.Record.Logs)-i, "further log"))
			break
		}
		if err := r.log(l, read); err != nil {
			r.Missing = append(r.Missing, err.Error())
		}
		if l.Cut > 0 {
			r.Missing = append(r.Missing, fmt.Sprintf("%s: its last %d bytes, which the run did not keep", path.Base(l.Path), l.Cut))
		}
	}
}

// parser returns the parser of the agent's output. For an unknown agent, it finds no events.
func (r *reading) parser() func([]byte) ([]harness.Step, bool) {
	if i := slices.IndexFunc(r.Record.Logs, func(l record.Log) bool { return path.Base(l.Path) == record.AgentFile }); i >= 0 {
		if cli, ok := descriptor(r.root, r.Record.Logs[i].Path); ok {
			return cli.Read
		}
	}
	if r.Record.Agent != nil {
		if cli, ok := harness.CLIOf(r.Record.Agent.Name); ok {
			return cli.Read
		}
	}
	return func([]byte) ([]harness.Step, bool) { return nil, false }
}

// maxDescriptor bounds the descriptor of an agent, in bytes.
const maxDescriptor = 1 << 20

func descriptor(root *os.Root, name string) (harness.CLI, bool) {
	text, err := foreign.Read(root, name, maxDescriptor)
	if err != nil {
		return harness.CLI{}, false
	}
	cli, problems := harness.ParseDescriptor(name, text)
	return cli, problems == nil
}

func (r *reading) log(l record.Log, read func([]byte) ([]harness.Step, bool)) error {
	f, err := foreign.Open(r.root, l.Path, maxTrace)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	name, ofStep := path.Base(l.Path), path.Base(path.Dir(l.Path))
	if ofStep = ofStep + "/"; !strings.HasPrefix(ofStep, record.StepPrefix) {
		ofStep = ""
	}
	switch {
	case name == record.TraceFile:
		trace, err := readTrace(f, read, 4*r.most)
		if before := r.Trace; before != nil { // of the steps before
			trace.Steps, trace.Cut = append(before.Steps, trace.Steps...), before.Cut+trace.Cut
			trace.At = cmp.Or(before.At, len(before.Steps)+trace.At)
		}
		r.Trace = &trace
		return err
	case name == "prompt.txt" && ofStep == "":
		r.Prompt, err = ends(f, 2*r.most)
	default:
		var text Text
		text, err = ends(f, r.most)
		r.Logs = append(r.Logs, Named{ofStep + name, text})
	}
	return err
}

func facts(rec record.Record) [][2]string {
	p, h := rec.Provenance, rec.Provenance.Host
	list := [][2]string{
		{"assurance", string(rec.PassAssurance())}, {"doubtful", map[bool]string{true: "it passes some tests that expect something wrong"}[rec.Doubtful()]}, {"run", rec.RunID}, {"benchmark", rec.BenchmarkID}, {"started", stamp(rec.StartedAt)}, {"ended", stamp(rec.EndedAt)},
		{"sbench", Words(p.Sbench.Version, p.Sbench.Commit)}, {"harness", Words(p.Harness.Type, p.Harness.Version)}, {"harness configuration", p.Harness.Config},
		{"image", rec.Image}, {"image digest", rec.ImageID}, {"pack manifest", p.Pack.Manifest}, {"row", p.Row}, {"evaluation", p.Evaluation}, {"assets", p.Assets},
		{"inputs", p.Inputs}, {"candidate", rec.CandidateDigest}, {"egress log", rec.EgressDigest},
		{"containerd", h.Containerd}, {"runtime", h.Runtime}, {"kernel", Words(h.OS, h.Arch, h.Kernel, h.Cgroups)},
		{"isolation", string(p.Policy.Isolation)}, {"user namespace", h.UserNamespace},
		{"limits not enforced", strings.Join(slices.Concat(rec.Degraded, p.Policy.Degraded), ", ")},
		{"line before", rec.Previous}, {"this line", rec.Digest},
	}
	if a := rec.Agent; a != nil {
		list = append(list, [2]string{"agent", Words(a.Name, a.Version, a.Model)}, [2]string{"agent package", Words(a.Package, a.Digest)})
	}
	if f := rec.ProducerFailure; f != nil {
		list = append(list, [2]string{"the harness ended", f.Reason + ": " + f.Message})
	}
	for _, key := range sortedKeys(p.Settings) {
		list = append(list, [2]string{"set " + key, p.Settings[key]})
	}
	for _, name := range sortedKeys(p.Specs) {
		list = append(list, [2]string{"specification of " + name, p.Specs[name]})
	}
	list = slices.DeleteFunc(list, func(f [2]string) bool { return f[1] == "" })
	for i := range list {
		list[i] = [2]string{cutText(list[i][0], 80).Head, cutText(list[i][1], 200).Head}
	}
	return list[:min(len(list), 60)]
}

// CopyLog copies a log of a record to a new file.
func (s *Source) CopyLog(l record.Log, name string) error {
	from, err := foreign.Open(s.root, l.Path, math.MaxInt64)
	if err != nil {
		return err
	}
	defer func() { _ = from.Close() }()
	to, err := os.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
