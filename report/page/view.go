package page

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

const (
	maxCells  = 4000 // cells of the matrix
	maxWide   = 40   // cells of a task and a run that are shown in columns
	maxGroups = 24   // rows of a chart
	maxDiffer = 60   // tasks in a list of a comparison
)

// A view is the data of the template.
type view struct {
	Title       string
	Live        bool
	Leaders     []report.Leader // nil for a single run
	Runs        []runView
	Comparisons []comparisonView
	Matrix      []matrixRow
	MatrixCut   int // tasks without a row
}

// A matrixRow has a task's attempts by run and number. A mark without a status means no attempt.
type matrixRow struct {
	Task string
	Runs [][]mark
}

type runView struct {
	report.Run // with lists cut to what is shown
	Index      int
	Several    bool // there are other runs
	Parts      []part
	First      int // row of the first attempt
	MostFailed int // the largest Count of Outcomes
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

// A part is one status's part of the bar for all attempts.
type part struct {
	Status      string
	Count       int
	Start, Size float64
}

// A mark is an attempt, which is a row of the table.
type mark struct {
	Number int
	Title  string
	Row    int
	Status record.Status
}

func (p Page) view() view {
	r := p.Report
	v := view{Live: p.Live != ""}
	var titles []string
	first := 0
	for i, run := range r.Runs {
		v.Runs = append(v.Runs, newRun(i, run, first))
		v.Runs[i].Several = len(r.Runs) > 1
		first += len(p.Sources[i].Attempts)
		if i < 4 {
			titles = append(titles, report.Visible(run.Title(), 40))
		}
	}
	v.Title = strings.Join(titles, ", ")
	if len(r.Runs) > 1 {
		v.Leaders = r.Leaders()
	}
	for _, c := range r.Comparisons {
		v.Comparisons = append(v.Comparisons, newComparison(r, c))
	}
	v.Matrix, v.MatrixCut = p.matrix()
	return v
}

// matrix returns the rows of the matrix of tasks by attempts, and how many are left out.
func (p Page) matrix() (rows []matrixRow, more int) {
	index := map[string]int{}
	wide := make([]int, len(p.Sources)) // cells of a run
	first := 0
	for run, s := range p.Sources {
		for i, a := range s.Attempts {
			at, ok := index[a.Task]
			if !ok {
				at = len(rows)
				index[a.Task] = at
				rows = append(rows, matrixRow{a.Task, make([][]mark, len(p.Sources))})
			}
			title := report.Visible(a.Task, 80)
			if a.Number > 1 {
				title += fmt.Sprintf(" #%d", a.Number)
			}
			cells := append(rows[at].Runs[run], mark{Number: a.Number, Row: first + i, Status: a.Status, Title: title + ": " + words(a)})
			rows[at].Runs[run], wide[run] = cells, max(wide[run], min(len(cells), maxWide))
		}
		first += len(s.Attempts)
	}
	slices.SortFunc(rows, func(a, b matrixRow) int { return report.Natural(a.Task, b.Task) })
	drawn := 0
	for i := range rows {
		if drawn >= maxCells {
			return rows[:i], len(rows) - i
		}
		for run, cells := range rows[i].Runs {
			slices.SortStableFunc(cells, func(a, b mark) int { return cmp.Compare(a.Number, b.Number) })
			for len(cells) < wide[run] {
				cells = append(cells, mark{})
			}
			cells = cells[:min(len(cells), maxCells)]
			rows[i].Runs[run], drawn = cells, drawn+len(cells)
		}
	}
	return rows, 0
}

func newRun(index int, r report.Run, first int) runView {
	v := runView{Run: r, Index: index, First: first}
	at, all := 0.0, float64(r.Counts.Attempts)
	for _, p := range []part{
		{Status: "passed", Count: r.Counts.Passed}, {Status: "failed", Count: r.Counts.Failed},
		{Status: "pending", Count: r.Counts.Pending}, {Status: "error", Count: r.Counts.Errors},
	} {
		if p.Count > 0 {
			p.Start, p.Size = at/all, float64(p.Count)/all
			at += float64(p.Count)
			v.Parts = append(v.Parts, p)
		}
	}
	if r.StartedAt != nil && r.EndedAt != nil {
		v.Took = report.Seconds(r.EndedAt.Sub(*r.StartedAt).Seconds())
	}
	v.ByFamily, v.ByCategory = r.ByFamily[:min(len(r.ByFamily), maxGroups)], r.ByCategory[:min(len(r.ByCategory), maxGroups)]
	v.Outcomes = slices.DeleteFunc(slices.Clone(r.Outcomes), func(o report.Outcome) bool { return o.Status == record.Passed })
	for _, o := range v.Outcomes {
		v.MostFailed = max(v.MostFailed, o.Count)
	}
	v.Outcomes = v.Outcomes[:min(len(v.Outcomes), maxGroups)]
	v.Slowest = slices.Clone(r.Slowest)
	for i, o := range v.Slowest {
		if o.Producer+o.Verifier == 0 {
			v.Slowest[i].Producer = o.Total
		}
	}
	return v
}

// Share returns the length of an outcome's count relative to the largest one.
func (v runView) Share(count int) string { return pc(float64(count) / float64(v.MostFailed)) }

// RowOf returns the row of one of the run's attempts in the table.
func (v runView) RowOf(attempt int) int { return v.First + attempt }

// A groupsView is a list of groups, and the key by which the table's filter finds their attempts.
type groupsView struct {
	Key  string
	List []report.Group
}

// term returns a term of the table's filter, with the value up to the first quote, which it cannot contain.
func term(key string, value any) string {
	text, _, _ := strings.Cut(cut(fmt.Sprint(value)), `"`)
	return key + `:"` + text + `"`
}

func words(a report.Attempt) string {
	if a.Reason == "" {
		return string(a.Status)
	}
	return string(a.Status) + ", " + report.Visible(a.Reason, 40)
}

type comparisonView struct {
	report.Comparison
	TitleA, TitleB string
	Span           *span // on an axis from -100 to 100 points
	Scale          string
	Lists          []differsView
}

// A differsView lists tasks that are better in a run, or worse.
type differsView struct {
	Words, Class string
	List         []report.Differs
	More         int
}

func newComparison(r report.Report, c report.Comparison) comparisonView {
	v := comparisonView{Comparison: c, TitleA: r.Runs[c.A].Title(), TitleB: r.Runs[c.B].Title()}
	better, worse := c.Apart()
	for _, l := range []differsView{{Words: "Better", Class: "up", List: better}, {Words: "Worse", Class: "down", List: worse}} {
		l.More = max(0, len(l.List)-maxDiffer)
		l.List = l.List[:len(l.List)-l.More]
		v.Lists = append(v.Lists, l)
	}
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
