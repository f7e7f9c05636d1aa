package page_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

const (
	rows   = `document.querySelectorAll("#rows tr").length`
	chosen = `document.querySelector("#rows .chosen .task")?.textContent ?? "none"`
	first  = `document.querySelector("#rows .task").textContent`
	shown  = `document.getElementById("shown").textContent`
	typed  = `document.activeElement.id`
	titled = `document.querySelector("#attempt h1")?.textContent ?? "none"`
)

// TestKeyboard uses the page without a mouse.
func TestKeyboard(t *testing.T) {
	b := open(t)
	b.size(1400, 1000, false)
	b.load(write(t, one()), "")
	b.want(shown, "216 attempts")

	b.press("ArrowDown")
	b.want(chosen, "algorithms/merge-001")
	b.press("ArrowDown", "j", "ArrowUp")
	b.want(chosen, "algorithms/merge-001")
	b.press("Enter")
	b.want("location.hash", "#a74") // its second attempt, in the order of the records
	b.want("document.getElementById('overview').hidden", "true")
	b.want(titled, b.eval(`JSON.parse(document.getElementById("index").textContent).rows[74].status`)+" algorithms/merge-001")
	b.press("ArrowRight")
	b.want("location.hash", "#a146")
	b.press("ArrowLeft", "ArrowLeft", "ArrowLeft")
	b.want("location.hash", "#a2")
	b.press("Escape")
	b.want("location.hash", "#tasks")
	b.want(chosen, "algorithms/merge-001")

	b.press("/")
	b.want(typed, "filter")
	b.press(strings.Split("slug", "")...)
	b.want(shown, "24 of 216 attempts")
	b.want(first, "bug fixes/slug-001")
	b.press("ArrowDown", "ArrowDown")
	b.want(chosen, "bug fixes/slug-001")
	b.press("Enter")
	b.want("location.hash", "#a75")
	b.press("ArrowRight") // the next attempt that matches
	b.want("location.hash", "#a147")
	b.press("Escape", "Escape")
	b.want(shown, "216 attempts")
	b.want("document.getElementById('filter').value", "")

	b.press("/", "d") // d is typed into the filter, and does not change the colors
	b.want("document.documentElement.dataset.theme ?? 'none'", "none")
	b.press("Escape", "Escape")
	b.want("getComputedStyle(document.body).backgroundColor", "rgb(244, 245, 248)")
	b.press("d")
	b.want("document.documentElement.dataset.theme", "dark")
	b.want("getComputedStyle(document.body).backgroundColor", "rgb(13, 16, 22)")
	if said := b.said(); len(said) > 0 {
		t.Error(said)
	}
}

// TestFilter: the table shows the attempts that match the filter.
func TestFilter(t *testing.T) {
	b := open(t)
	name := write(t, one())
	type row struct{ Task, Status, Family, Category, Reason string }
	var index struct{ Rows []row }
	text := regexp.MustCompile(`id="index">(.*?)</script>`).FindStringSubmatch(read(t, name))
	check(t, json.Unmarshal([]byte(text[1]), &index))
	b.load(name, "")
	tests := []struct {
		query string
		keep  func(row) bool
	}{
		{"status:failed", func(r row) bool { return r.Status == "failed" }},
		{"status:error", func(r row) bool { return r.Status == "error" }},
		{"family:repo_patch status:passed", func(r row) bool { return r.Family == "repo_patch" && r.Status == "passed" }},
		{`category:"bug fixes"`, func(r row) bool { return r.Category == "bug fixes" }},
		{"reason:tests", func(r row) bool { return strings.Contains(r.Reason, "tests") }},
		{"MERGE passed", func(r row) bool { return strings.Contains(r.Task, "merge") && r.Status == "passed" }},
		{"no such thing", func(row) bool { return false }},
	}
	for _, tt := range tests {
		n := 0
		for _, r := range index.Rows {
			if tt.keep(r) {
				n++
			}
		}
		if n == 0 && tt.query != "no such thing" {
			t.Fatalf("%q: the example has none", tt.query)
		}
		quoted, err := json.Marshal(tt.query)
		check(t, err)
		b.eval(`location.hash = "q=" + encodeURIComponent(` + string(quoted) + `)`)
		b.settle()
		b.want(shown, fmt.Sprintf("%d of 216 attempts", n))
		b.want("String(document.getElementById('none').hidden)", fmt.Sprint(n > 0))
		b.want("document.getElementById('filter').value", tt.query)
	}
	b.eval(`location.hash = "q="`)
	b.settle()
	b.eval(`document.querySelector('[data-key=seconds] button').click()`)
	sorted := `(() => { const rows = JSON.parse(document.getElementById("index").textContent).rows; const best = rows.reduce((a, r) => r.seconds %s a.seconds ? r : a); return rows.some(r => r.seconds === best.seconds && r.task === document.querySelector("#rows .task").textContent); })()`
	b.want(fmt.Sprintf(sorted, ">"), "true")
	b.want(`document.querySelector('[data-key=seconds]').ariaSort`, "descending")
	b.eval(`document.querySelector('[data-key=seconds] button').click()`)
	b.want(fmt.Sprintf(sorted, "<"), "true")
	b.eval(`document.querySelector('[data-key=seconds] button').click()`)
	b.want(first, "algorithms/merge-001")
	b.eval(`document.querySelector('.chip.failed').click()`)
	b.want("document.getElementById('filter').value", `status:"failed"`)
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	check(t, err)
	return string(data)
}

// TestAttempt: the page of an attempt shows everything that was kept of it.
func TestAttempt(t *testing.T) {
	b := open(t)
	name := write(t, one(), two())
	b.load(name, "#a0")
	parts := `[...document.querySelectorAll("#attempt .part")].map(p => p.dataset.name).join(", ")`
	b.want(parts, "Prompt, Agent trace, Candidate: a patch, Verifier, Network, Limits and usage, Producer's output, Provenance")
	b.want(`[...document.querySelectorAll(".trace .command pre:first-child")].some(p => p.textContent === "python3 -m pytest -q")`, "true")
	b.want(`document.querySelector(".trace .exit").textContent`, "exit 1")
	b.want(`[...document.querySelectorAll(".file .path")].map(p => p.textContent).join()`, "textkit/words.py,CHANGES")
	b.want(`[...document.querySelectorAll(".file .counts")].map(p => p.textContent).join()`, "+7 −2,+2 −0")
	b.want(`document.querySelectorAll(".egress .badge.deny").length`, "1")
	b.want(`document.querySelector(".provenance").textContent.includes("this line")`, "true")
	b.want(`document.querySelector(".part.verifier").textContent.includes("collected 20 items")`, "true")
	b.want(`document.querySelector(".part.verifier").textContent.includes("a log of the harness")`, "false")
	b.want(`document.querySelector(".part.producer").textContent.includes("a log of the harness")`, "true")
	b.load(name, "#a1")
	b.want(`document.querySelector(".candidate .files").textContent.includes("etc/current → /etc/passwd")`, "true")
	b.want(`document.querySelector(".candidate .files").textContent.includes("root:")`, "false")
	b.load(name, "#a216") // the other run's agent
	b.want(`[...document.querySelectorAll(".trace .command pre:first-child")].some(p => p.textContent === "python3 -m pytest -q")`, "true")
	b.want(`document.querySelector(".edits .add").textContent.trim()`, "+slug: one dash.")
	b.load(name, "#a99999")
	b.want("document.getElementById('overview').hidden", "false")
}

// TestMany: a page with thousands of attempts opens, makes rows as they are needed, and
// stays within its size limit.
func TestMany(t *testing.T) {
	b := open(t)
	run := example{RunID: "many", Seed: 1, Tasks: 5000, Skill: 0.7, Agent: "codex", Model: "m", Output: 20000}
	name := write(t, run)
	info, err := os.Stat(name)
	check(t, err)
	if info.Size() > 96<<20 {
		t.Errorf("%s has %d bytes", filepath.Base(name), info.Size())
	}
	b.size(1400, 1000, false)
	b.load(name, "")
	b.want(rows, "150")
	took := b.eval("performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd")
	t.Logf("%d MiB, %s ms to open", info.Size()>>20, took)
	b.press("ArrowDown", "End")
	b.want(chosen, "writing/explain-555")
	b.press("Enter")
	b.want("document.getElementById('attempt').hidden", "false")
	b.want(`document.querySelectorAll("#attempt .part").length > 2`, "true")
}
