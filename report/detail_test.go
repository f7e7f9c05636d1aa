package report_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/report"
)

// TestOutside: whatever a record names, the report reads nothing outside the run's directory and does not block.
func TestOutside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "secret")
	must.Do(t, os.WriteFile(outside, []byte("SECRET"), 0o600))
	up, err := filepath.Rel("/x/run", outside)
	must.Do(t, err)
	paths := map[string]func(dir string) error{
		outside:         nil,
		"../" + up:      nil,
		"..":            nil,
		"logs/link":     func(dir string) error { return os.Symlink(outside, filepath.Join(dir, "logs/link")) },
		"logs/way/x":    func(dir string) error { return os.Symlink(filepath.Dir(outside), filepath.Join(dir, "logs/way")) },
		"logs/pipe":     func(dir string) error { return syscall.Mkfifo(filepath.Join(dir, "logs/pipe"), 0o600) },
		"logs":          nil,
		"logs/missing":  nil,
		"\x00":          nil,
		"/proc/self/fd": nil,
	}
	for path, prepare := range paths {
		dir := t.TempDir()
		must.Do(t, os.Mkdir(filepath.Join(dir, "logs"), 0o755))
		if prepare != nil {
			must.Do(t, prepare(dir))
		}
		line := must.JSON(t, map[string]any{"task_id": "t", "verification_status": "failed", "candidate_workspace": path, "logs": []map[string]any{{"path": path}}})
		d, err := opened(t, dir, string(line)).Detail(t.Context(), 0, 1<<20)
		must.Do(t, err)
		data := must.JSON(t, d)
		if len(d.Logs) > 0 || len(d.Missing) == 0 || strings.Contains(string(data), "SECRET") {
			t.Errorf("%q: %s", path, data)
		}
	}
}

// TestEgress reads lines written by the proxy's own log.
func TestEgress(t *testing.T) {
	records := []a{{task: "t", attempt: 1, try: 1, status: "passed", producer: 60}, {task: "t", attempt: 2, try: 2, status: "passed", producer: 60}}
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "egress.jsonl"))
	must.Do(t, err)
	log := proxy.NewLog(f)
	s := opened(t, dir, records[0].line(0)+records[1].line(5))
	at := s.Attempts[1].Started
	log.Try = 1
	log.Write(proxy.Entry{Time: at.Add(1), Task: "t", Attempt: 2, Kind: proxy.KindDNS, Host: "early.example", Verdict: proxy.Deny}) // the clock was set back
	log.Try = 2
	log.Write(proxy.Entry{Time: at, Task: "other", Attempt: 2, Kind: proxy.KindDNS, Host: "other.example", Verdict: proxy.Deny})
	_, err = f.WriteString("no entry\n")
	must.Do(t, err)
	for i := range 500 {
		log.Write(proxy.Entry{
			Time: at, Task: "t", Attempt: 2, Kind: proxy.KindRelay, Host: "h", Port: 443, Verdict: proxy.Allow, Up: 1, Down: int64(i), Duration: 2e9, Method: "POST", Path: "/p",
			Status: 200, Model: "m", Stripped: []string{"web_search"}, Usage: &proxy.Usage{Input: 5, Cached: 4, Output: 3, Reasoning: 2},
		})
	}
	must.Do(t, f.Close())
	d, err := s.Detail(t.Context(), 1, 1<<20)
	must.Do(t, err)
	e := d.Egress
	if e.Allowed != 500 || e.Denied != 1 || e.Errors != 0 || len(e.Entries)+e.More != 501 || len(e.Entries) != 200 || !e.Entries[0].Earlier || e.Entries[0].Host != "early.example" {
		t.Errorf("%d entries, %+v", len(e.Entries), e)
	}
	got := e.Entries[2]
	want := report.Entry{
		At: "2026-01-01 00:05:00.000", Kind: "relay", Verdict: "allow", Host: "h", Port: 443, Up: 1, Down: 1, Duration: 2000, Method: "POST", Path: "/p", Status: 200, Model: "m",
		Stripped: []string{"web_search"}, Usage: &proxy.Usage{Input: 5, Cached: 4, Output: 3, Reasoning: 2},
	}
	must.Equal(t, want, got)
	if first, err := s.Detail(t.Context(), 0, 1<<20); err != nil || first.Egress != nil {
		t.Errorf("%+v, %v", first.Egress, err)
	}
}

// TestChanged: records that change while they are read are an error, and not
// another attempt's page.
func TestChanged(t *testing.T) {
	dir := t.TempDir()
	s := opened(t, dir, a{task: "one", status: "passed"}.line(0))
	must.Do(t, os.WriteFile(filepath.Join(dir, "candidates.jsonl"), []byte(a{task: "two", status: "passed"}.line(0)), 0o644))
	if _, err := s.Detail(t.Context(), 0, 1<<20); err == nil {
		t.Error("no error")
	}
}

// TestVisible: no control characters reach a terminal, and nothing is invisible.
func TestVisible(t *testing.T) {
	tests := []struct{ text, want string }{
		{"plain – ünïcödé 日本 😀", "plain – ünïcödé 日本 😀"},
		{"a\nb\tc\r", `a\nb\tc\x0d`},
		{"\x1b[31mred\x1b[0m\x07\x00\x7f", `\x1b[31mred\x1b[0m\x07\x00\x7f`},
		{"\u009b2J\u0085", `\u{9b}2J\u{85}`},
		{"\u202eabc\u2066\u200f\u061c", `\u{202e}abc\u{2066}\u{200f}\u{61c}`},
		{"\u200b\ufeff\u00ad\u2028\u00a0\u3164\U000e0041\ufe0f", `\u{200b}\u{feff}\u{ad}\u{2028}\u{a0}\u{3164}\u{e0041}\u{fe0f}`},
		{"\xff\xfe\xed\xa0\x80", `\xff\xfe\xed\xa0\x80`},
		{"\uFFFD", "\uFFFD"},
		{strings.Repeat("é", 50), strings.Repeat("é", 50)},
		{strings.Repeat("é", 51), strings.Repeat("é", 50) + "…"},
	}
	for _, tt := range tests {
		if got := report.Visible(tt.text, 50); got != tt.want {
			t.Errorf("%q became %q, want %q", tt.text, got, tt.want)
		}
	}
}

func TestNumbersForPeople(t *testing.T) {
	var got []string
	for _, s := range []float64{0, 0.0004, 0.25, 1, 9.994, 9.996, 42.25, 99.94, 99.96, 3599, 3600, 90061} {
		got = append(got, report.Seconds(s))
	}
	for _, n := range []float64{0, 999, 1000, 12345, 999499, 999500, 5e9} {
		got = append(got, report.Many(n))
	}
	for _, n := range []float64{1023, 1024, 1 << 20, 1.5 * (1 << 30)} {
		got = append(got, report.Bytes(n))
	}
	got = append(got, report.Chance(0.0001), report.Chance(0.04), report.Points(-0.125), report.Percent(nil))
	want := "– 0 ms 250 ms 1.00 s 9.99 s 10.0 s 42.2 s 99.9 s 1:40 min 59:59 min 1:00 h 25:01 h " +
		"0 999 1.00 k 12.3 k 999 k 1.00 M 5.00 G 1023 B 1.00 KiB 1.00 MiB 1.50 GiB < 0.001 0.040 -12.5 –"
	must.Equal(t, want, strings.Join(got, " "))
}

// TestKept: Missing names the part of a log that the run did not keep.
func TestKept(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.WriteFile(filepath.Join(dir, "x.txt"), []byte("kept"), 0o644))
	d, err := opened(t, dir, `{"task_id": "t", "verification_status": "failed", "logs": [{"path": "x.txt", "bytes": 4, "cut": 9}]}`).Detail(t.Context(), 0, 1<<20)
	must.Do(t, err)
	must.Equal(t, []string{"x.txt: its last 9 bytes, which the run did not keep"}, d.Missing)
	must.Equal(t, []report.Named{{Name: "x.txt", Text: report.Text{Head: "kept"}}}, d.Logs)
}

// TestDeepDirectory: directories that are too deep hide no file beside them, and of very many not all are visited.
func TestDeepDirectory(t *testing.T) {
	dir := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(dir, "w", strings.Repeat("a/", 14)), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "w/solution.py"), []byte("x = 1\n"), 0o644))
	of := opened(t, dir, `{"task_id": "t", "verification_status": "failed", "candidate_workspace": "w"}`)
	d, err := of.Detail(t.Context(), 0, 1<<20)
	must.Do(t, err)
	if files := d.Candidate.Files; len(files) != 1 || files[0].Path != "solution.py" || !d.Candidate.More {
		t.Errorf("%+v, more: %v", files, d.Candidate.More)
	}
	for i := range 2001 {
		must.Do(t, os.Mkdir(filepath.Join(dir, "w", "z"+strconv.Itoa(i)), 0o755))
	}
	d, err = of.Detail(t.Context(), 0, 1<<20)
	must.Do(t, err)
	if len(d.Candidate.Files) != 1 || !d.Candidate.More {
		t.Errorf("%+v, more: %v", d.Candidate.Files, d.Candidate.More)
	}
}
