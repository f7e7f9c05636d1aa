package page

import (
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
		at = func(v float64) float64 { return (math.Log(v) - math.Log(d.Min)) / (math.Log(d.Max) - math.Log(d.Min)) }
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
