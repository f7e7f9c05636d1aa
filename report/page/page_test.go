package page_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
)

// write writes runs and their page, and returns the page's path.
func write(t *testing.T, runs ...example) string {
	t.Helper()
	var sources []*report.Source
	for _, run := range runs {
		dir := t.TempDir()
		check(t, run.write(dir))
		s, err := report.Open(t.Context(), dir)
		check(t, err)
		t.Cleanup(func() { check(t, s.Close()) })
		sources = append(sources, s)
	}
	name := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(name)
	check(t, err)
	check(t, page.Page{Report: report.Summarize(sources), Sources: sources}.Write(t.Context(), f))
	check(t, f.Close())
	return name
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPictures: the page is drawn, in light and dark mode. Whether it looks good is for
// people to judge.
func TestPictures(t *testing.T) {
	b := open(t)
	single := write(t, one())
	both := write(t, one(), two(), three())
	for _, dark := range []bool{false, true} {
		suffix := map[bool]string{true: "-dark", false: "-light"}[dark]
		b.size(1400, 1000, dark)
		b.load(single, "")
		overview := b.picture("overview" + suffix)
		b.eval("scrollTo(0, 900)")
		b.picture("charts" + suffix)
		b.load(single, "#tasks")
		b.press("ArrowDown", "ArrowDown")
		b.picture("table" + suffix)
		b.load(single, "#a2")
		b.picture("program" + suffix)
		b.load(single, "#a0")
		attempt := b.picture("attempt" + suffix)
		b.eval("document.querySelector('.part.candidate').scrollIntoView()")
		b.picture("patch" + suffix)
		b.eval("document.querySelector('.part.egress').scrollIntoView()")
		b.picture("egress" + suffix)
		b.load(both, "")
		b.picture("comparison" + suffix)
		b.size(390, 844, dark)
		b.load(both, "")
		b.picture("phone-overview" + suffix)
		for _, part := range []string{".matrix", "#run-0", "#run-0 .example", "#tasks"} {
			b.eval("document.querySelector('" + part + "').scrollIntoView()")
			b.picture("phone-" + strings.Trim(strings.ReplaceAll(part, " ", "-"), "#.") + suffix)
		}
		for _, part := range []string{".attempt-head", ".part.candidate", ".part.egress", ".part.usage", ".part.provenance"} {
			b.load(both, "#a0")
			b.eval("document.querySelector('" + part + "').scrollIntoView()")
			b.picture("phone" + strings.ReplaceAll(part, ".", "-") + suffix)
		}
		if bytes.Equal(overview, attempt) || len(overview) < 20000 {
			t.Errorf("the pictures are of nothing: %d and %d bytes", len(overview), len(attempt))
		}
		if said := b.said(); len(said) > 0 {
			t.Error(said)
		}
	}
}

func one() example {
	return example{RunID: "workbench-mini", Seed: 4, Tasks: 72, Attempts: 3, Skill: 0.72, Agent: "codex", Model: "large-1"}
}

func three() example {
	return example{RunID: "workbench-next", Seed: 11, Tasks: 40, Planned: 216, Attempts: 3, Skill: 0.8, Agent: "codex", Model: "large-3"}
}

func two() example {
	return example{RunID: "workbench-large", Seed: 9, Tasks: 72, Attempts: 3, Skill: 0.86, Agent: "claude_code", Model: "large-2", Output: 200000}
}
