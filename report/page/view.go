package page

import (
	"fmt"
	"strings"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

const (
	maxCells  = 4000 // attempts drawn as cells
	maxDots   = 2000 // attempts drawn as dots
	maxGroups = 24   // rows of a chart
	maxDiffer = 60   // tasks in the list of a comparison
)

// A view is what the template shows.
type view struct {
	Title       string
	Runs        []runView
	Comparisons []comparisonView
}

type runView struct {
	report.Run
	Index    int
	Letter   string
	Several  bool // there are other runs
	Span     *span
	Parts    []part
	Cells    []cell
	CellsCut int
	Families []groupView
	Category []groupView
	Outcomes []outcomeView
	Curve    *curve
	Measures []histogram
	Scatter  *scatter
	Slow     []slowView
	Took     string
}

// A span is an interval with a value in it, in percent of the width.
type span struct{ Low, High, Width, At string }

func newSpan(value float64, i stat.Interval) *span {
	return &span{pc(i.Low), pc(i.High), pc(i.High - i.Low), pc(value)}
}

// pc is a share as an SVG length.
func pc(share float64) string { return fmt.Sprintf("%.2f%%", 100*min(max(share, 0), 1)) }

// A part is of a bar.
type part struct {
	Status      string
	Count       int
	Start, Size string
	Query       string
}

type cell struct {
	Row           int
	Status, Title string
}

type groupView struct {
	report.Group
	Query string
	Span  *span
}

type outcomeView struct {
	report.Outcome
	Query, Size string
}

type slowView struct {
	report.Slow
	Row                    int
	Producer, Verifier, At string // widths, and where the second begins
}

func newView(r report.Report, sources []*report.Source) view {
	var v view
	var titles []string
	first := 0
	for i, run := range r.Runs {
		v.Runs = append(v.Runs, newRun(i, run, sources[i], first))
		v.Runs[i].Several = len(r.Runs) > 1
		first += len(sources[i].Attempts)
		if i < 4 {
			titles = append(titles, report.Visible(run.Title(), 40))
		}
	}
	v.Title = strings.Join(titles, ", ")
	for _, c := range r.Comparisons {
		v.Comparisons = append(v.Comparisons, newComparison(r, c))
	}
	return v
}

func newRun(index int, r report.Run, s *report.Source, first int) runView {
	v := runView{Run: r, Index: index, Letter: letter(index), Parts: parts(r.Counts)}
	if i := r.Accuracy.Interval(); i != nil {
		v.Span = newSpan(*r.Accuracy.Value, *i)
	}
	if r.StartedAt != nil && r.EndedAt != nil {
		v.Took = report.Seconds(r.EndedAt.Sub(*r.StartedAt).Seconds())
	}
	v.Families, v.Category = groups("family", r.ByFamily), groups("category", r.ByCategory)
	v.Cells, v.CellsCut = cells(s, first)
	v.Outcomes = outcomes(r.Outcomes)
	v.Curve = newCurve(r)
	v.Measures = histograms(s.Attempts)
	v.Scatter = newScatter(s.Attempts, first)
	v.Slow = slow(r.Slowest, s, first)
	return v
}

// letter names the runs of a comparison.
func letter(i int) string {
	if i < 26 {
		return string(rune('A' + i))
	}
	return fmt.Sprint(i + 1)
}

func parts(c report.Counts) []part {
	var list []part
	at := 0
	for _, p := range []part{{Status: "passed", Count: c.Passed}, {Status: "failed", Count: c.Failed}, {Status: "pending", Count: c.Pending}, {Status: "error", Count: c.Errors}} {
		if p.Count == 0 {
			continue
		}
		p.Start, p.Size = pc(float64(at)/float64(c.Attempts)), pc(float64(p.Count)/float64(c.Attempts))
		p.Query = term("status", p.Status)
		at += p.Count
		list = append(list, p)
	}
	return list
}

// term is a word of the table's filter. A quote cannot be written in one: what is
// before it will do.
func term(key, value string) string {
	value, _, _ = strings.Cut(cut(value), `"`)
	return key + `:"` + value + `"`
}

func cells(s *report.Source, first int) ([]cell, int) {
	var list []cell
	for i, a := range s.Attempts {
		if i == maxCells {
			return list, len(s.Attempts) - i
		}
		title := report.Visible(a.Task, 80)
		if a.Number > 1 {
			title += fmt.Sprintf(" #%d", a.Number)
		}
		list = append(list, cell{first + i, string(a.Status), title + ": " + words(a)})
	}
	return list, 0
}

// words say how an attempt ended.
func words(a report.Attempt) string {
	if a.Reason == "" {
		return string(a.Status)
	}
	return string(a.Status) + ", " + report.Visible(a.Reason, 40)
}

func groups(key string, list []report.Group) []groupView {
	var views []groupView
	for i, g := range list {
		if i == maxGroups {
			break
		}
		v := groupView{Group: g, Query: term(key, g.Name)}
		if i := g.Accuracy.Interval(); i != nil {
			v.Span = newSpan(*g.Accuracy.Value, *i)
		}
		views = append(views, v)
	}
	return views
}

func outcomes(list []report.Outcome) []outcomeView {
	most := 1
	var views []outcomeView
	for _, o := range list {
		if o.Status != record.Passed {
			most = max(most, o.Count)
		}
	}
	for _, o := range list {
		if o.Status == record.Passed || len(views) == maxGroups {
			continue
		}
		query := term("status", string(o.Status))
		if o.Reason != "" {
			query += " " + term("reason", o.Reason)
		}
		views = append(views, outcomeView{o, query, pc(float64(o.Count) / float64(most))})
	}
	return views
}

func slow(list []report.Slow, s *report.Source, first int) []slowView {
	rows := map[string]int{}
	for i, a := range s.Attempts {
		rows[fmt.Sprint(a.Number, " ", a.Task)] = first + i
	}
	var views []slowView
	for _, o := range list {
		whole := list[0].Total
		v := slowView{Slow: o, Row: rows[fmt.Sprint(o.Attempt, " ", o.TaskID)]}
		v.Producer, v.Verifier, v.At = pc(o.Producer/whole), pc(o.Verifier/whole), pc(o.Producer/whole)
		if o.Producer+o.Verifier == 0 {
			v.Producer = pc(o.Total / whole)
		}
		views = append(views, v)
	}
	return views
}

type comparisonView struct {
	report.Comparison
	A, B       string
	Span       *span // on an axis from -100 to 100 points
	Scale      string
	Differ     []report.Differs
	DifferMore int
	LetterA    string
	LetterB    string
}

func newComparison(r report.Report, c report.Comparison) comparisonView {
	v := comparisonView{Comparison: c, A: r.Runs[c.A].Title(), B: r.Runs[c.B].Title(), LetterA: letter(c.A), LetterB: letter(c.B)}
	v.Differ = c.Differ[:min(len(c.Differ), maxDiffer)]
	v.DifferMore = len(c.Differ) - len(v.Differ)
	if i := c.Interval; i != nil {
		// The axis is as wide as it must be, in steps.
		scale := 1.0
		for _, s := range []float64{0.1, 0.25, 0.5} {
			if max(-i.Low, i.High) <= s {
				scale = s
				break
			}
		}
		on := func(d float64) float64 { return 0.5 + d/scale/2 }
		v.Span = newSpan(on(c.Difference), stat.Interval{Low: on(i.Low), High: on(i.High)})
		v.Scale = fmt.Sprintf("%.0f", 100*scale)
	}
	return v
}

// Query finds a task in the table.
func (comparisonView) Query(task string) string { return term("task", task) }
