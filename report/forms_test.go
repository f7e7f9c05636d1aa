package report_test

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"encoding/xml"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/export"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// planned writes records with messages, and a manifest that plans n attempts.
func planned(t *testing.T, n int, records ...map[string]any) *report.Source {
	t.Helper()
	dir := t.TempDir()
	var text bytes.Buffer
	for _, r := range records {
		must.Do(t, json.NewEncoder(&text).Encode(r))
	}
	manifest := must.JSON(t, map[string]any{"run_id": "=run", "planned": n})
	must.Do(t, os.WriteFile(filepath.Join(dir, "run.json"), manifest, 0o644))
	return opened(t, dir, text.String())
}

const evil = "=HYPERLINK(\"http://evil.example\")\t\r\n;=1+1\x00\x1b[31m]]><x a='&'>\u202e\ufffe\xff, \"q\""

// TestCSV: no cell is a formula, in spreadsheets with whatever separator, and the table is whole.
func TestCSV(t *testing.T) {
	var records []map[string]any
	starts := []string{"=", "+", "-", "@", "\t=", "\r=", " =", "＝", "＋", "－", "＠", ";=", "x; @", "task-10", "task-2"}
	for _, s := range starts {
		records = append(records, map[string]any{"task_id": s + evil, "category": s, "verification_status": "failed", "failure_reason": s, "failure_message": s + evil})
	}
	records = append(records, map[string]any{"task_id": "passed", "verification_status": "passed", "assurance": evil})
	s := planned(t, 0, records...)
	var out bytes.Buffer
	must.Do(t, export.CSV(&out, report.Summarize([]*report.Source{s}), []*report.Source{s}))
	for _, comma := range []rune{',', ';'} {
		in := csv.NewReader(bytes.NewReader(out.Bytes()))
		in.Comma, in.LazyQuotes, in.FieldsPerRecord = comma, comma == ';', -1
		rows, err := in.ReadAll()
		must.Do(t, err)
		if len(rows) != len(records)+1 {
			t.Fatalf("%d rows with %q", len(rows), comma)
		}
		for _, row := range rows {
			if comma == ',' && len(row) != len(rows[0]) {
				t.Errorf("%d cells: %q", len(row), row)
			}
			for _, cell := range row {
				if strings.ContainsAny(cell, "\t\r\n\x00\x1b") || strings.ContainsRune("=+-@＝＋－＠", []rune(strings.TrimLeft(cell, " \"") + ".")[0]) {
					t.Errorf("a formula, or a control character, divided at %q: %q", comma, cell)
				}
			}
		}
	}
	if two, ten := strings.Index(out.String(), "task-2="), strings.Index(out.String(), "task-10="); two < 0 || ten < two {
		t.Error("not in natural order")
	}
}

// TestJUnit: any text makes valid XML, and planned attempts without a record are an error.
func TestJUnit(t *testing.T) {
	s := planned(t, 9,
		map[string]any{"task_id": "one", "verification_status": "passed", "times": map[string]any{"producer": 1.5}},
		map[string]any{"task_id": evil, "task_type": evil, "verification_status": "failed", "failure_reason": evil, "failure_message": evil},
		map[string]any{"task_id": "three", "verification_status": "pending", "failure_reason": "no_verifier"},
		map[string]any{"task_id": "four", "attempt": 2, "verification_status": "error", "failure_message": "the provider failed"},
	)
	var out bytes.Buffer
	must.Do(t, export.JUnit(&out, report.Summarize([]*report.Source{s}), []*report.Source{s}))
	var got struct {
		Suite struct {
			Tests    int `xml:"tests,attr"`
			Failures int `xml:"failures,attr"`
			Errors   int `xml:"errors,attr"`
			Skipped  int `xml:"skipped,attr"`
			Cases    []struct {
				Name    string `xml:"name,attr"`
				Failure *struct {
					Message string `xml:"message,attr"`
				} `xml:"failure"`
				Error *struct {
					Message string `xml:"message,attr"`
				} `xml:"error"`
				Skipped *struct{} `xml:"skipped"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	must.Do(t, xml.Unmarshal(out.Bytes(), &got))
	suite := got.Suite
	if suite.Tests != 5 || suite.Failures != 1 || suite.Errors != 2 || suite.Skipped != 1 || len(suite.Cases) != 5 {
		t.Fatalf("%+v\n%s", suite, &out)
	}
	shown := report.Visible(strings.ToValidUTF8(evil, "\uFFFD"), 1000)
	failed, errored, missing := 0, suite.Cases[1], suite.Cases[4]
	for _, c := range suite.Cases {
		if c.Failure != nil {
			failed++
			if c.Name != shown || c.Failure.Message != shown {
				t.Errorf("%q: %q", c.Name, c.Failure.Message)
			}
		}
	}
	if failed != 1 || errored.Name != "four #2" || errored.Error.Message != "the provider failed" || missing.Error == nil || missing.Error.Message != "5 of 9 planned attempts are not recorded" {
		t.Errorf("%+v", suite.Cases)
	}
	if strings.ContainsAny(out.String(), "\x00\x1b\u202e") || !strings.Contains(out.String(), `<property name="partial"`) {
		t.Errorf("%s", &out)
	}
}

// TestRequire: passes with a weaker assurance than required count as failures, and nothing else changes.
func TestRequire(t *testing.T) {
	var all []map[string]any
	for _, a := range []string{"sealed", "contrasted", "executed", ""} {
		all = append(all, map[string]any{"task_id": "task" + a, "verification_status": "passed", "assurance": a})
	}
	all = append(all, map[string]any{"task_id": "wrong", "verification_status": "failed"})
	for required, want := range map[verifiers.Assurance]int{"": 4, verifiers.Contrasted: 2, verifiers.Sealed: 1} {
		s := planned(t, 5, all...)
		s.Require(required)
		if r := report.Summarize([]*report.Source{s}).Runs[0]; r.Counts.Passed != want || r.Counts.Failed != 5-want {
			t.Errorf("required %q: %+v", required, r.Counts)
		}
	}
}

// TestWarnings: a report warns of everything that makes a run's numbers doubtful, and of nothing else.
func TestWarnings(t *testing.T) {
	passed := func(task, assurance string) map[string]any {
		return map[string]any{"task_id": task, "verification_status": "passed", "assurance": assurance}
	}
	degraded, doubtful := passed("one", "sealed"), passed("one", "executed")
	doubtful["verifier_metadata"] = map[string]any{"doubtful": true}
	degraded["degraded"] = []string{"memory", "swap"}
	judged, late, guessed := passed("one", "sealed"), passed("one", "sealed"), passed("one", "contrasted")
	judged["verifier_metadata"], judged["provenance"] = map[string]any{"judge": map[string]any{}}, map[string]any{"policy": map[string]any{"judge": "a model"}}
	late["producer_failure"] = map[string]any{"reason": "producer_timeout"}
	guessed["contrast"] = map[string]any{"state": "uncalibrated"}
	for _, tt := range []struct {
		name    string
		planned int
		record  map[string]any
		doubt   bool
		want    string
	}{
		{"nothing", 1, passed("one", "contrasted"), false, ""},
		{"unknown plan", 0, passed("one", "sealed"), false, ""},
		{"fewer planned than recorded", -1, passed("one", "sealed"), false, ""},
		{"partial", 30, passed("one", "sealed"), false, "partial: 1 of 30 planned attempts are recorded: the run was interrupted, or is still going on"},
		{"degraded", 1, degraded, false, "degraded: the host did not enforce these limits: memory, swap"},
		{"executed", 1, passed("one", "executed"), false, "executed: 1 of 1 passes show only that the command succeeded, and that it can fail"},
		{"no assurance", 1, passed("one", ""), false, "executed: 1 of 1 passes show only that the command succeeded, and that it can fail"},
		{"doubtful", 1, doubtful, false, "executed: 1 of 1 passes show only that the command succeeded, and that it can fail\ndoubtful: the candidates of these tasks pass tests that expect something wrong: one"},
		{"unscored", 1, map[string]any{"task_id": "one", "verification_status": "error"}, false, "unscored: 1 error and 0 pending are left out of the accuracy"},
		{"judged", 1, judged, false, "judged: 1 answer judged by a model: a model"},
		{"late", 1, late, false, "after_timeout: 1 candidate judged although the harness ended badly, for example at its time limit"},
		{"uncalibrated", 1, guessed, false, "uncalibrated: 1 of 1 passes are of tasks without a reference solution, which would show the right answers to blind tests"},
		{"unverified", 1, passed("one", "sealed"), true, "unverified: candidates.jsonl: no seal"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := planned(t, tt.planned, tt.record)
			if tt.doubt {
				s.Problems = append(s.Problems, report.Problem{Finding: record.Finding{File: "candidates.jsonl", Message: "no seal"}, Unverified: true})
			}
			var got []string
			for _, w := range report.Summarize([]*report.Source{s}).Runs[0].Warnings() {
				got = append(got, w.Kind+": "+w.Text)
			}
			must.Equal(t, tt.want, strings.Join(got, "\n"))
		})
	}
}

// TestCauses: failures are grouped by cause, each with the most frequent message.
func TestCauses(t *testing.T) {
	fail := func(task, reason, message string) map[string]any {
		return map[string]any{"task_id": task, "verification_status": "failed", "failure_reason": reason, "failure_message": message}
	}
	s := planned(t, 4, fail("a", "tests_failed", "rare"), fail("b", "tests_failed", "usual"), fail("c", "tests_failed", "usual"), fail("d", "timeout", strings.Repeat("long", 400)))
	r := report.Summarize([]*report.Source{s}).Runs[0]
	if o := r.Outcomes[0]; len(r.Outcomes) != 2 || o.Count != 3 || o.Task != "b" || o.Index != 1 || o.Message != "usual" {
		t.Errorf("%+v", r.Outcomes)
	}
	if m := r.Outcomes[1].Message; len(m) > 650 || !strings.Contains(m, " … ") {
		t.Errorf("%d bytes", len(m))
	}
	if len(r.NotPassed) != 4 || r.NotPassed[2].Message != "usual" {
		t.Errorf("%+v", r.NotPassed)
	}
	var plain, markdown strings.Builder
	must.Do(t, text.Write(&plain, report.Report{Runs: []report.Run{r}}))
	must.Do(t, text.WriteMarkdown(&markdown, report.Report{Runs: []report.Run{r}}))
	for _, form := range []string{plain.String(), markdown.String()} {
		if strings.Count(form, "usual") != 3 || strings.Count(form, "rare") != 1 {
			t.Errorf("%s", form)
		}
	}
}

// TestOutcome: a run ends with its verdicts in the order in which the attempts began, and one line for each
// cause. Attempts that could not be measured for different reasons have different causes.
func TestOutcome(t *testing.T) {
	attempt := func(task, started, status, reason, message string, more map[string]any) map[string]any {
		r := map[string]any{"task_id": task, "verification_status": status, "failure_reason": reason, "failure_message": message, "started_at": "2026-01-01T00:00:" + started + "Z"}
		maps.Copy(r, more)
		return r
	}
	s := planned(t, 6,
		attempt("two", "02", "failed", "tests_failed", "an \x1b assertion failed", map[string]any{"attempt": 2}),
		attempt("one", "01", "passed", "", "", map[string]any{"assurance": "sealed", "ended_at": "2026-01-01T00:00:01.31Z"}),
		attempt("three", "03", "error", "infrastructure", "sandbox 1 cannot be made", nil),
		attempt("four", "04", "error", "infrastructure", "sandbox 2 cannot be made", nil),
		attempt("five", "05", "error", "infrastructure", "no space", nil))
	var out strings.Builder
	must.Do(t, text.WriteOutcome(&out, report.Summarize([]*report.Source{s}).Runs[0], s))
	const want = `TASK             VERDICT  TIME    REASON          MESSAGE
one              passed   310 ms  sealed          
two (attempt 2)  failed   –       tests_failed    an \x1b assertion failed
three            error    –       infrastructure  sandbox 1 cannot be made
four             error    –       infrastructure  sandbox 2 cannot be made
five             error    –       infrastructure  no space

! partial   5 of 6 planned attempts are recorded: the run was interrupted, or is still going on
! unscored  3 errors and 0 pending are left out of the accuracy
accuracy    50.0 % (20.0 % with errors as failures)   95 % interval 9.5–90.5 %   1 of 2 scored
passes      1 sealed
attempts    5 of 5 tasks: 1 passed, 1 failed, 0 pending, 3 errors

CAUSE           STATUS  PHASE  ATTEMPTS  EXAMPLE  MESSAGE
tests_failed    failed         1         two      an \x1b assertion failed
infrastructure  error          2         three    sandbox 1 cannot be made
infrastructure  error          1         five     no space
`
	must.Equal(t, want, out.String())
}

func TestNatural(t *testing.T) {
	order := []string{"", "a", "a01", "a1", "a2", "a10", "a10b", "a99999999999999999999", "a100000000000000000000", "b"}
	for i, a := range order {
		for j, b := range order {
			if got, want := report.Natural(a, b), min(1, max(-1, i-j)); got != want {
				t.Errorf("%q and %q: %d, want %d", a, b, got, want)
			}
		}
	}
}

// TestLeaders: the best run is first, a run without a verdict last.
func TestLeaders(t *testing.T) {
	run := func(statuses ...string) *report.Source {
		var records []map[string]any
		for i, s := range statuses {
			records = append(records, map[string]any{"task_id": string(rune('a' + i)), "verification_status": s})
		}
		return planned(t, len(statuses), records...)
	}
	r := report.Summarize([]*report.Source{run("failed", "passed"), run(), run("passed", "passed")})
	if got := r.Leaders(); got[0].Index != 2 || got[1].Index != 0 || got[2].Index != 1 {
		t.Errorf("%v", got)
	}
	var plain strings.Builder
	must.Do(t, text.Write(&plain, r))
	head, _, _ := strings.Cut(plain.String(), "\n\n")
	lines := strings.Split(head, "\n")
	if len(lines) != 4 || !strings.HasPrefix(lines[1], "C ") || !strings.Contains(lines[1], "+50.0 (") || !strings.Contains(lines[1], "1.000") {
		t.Errorf("%s", head)
	}
}
