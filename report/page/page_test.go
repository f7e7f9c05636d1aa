package page_test

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
)

func write(t *testing.T, runs ...example) string {
	t.Helper()
	var sources []*report.Source
	for _, run := range runs {
		s, err := report.Open(t.Context(), run.write(t))
		must.Do(t, err)
		t.Cleanup(func() { must.Do(t, s.Close()) })
		s.Private = true
		sources = append(sources, s)
	}
	return pageOf(t, sources...)
}

func pageOf(t *testing.T, sources ...*report.Source) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(name)
	must.Do(t, err)
	must.Do(t, page.Page{Report: report.Summarize(sources), Sources: sources}.Write(t.Context(), f))
	must.Do(t, f.Close())
	return name
}

// TestPageNumbers: the page has the table of what attempts took.
func TestPageNumbers(t *testing.T) {
	must.Contains(t, string(must.Read(t, write(t, one()))), "<th>median</th>", "<td>time, producer</td><td>2", "<td>peak memory</td>")
}

// TestPageViews: each view of a page is drawn and has what it is for. Whether it looks good is for people
// to judge: the directory that SBENCH_REPORT_PICTURES names gets the pictures.
func TestPageViews(t *testing.T) {
	dir := os.Getenv("SBENCH_REPORT_PICTURES")
	if dir == "" {
		dir = t.TempDir()
	}
	single, all := "file://"+write(t, one()), "file://"+write(t, one(), two(), three())
	for _, view := range []struct{ name, address, size, has string }{
		{"overview", single, "1400,1000", "216 attempts"},
		{"attempt", single + "#a0", "1400,1000", "python3 -m pytest -q"},
		{"directory", single + "#a1", "1400,1000", "etc/current → /etc/passwd"},
		{"runs", all, "1400,1000", "126 of 216 planned attempts are recorded"},
		{"phone", all, "390,844", "workbench-next"},
	} {
		file := filepath.Join(dir, "report-"+view.name+".png")
		browse(t, view.address, "--window-size="+view.size, "--screenshot="+file)
		if info, err := os.Stat(file); err != nil || info.Size() < 20000 {
			t.Errorf("%s: a picture of nothing: %v", view.name, err)
		}
		if shown := content.FindString(dump(t, view.address)); !strings.Contains(shown, view.has) {
			t.Errorf("%s has no %q", view.name, view.has)
		}
	}
	if shown := content.FindString(dump(t, single+"#q=slug")); !strings.Contains(shown, "24 of 216 attempts") {
		t.Error("the filter shows something else")
	}
}

// TestLittle: records that have next to nothing make pages, too: an empty trace, and none
// of the fields that this version writes.
func TestLittle(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "agent-trace.log"), nil, 0o644))
	must.Do(t, os.WriteFile(filepath.Join(dir, "candidates.jsonl"), []byte(`{"task_id": "task-10", "verification_status": "failed", "agent": {"name": "codex"}, "logs": [{"path": "agent-trace.log"}]}
{"task_id": "task-2", "verification_status": "passed", "producer_metadata": null, "provenance": null, "times": null}
{"task_id": "task-1", "verification_status": "error", "failure_message": "the provider failed", "candidate_workspace": "none"}
`), 0o644))
	s, err := report.Open(t.Context(), dir)
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	name := pageOf(t, s)
	for view, has := range map[string]string{"": "for example task-1", "#a0": "task-10", "#a1": "task-2", "#a2": "the provider failed"} {
		if shown := content.FindString(dump(t, "file://"+name+view)); !strings.Contains(shown, has) {
			t.Errorf("%q has no %q", view, has)
		}
	}
}

// TestImpossible: numbers that no run has, in somebody else's records, are numbers of a report.
func TestImpossible(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "candidates.jsonl"), []byte(`{"task_id": "a", "verification_status": "passed", "times": {"producer": 1e308, "verifier": 1e308}, "egress": {"relay": {"cost_usd": 1e308}}}
{"task_id": "b", "verification_status": "passed", "times": {"producer": 1e308, "verifier": 1e-308}, "egress": {"relay": {"cost_usd": 1e308}}}
{"task_id": "c", "verification_status": "passed", "times": {"producer": 1e-308, "verifier": 1}}
`), 0o644))
	s, err := report.Open(t.Context(), dir)
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	r := report.Summarize([]*report.Source{s})
	_, err = json.Marshal(r)
	must.Report(t, err)
	must.Do(t, page.Page{Report: r, Sources: []*report.Source{s}}.Write(t.Context(), io.Discard))
}

func one() example { return example{RunID: "workbench-mini", Copies: 12, Agent: "codex"} }

func three() example {
	return example{RunID: "workbench-next", Copies: 7, Planned: 216, Agent: "codex"}
}

func two() example {
	return example{RunID: "workbench-large", Copies: 12, Agent: "claude_code", Noise: 200000}
}
