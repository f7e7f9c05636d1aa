package page

import (
	"fmt"
	"math"
	"slices"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

// A histogram counts attempts by a measure, logarithmically if the largest is over twenty times the smallest.
type histogram struct {
	Name                   string
	Bars                   []bar
	Min, Median, High, Max string
	MedianAt, HighAt       float64
	Logarithmic            bool
}

// A bar is one status's part of a column.
type bar struct {
	Status              record.Status
	X, Width, Y, Height float64
}

// columns is the number of columns of a histogram.
const columns = 28

func histograms(attempts []report.Attempt) []histogram {
	var list []histogram
	for _, m := range report.Measures() {
		if h, ok := newHistogram(m, attempts); ok && m.Chart != "" {
			list = append(list, h)
		}
	}
	return list
}

func newHistogram(m report.Measure, attempts []report.Attempt) (histogram, bool) {
	var values []float64
	for _, a := range attempts {
		if v := m.Of(a); v > 0 && a.Status != record.Error {
			values = append(values, v)
		}
	}
	d := stat.Describe(values)
	if d.Count < 2 || d.Min == d.Max {
		return histogram{}, false
	}
	h := histogram{
		Name: m.Chart, Logarithmic: d.Max > 20*d.Min,
		Min: m.Write(d.Min), Median: m.Write(d.P50), High: m.Write(d.P90), Max: m.Write(d.Max),
	}
	at := func(v float64) float64 { return (v - d.Min) / (d.Max - d.Min) } // from 0 to 1
	if h.Logarithmic {
		at = func(v float64) float64 { return math.Log(v/d.Min) / math.Log(d.Max/d.Min) }
	}
	h.MedianAt, h.HighAt = at(d.P50), at(d.P90)
	h.Bars = bars(attempts, m.Of, at)
	return h, true
}

// bars stacks the statuses within each column.
func bars(attempts []report.Attempt, of func(report.Attempt) float64, at func(float64) float64) []bar {
	order := []record.Status{record.Passed, record.Failed, record.Pending}
	var counts [columns][3]int
	most := 1
	for _, a := range attempts {
		v, status := of(a), slices.Index(order, a.Status)
		if v <= 0 || status < 0 {
			continue
		}
		column := &counts[min(columns-1, int(at(v)*columns))]
		column[status]++
		most = max(most, column[0]+column[1]+column[2])
	}
	var list []bar
	for i, column := range counts {
		below := 0
		for status, n := range column {
			if n == 0 {
				continue
			}
			below += n
			list = append(list, bar{
				order[status], (float64(i) + 0.08) / columns, 0.84 / columns, 1 - float64(below)/float64(most), float64(n) / float64(most),
			})
		}
	}
	return list
}

// A curve shows pass@k and pass^k, each as dots and as a line in a square of 100 by 100.
type curve struct {
	Dots  [2][]mark
	Lines [2]string
	Most  int
}

func newCurve(r report.Run) *curve {
	if len(r.PassAtK) < 2 {
		return nil
	}
	c := &curve{Most: r.PassAtK[len(r.PassAtK)-1].K}
	for i, list := range [][]report.PassK{r.PassAtK, r.PassAllK} {
		for _, p := range list {
			if p.Value == nil {
				continue
			}
			x, y := float64(p.K-1)/float64(c.Most-1), 1-*p.Value
			c.Lines[i] += fmt.Sprintf("%.2f,%.2f ", 100*x, 100*y)
			c.Dots[i] = append(c.Dots[i], mark{X: x, Y: y, Title: fmt.Sprintf("k = %d: %s, over %d tasks", p.K, report.Percent(p.Value), p.Tasks)})
		}
	}
	return c
}

// A scatter has a dot for each attempt: time by tokens, both logarithmic.
type scatter struct {
	Dots        []mark
	Cut         int
	Left, Right string
	Bottom, Top string
}

func newScatter(attempts []report.Attempt, first int) *scatter {
	var rows []int
	var times, counts []float64
	for i, a := range attempts {
		if a.Tokens == nil || a.Total <= 0 || a.Tokens.Total() <= 0 || a.Status == record.Error {
			continue
		}
		rows, times, counts = append(rows, i), append(times, a.Total), append(counts, float64(a.Tokens.Total()))
	}
	t, c := stat.Describe(slices.Clone(times)), stat.Describe(slices.Clone(counts))
	if t.Count < 3 || t.Min == t.Max || c.Min == c.Max {
		return nil
	}
	on := func(v float64, d stat.Distribution) float64 {
		return 0.03 + 0.94*math.Log(v/d.Min)/math.Log(d.Max/d.Min)
	}
	s := &scatter{Left: report.Seconds(t.Min), Right: report.Seconds(t.Max), Bottom: report.Many(c.Min), Top: report.Many(c.Max)}
	for i, row := range rows[:min(len(rows), maxDots)] {
		a := attempts[row]
		title := fmt.Sprintf("%s: %s, %s, %s tokens", report.Visible(a.Task, 60), words(a), report.Seconds(times[i]), report.Many(counts[i]))
		s.Dots = append(s.Dots, mark{on(times[i], t), 1 - on(counts[i], c), title, first + row, a.Status})
	}
	s.Cut = len(rows) - len(s.Dots)
	return s
}
