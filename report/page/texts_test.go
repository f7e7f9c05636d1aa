package page_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
	forms "github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run/record"
)

// TestDetail reads every attempt of an invented run.
func TestDetail(t *testing.T) {
	s, err := report.Open(t.Context(), example{RunID: "r", Copies: 6, Agent: "codex", Noise: 1 << 18}.write(t))
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	if len(s.Attempts) != 108 || len(s.Problems) != 0 || s.Records < 108 {
		t.Fatalf("%d attempts, %d records, problems %v", len(s.Attempts), s.Records, s.Problems)
	}
	kinds := map[string]int{}
	for i, a := range s.Attempts {
		public, err := s.Detail(t.Context(), i, 60000)
		must.Do(t, err)
		s.Private = true
		d, err := s.Detail(t.Context(), i, 60000)
		must.Do(t, err)
		if len(d.Missing) > 0 || len(d.Facts) < 15 || len(d.Tries) != len(a.Tries) {
			t.Errorf("%s: missing %v, %d facts, %d tries", a.Task, d.Missing, len(d.Facts), len(d.Tries))
		}
		s.Private = false
		if judged := public.Private != ""; judged != (d.Private == "shown") || judged != !d.Verifier.Stdout.Empty() || !public.Verifier.Stdout.Empty() {
			t.Errorf("%s: %q without the private part, and with it %q", a.Task, public.Private, d.Private)
		}
		data := must.JSON(t, d)
		if len(data) > 120000 {
			t.Errorf("%s: %d bytes", a.Task, len(data))
		}
		switch c := d.Candidate; {
		case c.Patch != nil:
			kinds["patch"]++
		case c.Directory != "":
			kinds["directory"]++
			if len(c.Files) != 7 || c.Files[3].Link != "/etc/passwd" || c.Files[3].Text != nil || c.Files[1].Text != nil || c.Files[2].Text == nil {
				t.Errorf("%s: %+v", a.Task, c.Files)
			}
		case c.Text != nil:
			kinds["text"]++
		default:
			kinds[string(a.Status)]++
			continue
		}
		if d.Prompt.Empty() || len(d.Trace.Steps) < 10 || len(d.Egress.Entries) < 6 || d.Egress.Denied == 0 {
			t.Errorf("%s: prompt %v, trace %v, egress %v", a.Task, d.Prompt, d.Trace, d.Egress)
		}
	}
	for _, kind := range []string{"patch", "directory", "text", "error"} {
		if kinds[kind] == 0 {
			t.Errorf("the example has no %s: %v", kind, kinds)
		}
	}
}

// TestHostileTexts: the terminal and Markdown forms contain nothing that a candidate
// wrote unescaped.
func TestHostileTexts(t *testing.T) {
	const hostile = "\x1b]0;x\x07 | `<img src=x>` @everyone #1 [x](javascript:x) \u202e www.evil.example </details> **b**\n# head"
	s, err := report.Open(t.Context(), example{RunID: "r" + hostile, Copies: 1, Agent: "codex" + hostile, Hostile: hostile}.write(t))
	must.Do(t, err)
	defer func() { must.Do(t, s.Close()) }()
	r := report.Summarize([]*report.Source{s, s})
	r.Comparisons[0].Differ = append(r.Comparisons[0].Differ, report.Differs{TaskID: hostile, ScoredA: 1, ScoredB: 1})
	r.Runs[0].Problems = append(r.Runs[0].Problems, report.Problem{Finding: record.Finding{File: hostile, Message: hostile}})
	var plain, markdown strings.Builder
	must.Do(t, forms.Write(&plain, r))
	must.Do(t, forms.WriteMarkdown(&markdown, r))
	for _, c := range plain.String() + markdown.String() {
		if c != '\n' && c != ' ' && report.Hidden(c) {
			t.Fatalf("a hidden character: %q", c)
		}
	}
	for _, line := range strings.Split(markdown.String(), "\n") {
		if strings.HasPrefix(line, "#") && !strings.HasPrefix(line, "### `") {
			t.Errorf("a heading: %s", line)
		}
		plain := outsideCode(line)
		if strings.ContainsAny(strings.ReplaceAll(plain, "pass@k", ""), "@#[]`\\") && !strings.HasPrefix(line, "###") || strings.Contains(plain, "evil") || strings.Contains(plain, "img") {
			t.Errorf("outside of code: %s", plain)
		}
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != strings.Count(plain, "|") {
			t.Errorf("a cell is broken: %s", line)
		}
	}
}

// outsideCode returns a line without its code spans.
func outsideCode(line string) string {
	var b strings.Builder
	for i, part := range strings.Split(line, "`") {
		if i%2 == 0 {
			b.WriteString(part)
		}
	}
	return b.String()
}
