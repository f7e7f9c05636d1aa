// Package report sums up the records of runs: how many attempts passed and how certain that is, what they took,
// and how runs differ. It treats all text in records as hostile, and reads records as a stream: memory grows
// with the number of attempts, not with their output.
package report

import (
	"fmt"
	"time"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

// Schema names the JSON form of a [Report]. It changes when a field is removed or gets another meaning.
const Schema = "sbench.report/1"

// A Report sums up one or more runs. Shares are from 0 to 1, times in seconds, memory in bytes.
type Report struct {
	Schema      string       `json:"schema"`
	Confidence  float64      `json:"confidence"` // of all intervals; [stat.Confidence]
	Runs        []Run        `json:"runs"`
	Comparisons []Comparison `json:"comparisons"` // of each further run with the first
}

// A Run is what a report says about one run.
type Run struct {
	Dir         string         `json:"dir"` // as given to [Open]
	RunID       string         `json:"run_id"`
	SameID      bool           `json:"-"` // another run of the report, in another directory, has this id
	BenchmarkID string         `json:"benchmark_id"`
	PackVersion int            `json:"pack_version,omitempty"`
	StartedAt   *time.Time     `json:"started_at,omitempty"`
	EndedAt     *time.Time     `json:"ended_at,omitempty"` // of the last attempt
	Sbench      record.Version `json:"sbench"`
	Harness     record.Harness `json:"harness"`
	Agents      []string       `json:"agents"` // name, version and model
	Jobs        int            `json:"jobs,omitempty"`
	Isolation   []string       `json:"isolation"` // of the sandboxes, each once
	Degraded    []string       `json:"degraded"`  // limits that the host did not enforce for some attempt
	// Judges are the models that judged answers, and Judged is how many answers they judged.
	Judges []string `json:"judges,omitempty"`
	Judged int      `json:"judged,omitempty"`
	// Assurance counts passes by their assurance; see docs/verifiers.md.
	Assurance map[string]int `json:"assurance,omitempty"`
	// Doubtful are tasks with a pass that gave some wrong answers to blind tests.
	Doubtful []string `json:"doubtful,omitempty"`
	// Uncalibrated counts passes by blind tests that no reference solution has calibrated.
	Uncalibrated int `json:"uncalibrated,omitempty"`
	// AfterTimeout counts verdicts on what a harness left that ended badly, for example at its time limit.
	AfterTimeout int `json:"after_timeout,omitempty"`
	// Planned is how many attempts were to be run in all; 0: unknown.
	Planned int `json:"planned_attempts"`

	Records  int       `json:"records"`  // lines that could be read
	Problems []Problem `json:"problems"` // at most 101, the last one counting the rest

	Counts   Counts   `json:"counts"`
	Accuracy Accuracy `json:"accuracy"`
	Retries  Retries  `json:"retries"`
	PassAtK  []PassK  `json:"pass_at_k"`  // at least one of k attempts passes
	PassAllK []PassK  `json:"pass_all_k"` // all of k attempts pass (pass^k)

	ByFamily   []Group    `json:"by_family"`
	ByCategory []Group    `json:"by_category"`
	Outcomes   []Outcome  `json:"outcomes"`
	NotPassed  []Unpassed `json:"not_passed"` // in the order of Tasks

	Distributions Distributions `json:"distributions"`
	Spent         proxy.Usage   `json:"tokens_spent"`        // by all tries, even those that do not count
	SpentUSD      float64       `json:"usd_spent,omitempty"` // the same in US dollars; 0 if unknown
	Slowest       []Slow        `json:"slowest"`             // at most 10, the slowest first
	Tasks         []Task        `json:"tasks"`               // in the order of [Natural]
}

// A Problem is something that could not be read or is not as it should be.
type Problem struct {
	record.Finding
	// Unverified means that the records are not proven to be what was written.
	Unverified bool `json:"unverified,omitempty"`
}

// Counts are numbers of tasks and of attempts. An attempt has the status of its last try.
type Counts struct {
	Tasks    int `json:"tasks"`
	Attempts int `json:"attempts"`
	Passed   int `json:"passed"`
	Failed   int `json:"failed"`
	Pending  int `json:"pending"`
	Errors   int `json:"errors"`
}

// Scored returns the number of attempts with a verdict, the denominator of every share.
func (c Counts) Scored() int { return c.Passed + c.Failed }

// An Accuracy is the share of scored attempts that passed; Value and the intervals are nil if none was scored.
type Accuracy struct {
	Passed int            `json:"passed"`
	Scored int            `json:"scored"`
	Value  *float64       `json:"value"`
	Wilson *stat.Interval `json:"wilson"`
	// Errors counts attempts that could not be measured, and WithErrors is the share that passed if they
	// count as failures; nil without any attempt of either kind.
	Errors     int      `json:"errors"`
	WithErrors *float64 `json:"with_errors"`
	// Clustered is a bootstrap over tasks, set if a task has several scored attempts: these
	// are not independent, as Wilson's interval assumes.
	Clustered *stat.Interval `json:"clustered,omitempty"`
}

// String returns the share and, if there are errors, the share with errors as failures.
func (a Accuracy) String() string {
	if a.Errors == 0 {
		return Percent(a.Value)
	}
	return fmt.Sprintf("%s (%s with errors as failures)", Percent(a.Value), Percent(a.WithErrors))
}

// Interval returns the wider of the two intervals, or nil. A bootstrap is too narrow if the
// tasks are few or all alike, Wilson's interval if a task's attempts are alike.
func (a Accuracy) Interval() *stat.Interval {
	if a.Clustered != nil && a.Clustered.High-a.Clustered.Low > a.Wilson.High-a.Wilson.Low {
		return a.Clustered
	}
	return a.Wilson
}

// Retries counts attempts that were retried because a try could not be measured.
type Retries struct {
	Attempts int `json:"attempts"`
	Passed   int `json:"passed"` // the part of Attempts that passed in the end
}

// A PassK is an unbiased estimate: the mean over tasks with at least k scored attempts; nil without such tasks.
type PassK struct {
	K       int      `json:"k"`
	Value   *float64 `json:"value"`
	Tasks   int      `json:"tasks"`
	LeftOut int      `json:"left_out"` // tasks with fewer scored attempts
	// WithErrors is the same with errors as failures.
	WithErrors *float64 `json:"with_errors"`
}

// A Group sums up the attempts of one family or category.
type Group struct {
	Name     string   `json:"name"` // "" if the records have none
	Counts   Counts   `json:"counts"`
	Accuracy Accuracy `json:"accuracy"`
}

// An Outcome counts attempts with the same status, reason and phase; attempts that could not be measured, also
// with the same message but for names and numbers. The example is the first attempt with the most frequent
// message; "" for passed.
type Outcome struct {
	Status  record.Status `json:"status"`
	Reason  string        `json:"reason"` // "" for passed
	Phase   string        `json:"phase"`
	Count   int           `json:"count"`
	Task    string        `json:"example_task,omitempty"`
	Attempt int           `json:"example_attempt,omitempty"`
	Message string        `json:"example_message,omitempty"`
	Index   int           `json:"-"` // of the example in Source.Attempts
}

// An Unpassed is an attempt that did not pass, with its cause.
type Unpassed struct {
	TaskID  string        `json:"task_id"`
	Attempt int           `json:"attempt"`
	Status  record.Status `json:"status"`
	Reason  string        `json:"reason"`
	Phase   string        `json:"phase"`
	Message string        `json:"message"`
}

// Distributions are over the tries that count and report the value, without errors.
type Distributions struct {
	Producer   stat.Distribution `json:"producer_seconds"`
	Verifier   stat.Distribution `json:"verifier_seconds"`
	Total      stat.Distribution `json:"total_seconds"`
	Input      stat.Distribution `json:"input_tokens"`
	Cached     stat.Distribution `json:"cached_tokens"`
	Output     stat.Distribution `json:"output_tokens"`
	Reasoning  stat.Distribution `json:"reasoning_tokens"`
	Cost       stat.Distribution `json:"cost_usd"`
	PeakMemory stat.Distribution `json:"peak_memory_bytes"`
}

// Slow is an attempt with its times.
type Slow struct {
	Index    int           `json:"-"` // in Source.Attempts
	TaskID   string        `json:"task_id"`
	Attempt  int           `json:"attempt"`
	Status   record.Status `json:"status"`
	Total    float64       `json:"total_seconds"`
	Producer float64       `json:"producer_seconds"`
	Verifier float64       `json:"verifier_seconds"`
}

// A Task counts the attempts of a task.
type Task struct {
	TaskID   string `json:"task_id"`
	Family   string `json:"family"`
	Category string `json:"category"`
	Passed   int    `json:"passed"`
	Scored   int    `json:"scored"`
	Errors   int    `json:"errors"`
	Attempts int    `json:"attempts"`
	rows     string // digests of the row and the evaluation
}

// A Comparison compares two runs over the tasks that are the same in both, and that both scored.
type Comparison struct {
	A int `json:"a"` // index in Report.Runs
	B int `json:"b"`

	Tasks     int `json:"tasks"`      // compared
	OnlyA     int `json:"only_a"`     // tasks scored in A only
	OnlyB     int `json:"only_b"`     // tasks scored in B only
	Different int `json:"other_rows"` // tasks left out because their rows or evaluations differ

	MeanA float64 `json:"mean_a"` // over compared tasks, of the share that passed
	MeanB float64 `json:"mean_b"`
	// WithErrorsA and WithErrorsB are the same with errors as failures, over all tasks that are the same.
	WithErrorsA float64 `json:"with_errors_a"`
	WithErrorsB float64 `json:"with_errors_b"`
	// Difference is B's mean minus A's. Interval is a paired bootstrap over tasks, since
	// a task's attempts are not independent; nil for fewer than two tasks.
	Difference float64        `json:"difference"`
	Interval   *stat.Interval `json:"interval"`
	// McNemar is set if each task has exactly one scored attempt in both runs.
	McNemar *McNemar `json:"mcnemar,omitempty"`

	Better int       `json:"better"` // tasks with a larger share in B
	Worse  int       `json:"worse"`
	Same   int       `json:"same"`
	Differ []Differs `json:"differ"` // the largest differences first
}

// McNemar is the exact test of paired verdicts. Its counts are of tasks.
type McNemar struct {
	BothPassed int     `json:"both_passed"`
	BothFailed int     `json:"both_failed"`
	PassedA    int     `json:"passed_a_only"`
	PassedB    int     `json:"passed_b_only"`
	P          float64 `json:"p"` // two-sided
}

// Differs is a task whose share differs between the runs.
type Differs struct {
	TaskID  string  `json:"task_id"`
	A       float64 `json:"a"` // share that passed
	B       float64 `json:"b"`
	ScoredA int     `json:"scored_a"`
	ScoredB int     `json:"scored_b"`
}
