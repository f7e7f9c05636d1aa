package page_test

import (
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// hostile returns what a candidate would write to take over the page, or to send something out.
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

// stays returns hostile text without elements that lead the browser elsewhere, as no policy can forbid.
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
	server, hits := canary(t)
	name := filepath.Join(t.TempDir(), "bare.html")
	must.Do(t, os.WriteFile(name, []byte("<!doctype html><title>bare</title><body>"+stays(server)), 0o644))
	if shown, _ := browser(t, "file://"+name, "--dump-dom"); !strings.Contains(shown, "<title>TAKEN</title>") || hits.Load() == 0 {
		t.Errorf("nothing was taken over, and %d requests reached the canary: %.500s", hits.Load(), shown)
	}
}

// TestMarkup checks the markup of a hostile page without a browser.
func TestMarkup(t *testing.T) {
	run := example{RunID: hostile("http://127.0.0.1:9"), Copies: 3, Agent: "codex", Hostile: hostile("http://127.0.0.1:9")}
	markup(t, write(t, run, run))
}

// TestHostile: hostile text in every field is not executed, loads nothing and sends nothing, and all of it can be
// read.
func TestHostile(t *testing.T) {
	server, hits := canary(t)
	run := example{RunID: "run " + hostile(server), Copies: 3, Agent: "codex", Hostile: hostile(server)}
	other := run
	other.Agent = "claude_code"
	name := "file://" + write(t, run, other)
	for _, view := range []string{"", "#a0", "#a1", "#a2", "#a3", "#a4", "#a5", "#a6", "#a7", "#a8", "#a54", "#a__proto__", "#q=" + url.QueryEscape("<img src=x onerror=document.title=1>")} {
		shown := dump(t, name+view)
		if found := foreign.FindAllString(content.FindString(shown), -1); found != nil || strings.Contains(shown, "<title>TAKEN") {
			t.Errorf("%q: the page has %q", view, found)
		}
		if attempt := regexp.MustCompile(`^#a\d`).MatchString(view); attempt && (!strings.Contains(shown, "&lt;img src=x onerror=") || !strings.Contains(shown, `class="hidden"`)) {
			t.Errorf("%q: the hostile text cannot be read", view)
		}
		if strings.ContainsAny(content.FindString(shown), "\u202e\u2066\u200b\x1b\U000e0041") {
			t.Errorf("%q: a hidden character", view)
		}
	}
	if hits.Load() > 0 {
		t.Errorf("%d requests reached the canary", hits.Load())
	}
}

var (
	content = regexp.MustCompile(`(?s)<body.*?<script`) // what is shown, before the data
	// foreign matches elements and attributes that the page itself has none of.
	foreign = regexp.MustCompile(`(?i)<(img|iframe|object|embed|base|link|form|frame|audio|video|script|style|meta)\b[^>]*>|<[a-z0-9]+\b[^>]*\s(on[a-z]+|style|srcdoc|src|action)=[^>]*>|<[^>]*\shref="[^#][^>]*>`)
)

// markup checks that everything that runs, or ends an element, is the page's own.
func markup(t *testing.T, name string) {
	t.Helper()
	data := must.Read(t, name)
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
	server, hits := canary(t)
	name := write(t, example{RunID: "r", Copies: 1, Agent: "codex"})
	data := must.Read(t, name)
	must.Do(t, os.WriteFile(name, []byte(strings.Replace(string(data), "</footer>", "</footer>"+stays(server), 1)), 0o644))
	shown, console := browser(t, "file://"+name, "--dump-dom")
	if !strings.Contains(shown, "<title>r · sbench report</title>") || !strings.Contains(strings.Join(console, "\n"), "Content Security Policy") || hits.Load() > 0 {
		t.Errorf("%d requests reached the canary, and the browser says: %.2000s", hits.Load(), strings.Join(console, "\n"))
	}
}
