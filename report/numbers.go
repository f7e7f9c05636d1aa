package report

import (
	"fmt"
	"math"
	"strconv"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

// A measure is a number that attempts have.
type measure struct {
	name  string
	write func(float64) string  // formats a value with its unit
	of    func(Attempt) float64 // negative if unknown
	in    func(*Distributions) *stat.Distribution
}

// measures returns all measures, in the order to show them.
func measures() []measure {
	tokens := func(count func(proxy.Usage) int64) func(Attempt) float64 {
		return func(a Attempt) float64 {
			if a.Tokens == nil {
				return -1
			}
			return float64(count(*a.Tokens))
		}
	}
	return []measure{
		{"time, producer", Seconds, func(a Attempt) float64 { return unknownIfZero(a.Producer) }, func(d *Distributions) *stat.Distribution { return &d.Producer }},
		{"time, verifier", Seconds, func(a Attempt) float64 { return unknownIfZero(a.Verifier) }, func(d *Distributions) *stat.Distribution { return &d.Verifier }},
		{"time, total", Seconds, func(a Attempt) float64 { return unknownIfZero(a.Total) }, func(d *Distributions) *stat.Distribution { return &d.Total }},
		{"tokens, input", Many, tokens(func(t proxy.Usage) int64 { return t.Input }), func(d *Distributions) *stat.Distribution { return &d.Input }},
		{"tokens, cached", Many, tokens(func(t proxy.Usage) int64 { return t.Cached }), func(d *Distributions) *stat.Distribution { return &d.Cached }},
		{"tokens, output", Many, tokens(func(t proxy.Usage) int64 { return t.Output }), func(d *Distributions) *stat.Distribution { return &d.Output }},
		{"tokens, reasoning", Many, tokens(func(t proxy.Usage) int64 { return t.Reasoning }), func(d *Distributions) *stat.Distribution { return &d.Reasoning }},
		{"cost", Dollars, func(a Attempt) float64 { return unknownIfZero(a.Cost) }, func(d *Distributions) *stat.Distribution { return &d.Cost }},
		{"peak memory", Bytes, func(a Attempt) float64 { return unknownIfZero(float64(a.PeakMemory)) }, func(d *Distributions) *stat.Distribution { return &d.PeakMemory }},
	}
}

// unknownIfZero returns v, or -1 for 0, which means an unknown time or size.
func unknownIfZero(v float64) float64 {
	if v == 0 {
		return -1
	}
	return v
}

// distributions leaves out errors and unknown values.
func distributions(attempts []Attempt) (d Distributions) {
	for _, m := range measures() {
		var values []float64
		for _, a := range attempts {
			if v := m.of(a); v >= 0 && a.Status != record.Error {
				values = append(values, v)
			}
		}
		*m.in(&d) = stat.Describe(values)
	}
	return d
}

// Rows returns the rows of a table of distributions, with the heads of [MeasureHeads].
func (d Distributions) Rows() (rows [][]any) {
	for _, m := range measures() {
		if of := m.in(&d); of.Count > 0 {
			rows = append(rows, []any{m.name, of.Count, m.write(of.Min), m.write(of.P10), m.write(of.P50), m.write(of.P90), m.write(of.Max), m.write(of.Mean)})
		}
	}
	return rows
}

// MeasureHeads returns the heads of [Distributions.Rows].
func MeasureHeads() []string {
	return []string{"measure", "attempts", "min", "10 %", "median", "90 %", "max", "mean"}
}

// Percent formats a share as a percentage, nil as "–".
func Percent(share *float64) string {
	if share == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100**share)
}

// Between formats an interval of shares as percentages, nil as "–".
func Between(i *stat.Interval) string {
	if i == nil {
		return "–"
	}
	return fmt.Sprintf("%.1f–%.1f %%", 100*i.Low, 100*i.High)
}

// Points formats a difference of shares in percentage points, with its sign.
func Points(difference float64) string { return fmt.Sprintf("%+.1f", 100*difference) }

func chance(p float64) string {
	if p < 0.001 {
		return "< 0.001"
	}
	return fmt.Sprintf("%.3f", p)
}

// Seconds formats a time: three digits, from 100 s on min:sec, from an hour on h:min, and "–" if it is not above 0.
func Seconds(s float64) string {
	switch {
	case s <= 0:
		return "–"
	case s < 1:
		return fmt.Sprintf("%.0f ms", 1000*s)
	case s < 99.95:
		return digits(s) + " s"
	case s < 3600:
		whole := int(math.Round(s))
		return fmt.Sprintf("%d:%02d min", whole/60, whole%60)
	}
	whole := int(math.Round(s / 60))
	return fmt.Sprintf("%d:%02d h", whole/60, whole%60)
}

// Bytes formats a size in binary units.
func Bytes(n float64) string { return scaled(n, 1024, []string{" B", " KiB", " MiB", " GiB", " TiB"}) }

// Dollars formats an amount of US dollars: cents from one dollar on, four digits below.
func Dollars(v float64) string {
	if v >= 1 || v == 0 {
		return fmt.Sprintf("%.2f USD", v)
	}
	return fmt.Sprintf("%.4f USD", v)
}

// Many formats a count with three digits.
func Many(n float64) string { return scaled(n, 1000, []string{"", " k", " M", " G", " T"}) }

func scaled(n, step float64, units []string) string {
	if n <= 0 {
		return "0" + units[0]
	}
	unit := 0
	for ; n >= step*0.9995 && unit < len(units)-1; unit++ {
		n /= step
	}
	if unit == 0 {
		return strconv.FormatFloat(n, 'f', 0, 64) + units[0]
	}
	return digits(n) + units[unit]
}

// digits formats a number of at least 1 with three digits.
func digits(n float64) string {
	switch {
	case n < 9.995:
		return fmt.Sprintf("%.2f", n)
	case n < 99.95:
		return fmt.Sprintf("%.1f", n)
	}
	return fmt.Sprintf("%.0f", n)
}
