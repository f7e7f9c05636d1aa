package page_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
)

// TestLittle: records that have next to nothing make pages, too: an empty trace, and none
// of the fields that this version writes.
func TestLittle(t *testing.T) {
	b := open(t)
	dir := t.TempDir()
	check(t, os.WriteFile(filepath.Join(dir, "agent-trace.log"), nil, 0o644))
	check(t, os.WriteFile(filepath.Join(dir, "candidates.jsonl"), []byte(`{"task_id": "task-10", "verification_status": "failed", "agent": {"name": "codex"}, "logs": [{"path": "agent-trace.log"}]}
{"task_id": "task-2", "verification_status": "passed", "producer_metadata": null, "provenance": null, "times": null}
{"task_id": "task-1", "verification_status": "error", "failure_message": "the provider failed", "candidate_workspace": "none"}
`), 0o644))
	name := written(t, dir)
	for i, task := range []string{"failed task-10", "passed task-2", "error task-1"} {
		b.load(name, fmt.Sprintf("#a%d", i))
		b.want(titled, task)
		b.want(`document.querySelector("#attempt .part.provenance") !== null`, "true")
		if said := b.said(); len(said) > 0 {
			t.Error(said)
		}
	}
	b.load(name, "")
	b.want(`[...document.querySelectorAll("#rows .task")].map(e => e.textContent).join()`, "task-1,task-2,task-10")
	b.want(`[...document.querySelectorAll(".matrix .l")].map(e => e.textContent).join()`, "task-1,task-2,task-10")
	b.want(`[...document.querySelectorAll("#heads th")].map(e => e.textContent).join()`, "Status,Task,Assurance,Message,Tries")
	b.want(`document.querySelector(".warning").textContent`, "executed of 1 of 1 passes it is known only that the command succeeded, and can failunscored 1 error and 0 pending are in no denominator")
	b.want(`document.querySelector(".example[href='#a2']").textContent`, "for example task-1: the provider failed")
}

// written writes the page of a run and returns its name.
func written(t *testing.T, dir string) string {
	t.Helper()
	s, err := report.Open(t.Context(), dir)
	check(t, err)
	defer func() { check(t, s.Close()) }()
	name := filepath.Join(t.TempDir(), "report.html")
	f, err := os.Create(name)
	check(t, err)
	check(t, page.Page{Report: report.Summarize([]*report.Source{s}), Sources: []*report.Source{s}}.Write(t.Context(), f))
	check(t, f.Close())
	return name
}

// TestPromptOnPage: code in a prompt is shown as code, and what is in it twice is shown once.
func TestPromptOnPage(t *testing.T) {
	b := open(t)
	dir := t.TempDir()
	const starter = "def add(a, b):\\n    return a + b\\n"
	check(t, os.WriteFile(filepath.Join(dir, "candidates.jsonl"), []byte(`{"task_id": "twice", "task_type": "code_completion", "verification_status": "failed", "resource_summary": [{"name": "prompt", "value": "`+starter+`"}, {"name": "starter_code", "value": "`+starter+`"}]}
{"task_id": "apart", "task_type": "code_completion", "verification_status": "failed", "resource_summary": [{"name": "prompt", "value": "Complete add."}, {"name": "starter_code", "value": "`+starter+`"}]}
`), 0o644))
	name := written(t, dir)
	shown := `[...document.querySelectorAll(".part.prompt pre")].map(p => p.className + " " + getComputedStyle(p).fontFamily.includes("monospace")).join()`
	b.load(name, "#a0")
	b.want(shown, "code true")
	b.load(name, "#a1")
	b.want(shown, "prose false,code true")
}

// TestLeaderLines: several runs stand in one table at the top, the best first, each against
// the first; better tasks and worse ones are apart; an interrupted run is called partial.
func TestLeaderLines(t *testing.T) {
	b := open(t)
	b.size(1400, 1000, false)
	name := write(t, one(), two(), three())
	b.load(name, "")
	b.want(`document.querySelector("#overview > :first-child").id`, "runs")
	b.want(`[...document.querySelectorAll(".leaders .letter")].map(e => e.textContent).join()`, "B,C,A")
	b.want(`/^\+[0-9.]+ \(\+[0-9.]+ to \+[0-9.]+\)$/.test(document.querySelector(".leaders tbody tr td:nth-child(5)").textContent)`, "true")
	b.want(`[...document.querySelectorAll(".leaders .flag")].some(e => e.textContent === "partial" && e.closest("tr").textContent.includes("workbench-next"))`, "true")
	b.want(`document.querySelector("#run-2 .warning").textContent.startsWith("partial 120 of 216 planned attempts are recorded")`, "true")
	b.want(`[...document.querySelectorAll("#compare .card:first-child h3")].map(e => e.textContent).join()`, "Better in B,Worse in B")
	b.want(`document.querySelectorAll(".matrix .m").length`, "72")
	b.want(`document.querySelectorAll(".matrix .m:first-child .cells a").length`, "9")
	b.want(`getComputedStyle(document.querySelector(".matrix a.failed"), "::before").content`, `"✗"`)
	if said := b.said(); len(said) > 0 {
		t.Error(said)
	}
}

// cramped returns what does not fit: a page that is wider than the window, and texts that
// are broken after fewer than four letters. Elements that scroll may be wide.
const cramped = `(() => {
	const found = [];
	if (document.documentElement.scrollWidth > innerWidth) found.push("the page is " + document.documentElement.scrollWidth + " wide");
	const range = document.createRange();
	const walk = document.createTreeWalker(document.querySelector("main:not([hidden])"), NodeFilter.SHOW_TEXT);
	for (let n; (n = walk.nextNode());) {
		const words = n.data.trim();
		if (words.length < 8 || n.parentElement.checkVisibility() === false || (/\n/.test(n.data) && getComputedStyle(n.parentElement).whiteSpace.startsWith("pre"))) continue;
		range.selectNodeContents(n);
		const lines = new Set([...range.getClientRects()].map(r => Math.round(r.top))).size;
		if (lines > 2 && words.length / lines < 4) found.push(n.parentElement.className + ": " + words.slice(0, 60));
	}
	return found.join("\n");
})()`

// TestPhone: on a phone, nothing is wider than the window, and no letters are stacked.
func TestPhone(t *testing.T) {
	b := open(t)
	name := write(t, one(), two(), three())
	b.size(390, 844, false)
	for _, hash := range []string{"", "#a0", "#a1", "#a2", "#a4", "#a216"} {
		b.load(name, hash)
		b.eval("document.querySelectorAll('details').forEach(d => d.open = true)")
		b.settle()
		if found := b.eval(cramped); found != "" {
			t.Errorf("%q: %.2000s", hash, found)
		}
	}
}

// TestLivePage: a page that a server shows asks that server only, and loads itself again when
// there is more, but not while an attempt is read; the filter stays.
func TestLivePage(t *testing.T) {
	b := open(t)
	dir := t.TempDir()
	check(t, example{RunID: "r", Seed: 3, Tasks: 9, Skill: 0.6, Agent: "codex"}.write(dir))
	var served atomic.Int32
	more, over := make(chan struct{}, 1), make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/wait") && r.URL.Query().Get("since") != fmt.Sprint("state ", served.Load()):
			t.Errorf("asked for %q", r.URL)
		case strings.HasSuffix(r.URL.Path, "/wait"):
			select {
			case <-more:
			case <-over:
			case <-r.Context().Done():
			}
		case r.URL.Path == "/x/":
			s, err := report.Open(r.Context(), dir)
			if err == nil {
				p := page.Page{Report: report.Summarize([]*report.Source{s}), Sources: []*report.Source{s}, Live: fmt.Sprint("state ", served.Add(1))}
				err = p.Write(r.Context(), w)
				err = errors.Join(err, s.Close())
			}
			if err != nil {
				t.Error(err)
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer func() {
		close(over) // the page waits for more, and a browser asks again if its connection is cut
		server.Close()
	}()
	b.visit(server.URL + "/x/")
	b.want(`document.getElementById("live").textContent`, "live")
	other, hits := canary(t)
	b.want(`fetch("`+other+`/x").then(() => "sent", () => "refused")`, "refused")
	b.eval(`location.hash = "q=" + encodeURIComponent("status:failed")`)
	b.eval(`location.hash = "a1"`)
	b.settle()
	more <- struct{}{}
	b.want(`new Promise(done => { const i = setInterval(() => { if (document.getElementById("live").textContent !== "live") { clearInterval(i); done(document.getElementById("live").textContent); } }, 20); })`, "live: there is more")
	b.want("document.getElementById('attempt').hidden", "false")
	b.events = nil
	b.strike("Escape") // which leaves the attempt, and so the page
	b.wait("Page.loadEventFired")
	b.want("document.getElementById('filter').value", "status:failed")
	if n := served.Load(); n != 2 {
		t.Errorf("the page was served %d times", n)
	}
	if hits.Load() > 0 {
		t.Error("the page asked another server")
	}
}
