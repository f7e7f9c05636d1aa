package report_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run/record"
)

// a is one record; only the fields that matter are set.
type a struct {
	task, family, category string
	attempt, try           int
	status, reason         string
	producer, verifier     float64
	tokens                 int64 // of input; half of it cached, a tenth of output
	memory                 int64
	row                    string
}

func (r a) line(n int) string {
	start := time.Date(2026, 1, 1, 0, n, 0, 0, time.UTC)
	m := map[string]any{
		"run_id": "r", "task_id": r.task, "benchmark_id": "b", "task_type": r.family, "category": r.category, "attempt": r.attempt, "try": r.try,
		"verification_status": r.status, "failure_reason": r.reason,
		"started_at": start, "ended_at": start.Add(time.Duration((r.producer + r.verifier) * 1e9)),
		"times":      map[string]any{"producer": r.producer, "verifier": r.verifier},
		"provenance": map[string]any{"row": r.row},
	}
	if r.memory > 0 {
		m["producer_metadata"] = map[string]any{"usage": map[string]any{"peak_memory_bytes": r.memory}}
	}
	if r.tokens > 0 {
		m["egress"] = map[string]any{"relay": map[string]any{"usage": map[string]any{"input": r.tokens, "cached": r.tokens / 2, "output": r.tokens / 10}}}
	}
	data, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return string(data) + "\n"
}

func directory(t *testing.T, text string) *report.Source { return opened(t, t.TempDir(), text) }

func opened(t *testing.T, dir, text string) *report.Source {
	t.Helper()
	must.Do(t, os.WriteFile(filepath.Join(dir, "candidates.jsonl"), []byte(text), 0o644))
	s, err := report.Open(t.Context(), dir)
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, s.Close()) })
	return s
}

func source(t *testing.T, records ...a) *report.Source {
	t.Helper()
	var b bytes.Buffer
	for i, r := range records {
		b.WriteString(r.line(i))
	}
	return directory(t, b.String())
}

// small is a run of 4 tasks with 2 attempts each:
//
//	one    passed passed
//	two    passed failed
//	three  failed error(tried twice)
//	four   pending passed after an error
func small() []a {
	const code, shell = "code_completion", "terminal_task"
	return []a{
		{task: "one", family: code, category: "x", attempt: 1, try: 1, status: "passed", producer: 10, verifier: 1, tokens: 1000, memory: 100},
		{task: "two", family: code, category: "y", attempt: 1, try: 1, status: "passed", producer: 20, verifier: 2, tokens: 2000, memory: 200},
		{task: "three", family: shell, category: "x", attempt: 1, try: 1, status: "failed", reason: "checker_failed", producer: 30, verifier: 3, tokens: 3000, memory: 300},
		{task: "four", family: shell, category: "", attempt: 1, try: 1, status: "pending", reason: "no_verifier", producer: 40, tokens: 4000},
		{task: "one", family: code, category: "x", attempt: 2, try: 1, status: "passed", producer: 50, verifier: 5, tokens: 5000},
		{task: "two", family: code, category: "y", attempt: 2, try: 1, status: "failed", reason: "tests_failed", producer: 60, verifier: 6, tokens: 6000},
		{task: "three", family: shell, category: "x", attempt: 2, try: 1, status: "error", reason: "infrastructure", producer: 500, tokens: 100},
		{task: "three", family: shell, category: "x", attempt: 2, try: 2, status: "error", reason: "infrastructure", producer: 500, tokens: 100},
		{task: "four", family: shell, category: "", attempt: 2, try: 1, status: "error", reason: "infrastructure", producer: 500, tokens: 100},
		{task: "four", family: shell, category: "", attempt: 2, try: 2, status: "passed", producer: 70, verifier: 7, tokens: 7000},
	}
}

func share(v float64) *float64 { return &v }

func near(x, y float64) bool { return x-y < 1e-9 && y-x < 1e-9 }

func TestNumbers(t *testing.T) {
	r := report.Summarize([]*report.Source{source(t, small()...)}).Runs[0]
	must.Equal(t, report.Counts{Tasks: 4, Attempts: 8, Passed: 4, Failed: 2, Pending: 1, Errors: 1}, r.Counts)
	if r.Accuracy.Passed != 4 || r.Accuracy.Scored != 6 || !near(*r.Accuracy.Value, 4.0/6) {
		t.Errorf("accuracy %+v", r.Accuracy)
	}
	// 4 of 6: (2/3 + 1.9207/6 ± 1.95996 sqrt(2/54 + 3.8415/144)) / (1 + 3.8415/6)
	i := r.Accuracy.Wilson
	must.Equal(t, "0.3000 0.9032", fmt.Sprintf("%.4f %.4f", i.Low, i.High))
	// Four draws from (2 of 2), (1 of 2), (0 of 1), (1 of 1): 0 has probability 1/256, 1/5
	// (three of the third, one of the second) 4/256, 1/4 4/256, which exceeds 2.5 %; 1 has 1/16.
	if i := r.Accuracy.Clustered; i == nil || i.Low != 0.25 || i.High != 1 {
		t.Errorf("clustered %+v", i)
	}
	if r.Records != 10 || r.Retries != (report.Retries{Attempts: 2, Passed: 1}) {
		t.Errorf("%d records, retries %+v", r.Records, r.Retries)
	}
	if a := r.Accuracy; a.Errors != 1 || !near(*a.WithErrors, 4.0/7) || a.String() != "66.7 % (57.1 % with errors as failures)" {
		t.Errorf("%s: %+v", a, a)
	}
	// pass@1: (1 + 1/2 + 0 + 1)/4. Only tasks one and two have two scored attempts: pass@2 (1 + 1)/2, pass^2 (1 + 0)/2.
	// With its error, task three has two, too, of which none passed.
	at := []report.PassK{{K: 1, Value: share(0.625), Tasks: 4, WithErrors: share(0.625)}, {K: 2, Value: share(1), Tasks: 2, LeftOut: 2, WithErrors: share(2.0 / 3)}}
	all := []report.PassK{{K: 1, Value: share(0.625), Tasks: 4, WithErrors: share(0.625)}, {K: 2, Value: share(0.5), Tasks: 2, LeftOut: 2, WithErrors: share(1.0 / 3)}}
	must.Equal(t, at, r.PassAtK)
	must.Equal(t, all, r.PassAllK)
	must.Equal(t, proxy.Usage{Input: 28300, Cached: 14150, Output: 2830}, r.Spent)
	must.Equal(t, report.Counts{Tasks: 2, Attempts: 4, Passed: 1, Failed: 1, Pending: 1, Errors: 1}, r.ByFamily[1].Counts)
	must.Equal(t, report.Counts{Tasks: 1, Attempts: 2, Passed: 1, Pending: 1}, r.ByCategory[0].Counts) // of tasks without a category
}

// TestInterval: the report shows the wider of two intervals.
func TestInterval(t *testing.T) {
	narrow, wide := &stat.Interval{Low: 0.5, High: 0.6}, &stat.Interval{Low: 0.3, High: 0.7}
	tests := []struct {
		name                    string
		wilson, clustered, want *stat.Interval
	}{
		{"one attempt each", narrow, nil, narrow}, {"tasks of one mind", narrow, wide, wide},
		{"all passed", wide, &stat.Interval{Low: 1, High: 1}, wide}, {"nothing", nil, nil, nil},
	}
	for _, tt := range tests {
		if got := (report.Accuracy{Wilson: tt.wilson, Clustered: tt.clustered}).Interval(); got != tt.want {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.want)
		}
	}
}

// TestDistributions: distributions leave out errors, and unknown values do not count as zero.
func TestDistributions(t *testing.T) {
	d := report.Summarize([]*report.Source{source(t, small()...)}).Runs[0].Distributions
	producer := stat.Distribution{Count: 7, Sum: 280, Mean: 40, Min: 10, P10: 16, P25: 25, P50: 40, P75: 55, P90: 64, P99: 69.4, Max: 70}
	verifier := stat.Distribution{Count: 6, Sum: 24, Mean: 4, Min: 1, P10: 1.5, P25: 2.25, P50: 4, P75: 5.75, P90: 6.5, P99: 6.95, Max: 7}
	memory := stat.Distribution{Count: 3, Sum: 600, Mean: 200, Min: 100, P10: 120, P25: 150, P50: 200, P75: 250, P90: 280, P99: 298, Max: 300}
	close := cmp.Comparer(near)
	must.Equal(t, producer, d.Producer, close)
	must.Equal(t, verifier, d.Verifier, close)
	must.Equal(t, memory, d.PeakMemory, close)
	if d.Input.Count != 7 || d.Input.P50 != 4000 || d.Output.Sum != 2800 || d.Total.Max != 77 {
		t.Errorf("%+v", d)
	}
}

// TestCompareSingle: one attempt each, so that McNemar's test applies.
func TestCompareSingle(t *testing.T) {
	run := func(verdicts string) (list []a) {
		for i, v := range verdicts {
			status := map[rune]string{'+': "passed", '-': "failed", 'e': "error", '?': "pending", 'x': "passed"}[v]
			r := a{task: fmt.Sprintf("t%02d", i), status: status, attempt: 1, try: 1, row: fmt.Sprint(i)}
			if v == 'x' {
				r.row = "another"
			}
			if v != '.' {
				list = append(list, r)
			}
		}
		return list
	}
	// Passed in both: 0-3; in A only: 4; in B only: 5-13; in neither: 14, 15; another
	// row: 16; scored in A only: 17-19; in B only: 20.
	from := source(t, run("+++++---------"+"--"+"+"+"++-"+"e")...)
	to := source(t, run("++++-+++++++++"+"--"+"x"+"e?."+"+")...)
	c := report.Summarize([]*report.Source{from, to}).Comparisons[0]
	if c.Tasks != 16 || c.OnlyA != 3 || c.OnlyB != 1 || c.Different != 1 || c.Better != 9 || c.Worse != 1 || c.Same != 6 {
		t.Errorf("%+v", c)
	}
	if !near(c.MeanA, 5.0/16) || !near(c.MeanB, 13.0/16) || !near(c.Difference, 0.5) {
		t.Errorf("means %v %v, difference %v", c.MeanA, c.MeanB, c.Difference)
	}
	want := &report.McNemar{BothPassed: 4, BothFailed: 2, PassedA: 1, PassedB: 9, P: 22.0 / 1024}
	must.Equal(t, want, c.McNemar, cmp.Comparer(near))
	if c.Interval == nil || c.Interval.Low < 0.12 || c.Interval.Low > 0.26 || c.Interval.High > 0.82 || c.Interval.High < 0.7 {
		t.Errorf("interval %+v", c.Interval) // ± 1.96 sqrt((10/16 - 1/4)/16) is 0.3
	}
	if len(c.Differ) != 10 || c.Differ[0].TaskID != "t04" || c.Differ[0].InA() != "passed" || c.Differ[0].InB() != "failed" {
		t.Errorf("differ %+v", c.Differ)
	}
}

// TestCompareSeveral: several attempts each, so that only the bootstrap applies.
func TestCompareSeveral(t *testing.T) {
	run := func(tasks ...string) (list []a) {
		for i, verdicts := range tasks {
			for n, v := range verdicts {
				list = append(list, a{task: fmt.Sprint(i), attempt: n + 1, try: 1, status: map[rune]string{'+': "passed", '-': "failed", 'e': "error"}[v]})
			}
		}
		return list
	}
	c := report.Summarize([]*report.Source{source(t, run("++--", "+++e", "----")...), source(t, run("+++-", "+++", "----")...)}).Comparisons[0]
	if c.McNemar != nil || c.Tasks != 3 || c.Better != 1 || c.Same != 2 || !near(c.MeanA, 0.5) || !near(c.MeanB, 1.75/3) {
		t.Errorf("%+v", c)
	}
	must.Equal(t, []report.Differs{{TaskID: "0", A: 0.5, B: 0.75, ScoredA: 4, ScoredB: 4}}, c.Differ)
}

// TestFew: records that lack fields are counted, and directories may lack files.
func TestFew(t *testing.T) {
	s := directory(t, `{"task_id": "t", "verification_status": "passed", "times": {"producer": 2.5}}`+"\n"+`{"task_id": "u", "verification_status": "failed"}`+"\n")
	r := report.Summarize([]*report.Source{s}).Runs[0]
	if r.Counts.Passed != 1 || r.Distributions.Producer.P50 != 2.5 || len(r.Problems) != 0 {
		t.Errorf("%+v", r)
	}
	for i := range s.Attempts {
		_, err := s.Detail(t.Context(), i, 1<<20)
		must.Report(t, err)
	}
}

// TestNothing: a run without records has no accuracy, and no form says NaN.
func TestNothing(t *testing.T) {
	r := report.Summarize([]*report.Source{directory(t, ""), directory(t, "")})
	data := must.JSON(t, r)
	if r.Runs[0].Accuracy.Value != nil || r.Runs[0].Accuracy.Wilson != nil || bytes.Contains(data, []byte("NaN")) {
		t.Errorf("%s", data)
	}
	var plain, markdown bytes.Buffer
	must.Do(t, text.Write(&plain, r))
	must.Do(t, text.WriteMarkdown(&markdown, r))
	if bytes.Contains(plain.Bytes(), []byte("NaN")) || bytes.Contains(markdown.Bytes(), []byte("NaN")) {
		t.Errorf("%s\n%s", &plain, &markdown)
	}
}

// TestBroken: a line that is not a record is a problem, and is not counted.
func TestBroken(t *testing.T) {
	good := a{task: "t", attempt: 1, try: 1, status: "passed"}.line(0)
	s := directory(t, good+"{\n"+`{"task_id": "u"}`+"\n"+`{"verification_status": "passed"}`+"\n\n"+good[:40])
	var got []string
	for _, p := range s.Problems {
		got = append(got, p.String())
	}
	want := []string{
		"candidates.jsonl:2: no record: unexpected end of JSON input",
		"candidates.jsonl:3: no record: its verification_status is unknown",
		"candidates.jsonl:4: no record: it has no task_id",
		"candidates.jsonl:6: the last line is not whole: the run was stopped while it wrote it, or is writing it now",
	}
	if diff := cmp.Diff(want, got); diff != "" || s.Records != 1 {
		t.Errorf("%d records\n%s", s.Records, diff)
	}
	if _, err := report.Open(t.Context(), t.TempDir()); err == nil {
		t.Error("a directory without records is a run")
	}
}

// TestLargeManifest: the manifest of a large shard is read, as a merge reads it.
func TestLargeManifest(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "shard")
	attempts := map[string][]int{}
	for i := range 50_000 {
		attempts[fmt.Sprintf("benchmark/task-%d", i)] = []int{1}
	}
	l, err := record.Create(dir, record.Manifest{RunID: "large", Planned: len(attempts), Shard: &record.Shard{Index: 1, Count: 2, Attempts: attempts}})
	must.Do(t, err)
	must.Do(t, l.Close())
	s, err := report.Open(t.Context(), dir)
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	if len(s.Problems) > 0 || s.Planned != len(attempts) {
		t.Errorf("planned %d, problems %v", s.Planned, s.Problems)
	}
}
