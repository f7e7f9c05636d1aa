// Package page writes a report as one HTML file that needs neither a network nor another file.
//
// All text from records is hostile. It reaches the page in only two ways: through html/template, and as JSON in
// elements that are not executed, which the page's only script shows as text. The content security policy
// allows only this script, by its hash, and lets nothing be loaded or sent; a page served by sbench view may
// ask its server for new records. No library draws the charts: their style attributes and fixed colors fit
// neither the policy nor a dark mode.
package page

import (
	"bufio"
	"context"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"sync"

	"github.com/securebench/sbench/report"
)

var (
	//go:embed assets
	assets embed.FS
	//go:embed assets/page.css
	style string
)

// The texts of all attempts together have about allBytes. Attempts share them equally, within the bounds.
const (
	allBytes   = 48 << 20
	leastBytes = 6 << 10
	mostBytes  = 512 << 10
)

// A Page is a report with its sources.
type Page struct {
	Report  report.Report
	Sources []*report.Source
	// Live identifies the records of a page that a server shows. The page asks for wait?since=LIVE and reloads
	// itself after the answer 200. "" for a page in a file.
	Live string
}

// Write writes the page. It holds the details of one attempt at a time in memory.
func (p Page) Write(ctx context.Context, w io.Writer) error {
	script := program()
	out := bufio.NewWriterSize(w, 1<<16)
	put := func(text string) { _, _ = out.WriteString(text) } // out keeps the error
	put("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n")
	put("<meta http-equiv=\"Content-Security-Policy\" content=\"" + policy(script, p.Live != "") + "\">\n")
	put("<style>" + style + "</style>\n")
	if err := body().Execute(out, p.view()); err != nil { // what is visible without the script
		return err
	}
	if err := p.writeIndex(out); err != nil {
		return err
	}
	attempts := 0
	for _, s := range p.Sources {
		attempts += len(s.Attempts)
	}
	share := min(max(allBytes/max(1, attempts), leastBytes), mostBytes)
	n := 0
	for _, s := range p.Sources {
		for i := range s.Attempts {
			d, err := s.Detail(ctx, i, share)
			if err == nil {
				err = writeJSON(out, fmt.Sprintf("d%d", n), d)
			}
			if err != nil {
				return err
			}
			n++
		}
	}
	put("<script>" + script + "</script>\n</body>\n</html>\n")
	return out.Flush()
}

// program returns the page's only script.
func program() string {
	script := "\"use strict\";\n(() => {\n"
	for _, name := range []string{"text.js", "code.js", "table.js", "attempt.js", "app.js", "live.js"} {
		data, _ := assets.ReadFile("assets/" + name) // it is embedded
		script += string(data)
	}
	return script + "})();\n"
}

func policy(script string, live bool) string {
	connect := ""
	if live {
		connect = "; connect-src 'self'"
	}
	hash := func(text string) string {
		sum := sha256.Sum256([]byte(text))
		return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
	}
	return "default-src 'none'; style-src " + hash(style) + "; script-src " + hash(script) + connect +
		"; base-uri 'none'; form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
}

// writeJSON writes data for the script. json.Marshal escapes <, > and &, so that it cannot end the element.
func writeJSON(w io.Writer, id string, v any) error {
	data, err := json.Marshal(v)
	if err == nil {
		_, err = fmt.Fprintf(w, "<script type=\"application/json\" id=\"%s\">%s</script>\n", id, data)
	}
	return err
}

var body = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page.html").Funcs(template.FuncMap{
		"percent": report.Percent, "between": report.Between, "seconds": report.Seconds, "bytes": func(n float64) string { return report.Bytes(n) },
		"many": func(n int64) string { return report.Many(float64(n)) }, "name": report.NameOr, "points": report.Points, "ref": func(v float64) *float64 { return &v },
		"plain": func(s string) string { return report.Visible(s, 120) }, "short": func(s string) string { return report.Visible(s, 44) }, "long": func(s string) string { return report.Visible(s, 400) }, "letter": report.Letter,
		"pc": pc, "of": func(part, whole float64) string { return pc(part / whole) }, "span": spanOf, "term": term, "measureHeads": report.MeasureHeads, "groups": func(key string, list []report.Group) groupsView { return groupsView{key, list} },
	}).ParseFS(assets, "assets/*.html"))
})

// A row is an attempt in the table of attempts.
type row struct {
	Run       int     `json:"run"`
	Task      string  `json:"task"`
	Attempt   int     `json:"attempt"`
	Status    string  `json:"status"`
	Family    string  `json:"family"`
	Category  string  `json:"category"`
	Reason    string  `json:"reason"`
	Assurance string  `json:"assurance"` // of a pass, with "doubtful" if it is
	Phase     string  `json:"phase"`
	Message   string  `json:"message"`
	Seconds   float64 `json:"seconds"`
	Tokens    int64   `json:"tokens"`
	Cached    int64   `json:"cached"`
	Output    int64   `json:"output"`
	Memory    int64   `json:"memory"`
	Tries     int     `json:"tries"`
}

func (p Page) writeIndex(w io.Writer) error {
	var index struct {
		Runs []string `json:"runs"`
		Rows []row    `json:"rows"`
		Live string   `json:"live,omitempty"`
	}
	index.Rows, index.Live = []row{}, p.Live
	for i, s := range p.Sources {
		index.Runs = append(index.Runs, cut(p.Report.Runs[i].Title()))
		for _, a := range s.Attempts {
			row := row{
				Run: i, Task: cut(a.Task), Attempt: a.Number, Status: string(a.Status), Family: cut(a.Family), Category: cut(a.Category),
				Reason: cut(a.Reason), Assurance: assuranceOf(a), Phase: cut(a.Phase), Message: cut(a.Message), Seconds: a.Total, Memory: a.PeakMemory, Tries: len(a.Tries),
			}
			if t := a.Tokens; t != nil {
				row.Tokens, row.Cached, row.Output = t.Total(), t.Cached, t.Output
			}
			index.Rows = append(index.Rows, row)
		}
	}
	return writeJSON(w, "index", index)
}

func assuranceOf(a report.Attempt) string {
	if a.Doubtful {
		return a.Assurance + ", doubtful"
	}
	return a.Assurance
}

// cut bounds the length of a name.
func cut(s string) string {
	n := 0
	for i := range s {
		if n++; n > 200 {
			return s[:i] + "…"
		}
	}
	return s
}
