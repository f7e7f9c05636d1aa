package report

import (
	"github.com/securebench/sbench/report/stat"
	"github.com/securebench/sbench/run/record"
)

// A Measure is a number that attempts have.
type Measure struct {
	Name  string
	Chart string                // title of its histogram; "" has none
	Write func(float64) string  // formats a value with its unit
	Of    func(Attempt) float64 // negative if unknown

	in func(*Distributions) *stat.Distribution // where its distribution is
}

// Measures returns all measures, in the order to show them.
func Measures() []Measure {
	tokens := func(count func(Tokens) int64) func(Attempt) float64 {
		return func(a Attempt) float64 {
			if a.Tokens == nil {
				return -1
			}
			return float64(count(*a.Tokens))
		}
	}
	return []Measure{
		{"time, producer", "Time of the producer", Seconds, func(a Attempt) float64 { return known(a.Producer) }, func(d *Distributions) *stat.Distribution { return &d.Producer }},
		{"time, verifier", "Time of the verifier", Seconds, func(a Attempt) float64 { return known(a.Verifier) }, func(d *Distributions) *stat.Distribution { return &d.Verifier }},
		{"time, total", "", Seconds, func(a Attempt) float64 { return known(a.Total) }, func(d *Distributions) *stat.Distribution { return &d.Total }},
		{"tokens, input", "Tokens read", Many, tokens(func(t Tokens) int64 { return t.Input }), func(d *Distributions) *stat.Distribution { return &d.Input }},
		{"tokens, cached", "of them cached", Many, tokens(func(t Tokens) int64 { return t.Cached }), func(d *Distributions) *stat.Distribution { return &d.Cached }},
		{"tokens, output", "Tokens written", Many, tokens(func(t Tokens) int64 { return t.Output }), func(d *Distributions) *stat.Distribution { return &d.Output }},
		{"tokens, reasoning", "", Many, tokens(func(t Tokens) int64 { return t.Reasoning }), func(d *Distributions) *stat.Distribution { return &d.Reasoning }},
		{"cost", "Cost", dollars, func(a Attempt) float64 { return known(a.Cost) }, func(d *Distributions) *stat.Distribution { return &d.Cost }},
		{"peak memory", "Peak memory", Bytes, func(a Attempt) float64 { return known(float64(a.PeakMemory)) }, func(d *Distributions) *stat.Distribution { return &d.PeakMemory }},
	}
}

// known returns v, or -1 for 0, which means an unknown time or size.
func known(v float64) float64 {
	if v == 0 {
		return -1
	}
	return v
}

// distributions leaves out errors and unknown values.
func distributions(attempts []Attempt) (d Distributions) {
	for _, m := range Measures() {
		var values []float64
		for _, a := range attempts {
			if v := m.Of(a); v >= 0 && a.Status != record.Error {
				values = append(values, v)
			}
		}
		*m.in(&d) = stat.Describe(values)
	}
	return d
}
