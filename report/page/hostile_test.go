package page_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
)

// hostile returns what a candidate would write to take over the page, or to send
// something to its own server.
func hostile(server string) string {
	do := `document.title='TAKEN';window.taken=1;new Image().src='` + server + `/beacon';fetch('` + server + `/fetch')`
	return strings.Join([]string{
		`</script><script>` + do + `</script>`, `<script>` + do + `</script>`, `<!--<script>`, `-->`, `]]>`,
		`<img src=x onerror="` + do + `">`, `<img src="` + server + `/img">`, `"onmouseover="` + do + `" x="`, `'onfocus='` + do + `' autofocus='`,
		`<svg/onload="` + do + `">`, `<iframe srcdoc="<script>parent.` + do + `</script>">`, `<iframe src="` + server + `/frame">`,
		`<a href="javascript:` + do + `">x</a>`, `javascript:` + do, `data:text/html,<script>` + do + `</script>`,
		`<base href="` + server + `/">`, `<meta http-equiv="refresh" content="0;url=` + server + `/refresh">`, `<link rel=stylesheet href="` + server + `/css">`,
		`<style>@import "` + server + `/import"; body{background:url(` + server + `/url)}</style>`, `</style><script>` + do + `</script>`, `</title><script>` + do + `</script>`,
		`<form action="` + server + `/form"><button autofocus>x</button></form>`, `<object data="` + server + `/object"></object>`, `<embed src="` + server + `/embed">`,
		`{{.}}`, `{{template "run"}}`, "${" + do + "}", "`;" + do + ";`", `\u003cscript\u003e` + do, `&lt;script&gt;`, `<template><script>` + do + `</script></template>`,
		"\u202eevil\u202c", "\u2066x\u2069", "\u200b\u200d\ufeff", "\x00\x07\x1b[31mred\x1b[0m\x1b]0;title\x07\x9b", "\u2028\u2029", "__proto__", "constructor", "\U000e0041",
	}, "\n")
}

// stays returns hostile text without elements that lead the browser elsewhere, which no
// policy of a page can forbid.
func stays(server string) string {
	return regexp.MustCompile(`<(meta|base)[^>]*>`).ReplaceAllString(hostile(server), "")
}

// canary is a server that counts the requests that a page sends.
func canary(t *testing.T) (address string, hits *atomic.Int64) {
	t.Helper()
	hits = &atomic.Int64{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { hits.Add(1) }))
	t.Cleanup(server.Close)
	return server.URL, hits
}

// TestCanaryOfPage checks TestHostile: its hostile text takes over a page without defenses, and
// reaches the canary.
func TestCanaryOfPage(t *testing.T) {
	b := open(t)
	server, hits := canary(t)
	name := t.TempDir() + "/bare.html"
	check(t, os.WriteFile(name, []byte("<!doctype html><title>bare</title><body>"+stays(server)), 0o644))
	b.load(name, "")
	b.want("document.title", "TAKEN")
	b.want("window.taken", "1")
	if hits.Load() == 0 {
		t.Error("nothing reached the canary")
	}
}

// TestMarkup checks the markup of a hostile page without a browser.
func TestMarkup(t *testing.T) {
	run := example{RunID: hostile("http://127.0.0.1:9"), Seed: 3, Tasks: 27, Attempts: 2, Skill: 0.5, Agent: "codex", Hostile: hostile("http://127.0.0.1:9")}
	markup(t, write(t, run, run))
}

// TestHostile: with hostile text in every field, nothing of it runs, nothing is loaded or
// sent, and all of it can be read.
func TestHostile(t *testing.T) {
	b := open(t)
	server, hits := canary(t)
	run := example{RunID: "run " + hostile(server), Seed: 3, Tasks: 27, Attempts: 2, Skill: 0.5, Agent: "codex", Model: "m", Hostile: hostile(server)}
	other := run
	other.Agent, other.Seed = "claude_code", 5
	name := write(t, run, other)
	b.load(name, "")
	want := b.eval("document.title")
	harmless(t, b, want, "the overview")
	for i := range 108 {
		b.eval(fmt.Sprintf("location.hash = 'a%d'", i))
		b.settle()
		b.want("document.getElementById('attempt').hidden", "false")
		if i < 20 {
			b.eval("document.querySelectorAll('details').forEach(d => d.open = true); document.querySelectorAll('#attempt button.more').forEach(b => b.click())")
			harmless(t, b, "", fmt.Sprint("attempt ", i))
		}
	}
	b.want("document.getElementById('attempt').textContent.includes('<img src=x onerror=')", "true")
	b.want("document.querySelectorAll('#attempt .hidden').length > 20", "true")
	b.want(`/[\u202e\u2066\u200b\u0000\u001b\u{e0041}]/u.test(document.body.innerText)`, "false")
	// The filter in the address may be hostile, too.
	b.eval("location.hash = 'q=' + encodeURIComponent('<img src=x onerror=document.title=1>')")
	b.settle()
	harmless(t, b, want, "the filter")
	b.eval("location.hash = 'a__proto__'")
	b.settle()
	harmless(t, b, "", "an address that is none")
	if said := b.said(); len(said) > 0 {
		t.Errorf("the page complains, or asked for something: %.2000s", said)
	}
	if hits.Load() > 0 {
		t.Errorf("%d requests reached the canary", hits.Load())
	}
}

// harmless checks that hostile text has had no effect on the page.
func harmless(t *testing.T, b *browser, title, where string) {
	t.Helper()
	found := b.eval(`JSON.stringify({
		taken: window.taken === 1, title: document.title === "TAKEN",
		scripts: document.scripts.length - document.querySelectorAll('script[type="application/json"]').length,
		elements: [...new Set([...document.querySelectorAll("*")].map(e => e.localName))].filter(n => /^(img|iframe|object|embed|base|link|form|template|frame|audio|video)$/.test(n)),
		handlers: [...document.querySelectorAll("*")].filter(e => [...e.attributes].some(a => /^on|^style$|^srcdoc$/i.test(a.name))).length,
		links: [...document.querySelectorAll("[href],[src],[action]")].filter(e => !/^#/.test(e.getAttribute("href") ?? e.getAttribute("src") ?? e.getAttribute("action"))).length,
		styles: document.querySelectorAll("style").length, metas: document.querySelectorAll("meta").length,
	})`)
	if want := `{"taken":false,"title":false,"scripts":1,"elements":[],"handlers":0,"links":0,"styles":1,"metas":5}`; found != want {
		t.Errorf("%s: %s, want %s", where, found, want)
	}
	if title != "" {
		b.want("document.title", title)
	}
}

// markup checks the bytes of the file: everything that runs, or ends an element, is the
// page's own.
func markup(t *testing.T, name string) {
	t.Helper()
	data, err := os.ReadFile(name)
	check(t, err)
	text := string(data)
	tags := regexp.MustCompile(`(?i)<(/?script|!--|img|iframe|base|object|embed|form|link|style)[^>]*>?`).FindAllString(text, -1)
	count := map[string]int{}
	for _, tag := range tags {
		count[regexp.MustCompile(`id="[a-z0-9]+"`).ReplaceAllString(tag, "id")]++
	}
	want := map[string]int{`<script type="application/json" id>`: 109, `<script>`: 1, `</script>`: 110, `<style>`: 1}
	for tag, n := range count {
		if want[tag] != n {
			t.Errorf("%d times %.80q, want %d", n, tag, want[tag])
		}
	}
	if !strings.Contains(text, `content="default-src 'none'; style-src 'sha256-`) || strings.Contains(text, "unsafe-") {
		t.Error("the policy is not there, or is none")
	}
}

// TestPolicy: even a script that got into the page would not run, and could send
// nothing.
func TestPolicy(t *testing.T) {
	b := open(t)
	server, hits := canary(t)
	name := write(t, example{RunID: "r", Tasks: 3, Skill: 1, Agent: "codex"})
	data, err := os.ReadFile(name)
	check(t, err)
	broken := strings.Replace(string(data), "</footer>", "</footer>"+stays(server), 1)
	check(t, os.WriteFile(name, []byte(broken), 0o644))
	b.load(name, "")
	b.settle()
	b.want("window.taken === undefined", "true")
	b.want("document.title", "r · sbench report")
	// The policy holds for the page's own script, too.
	b.want(`(() => { try { document.body.innerHTML = "<b>x</b>"; return "markup"; } catch { return "refused"; } })()`, "refused")
	b.want(`(() => { try { return new Function("return 1")(); } catch { return "refused"; } })()`, "refused")
	b.want(`fetch("`+server+`/x").then(() => "sent", () => "refused")`, "refused")
	if n := hits.Load(); n > 0 {
		t.Errorf("%d requests reached the canary", n)
	}
}
