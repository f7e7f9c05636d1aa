package page

import (
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

const (
	maxCells  = 4000 // attempts drawn as cells
	maxDots   = 2000 // attempts drawn as dots
	maxGroups = 24   // rows of a chart
	maxDiffer = 60   // tasks in the list of a comparison
)

// A view is the data of the template.
type view struct {
	Title       string
	Runs        []runView
	Comparisons []comparisonView
}

type runView struct {
	report.Run // with its lists cut to what is shown
	Letter     string
	Several    bool // there are other runs
	Parts      []part
	Cells      []mark
	CellsCut   int // attempts without a cell
	MostFailed int // the largest Count of Outcomes
	Curve      *curve
	Measures   []histogram
	Scatter    *scatter
	Slow       []slowView
	Took       string
}

// A span is an interval with a value in it, as shares of the axis.
type span struct{ Low, High, At float64 }

// Width returns the width of the interval.
func (s span) Width() float64 { return s.High - s.Low }

// spanOf returns the span of an accuracy, nil if it has no value.
func spanOf(a report.Accuracy) *span {
	if i := a.Interval(); i != nil {
		return &span{i.Low, i.High, *a.Value}
	}
	return nil
}

// pc returns a share as an SVG length.
func pc(share float64) string { return fmt.Sprintf("%.2f%%", 100*min(max(share, 0), 1)) }

// A part is one status's part of the bar of all attempts.
type part struct {
	Status      string
	Count       int
	Start, Size float64
}

// A mark stands for an attempt, which is a row of the table, or for a value of a curve.
type mark struct {
	X, Y   float64 // as shares of the axes, from the top left
	Title  string
	Row    int
	Status record.Status
}

type slowView struct {
	report.Slow
	Row int
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
	v := runView{Run: r, Letter: letter(index), Parts: parts(r.Counts)}
	if r.StartedAt != nil && r.EndedAt != nil {
		v.Took = report.Seconds(r.EndedAt.Sub(*r.StartedAt).Seconds())
	}
	v.ByFamily, v.ByCategory = r.ByFamily[:min(len(r.ByFamily), maxGroups)], r.ByCategory[:min(len(r.ByCategory), maxGroups)]
	v.Cells, v.CellsCut = cells(s, first)
	v.Outcomes = slices.DeleteFunc(slices.Clone(r.Outcomes), func(o report.Outcome) bool { return o.Status == record.Passed })
	for _, o := range v.Outcomes {
		v.MostFailed = max(v.MostFailed, o.Count)
	}
	v.Outcomes = v.Outcomes[:min(len(v.Outcomes), maxGroups)]
	v.Curve = newCurve(r)
	v.Measures = histograms(s.Attempts)
	v.Scatter = newScatter(s.Attempts, first)
	for _, o := range r.Slowest {
		if o.Producer+o.Verifier == 0 {
			o.Producer = o.Total
		}
		v.Slow = append(v.Slow, slowView{o, first + o.Index})
	}
	return v
}

// Share returns the length of an outcome's count relative to the largest one.
func (v runView) Share(count int) string { return pc(float64(count) / float64(v.MostFailed)) }

// A groupsView is a list of groups with the key by which the table's filter finds their
// attempts.
type groupsView struct {
	Key  string
	List []report.Group
}

// letter returns the name of a run in comparisons.
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
		p.Start, p.Size = float64(at)/float64(c.Attempts), float64(p.Count)/float64(c.Attempts)
		at += p.Count
		list = append(list, p)
	}
	return list
}

// term returns a term of the table's filter. A term cannot contain a quote: the value is
// cut at the first one.
func term(key string, value any) string {
	text, _, _ := strings.Cut(cut(fmt.Sprint(value)), `"`)
	return key + `:"` + text + `"`
}

func cells(s *report.Source, first int) (list []mark, cut int) {
	for i, a := range s.Attempts[:min(len(s.Attempts), maxCells)] {
		title := report.Visible(a.Task, 80)
		if a.Number > 1 {
			title += fmt.Sprintf(" #%d", a.Number)
		}
		list = append(list, mark{Row: first + i, Status: a.Status, Title: title + ": " + words(a)})
	}
	return list, len(s.Attempts) - len(list)
}

// words says how an attempt ended.
func words(a report.Attempt) string {
	if a.Reason == "" {
		return string(a.Status)
	}
	return string(a.Status) + ", " + report.Visible(a.Reason, 40)
}

type comparisonView struct {
	report.Comparison // with its Differ cut to what is shown
	A, B              string
	Span              *span // on an axis from -100 to 100 points
	Scale             string
	DifferMore        int
	LetterA, LetterB  string
}

func newComparison(r report.Report, c report.Comparison) comparisonView {
	v := comparisonView{Comparison: c, A: r.Runs[c.A].Title(), B: r.Runs[c.B].Title(), LetterA: letter(c.A), LetterB: letter(c.B)}
	v.Differ = c.Differ[:min(len(c.Differ), maxDiffer)]
	v.DifferMore = len(c.Differ) - len(v.Differ)
	if i := c.Interval; i != nil {
		// The axis is the shortest of four that holds the interval.
		scale := 1.0
		for _, s := range []float64{0.1, 0.25, 0.5} {
			if max(-i.Low, i.High) <= s {
				scale = s
				break
			}
		}
		on := func(d float64) float64 { return 0.5 + d/scale/2 }
		v.Span = &span{on(i.Low), on(i.High), on(c.Difference)}
		v.Scale = fmt.Sprintf("%.0f", 100*scale)
	}
	return v
}
