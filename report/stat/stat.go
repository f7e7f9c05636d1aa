// Package stat has the few statistics that a report needs. A second result says whether a value is defined: a
// share of nothing, for instance, is not. gonum's package stat has only the quantiles.
package stat

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Confidence is the confidence level of every interval here, and z its normal quantile.
const (
	Confidence = 0.95
	z          = 1.959963984540054
)

// An Interval is a confidence interval at the level [Confidence].
type Interval struct {
	Low  float64 `json:"low"`
	High float64 `json:"high"`
}

// Wilson returns the score interval of a share: Wilson, JASA 22 (1927). It assumes independent trials, and is
// defined for 0 <= passed <= n and n > 0.
func Wilson(passed, n int) (Interval, bool) {
	if n <= 0 || passed < 0 || passed > n {
		return Interval{}, false
	}
	total, share := float64(n), float64(passed)/float64(n)
	spread := z * math.Sqrt(share*(1-share)/total+z*z/(4*total*total))
	middle, scale := share+z*z/(2*total), 1+z*z/total
	i := Interval{max(0, (middle-spread)/scale), min(1, (middle+spread)/scale)}
	// At the ends the bounds are exact, without rounding errors.
	if passed == 0 {
		i.Low = 0
	}
	if passed == n {
		i.High = 1
	}
	return i, true
}

// PassAtK estimates, without bias, the chance that at least one of k attempts passes, from c of n that did:
// 1 - C(n-c, k)/C(n, k), see Chen et al., arXiv:2107.03374. It is not defined for k > n.
func PassAtK(n, c, k int) (float64, bool) {
	none, ok := PassAllK(n, n-c, k)
	return 1 - none, ok
}

// PassAllK estimates, without bias, the chance that all of k attempts pass
// (pass^k), from c of n that did: C(c, k)/C(n, k). It is not defined for k > n.
func PassAllK(n, c, k int) (float64, bool) {
	if k < 1 || k > n || c < 0 || c > n {
		return 0, false
	}
	p := 1.0
	for i := range k {
		p *= float64(max(0, c-i)) / float64(n-i)
	}
	return p, true
}

// McNemar returns the exact two-sided p-value of McNemar's test: the probability that the pairs that differ
// split at least as unevenly as these if neither side is better. It is 1 without such pairs.
func McNemar(onlyA, onlyB int) float64 {
	n, few := onlyA+onlyB, min(onlyA, onlyB)
	if few < 0 || n == 0 {
		return 1
	}
	whole, _ := math.Lgamma(float64(n + 1))
	tail := 0.0
	for i := range few + 1 {
		a, _ := math.Lgamma(float64(i + 1))
		b, _ := math.Lgamma(float64(n - i + 1))
		tail += math.Exp(whole - a - b - float64(n)*math.Ln2)
	}
	return min(1, 2*tail)
}

// resamples is the number of resamples of a bootstrap.
const resamples = 10000

// A Cluster is a set of values that are drawn together: a task's attempts.
type Cluster struct {
	Sum float64 // of the values
	N   int     // how many there are
}

// Bootstrap returns the percentile interval of the mean over all members of clusters, which are drawn with
// replacement. It is deterministic, and not defined for fewer than two clusters.
func Bootstrap(clusters []Cluster) (Interval, bool) {
	if len(clusters) < 2 {
		return Interval{}, false
	}
	random := rand.New(rand.NewPCG(1, 2))
	means := make([]float64, resamples)
	for i := range means {
		var sum float64
		var n int
		for range clusters {
			c := clusters[random.IntN(len(clusters))]
			sum, n = sum+c.Sum, n+c.N
		}
		if n > 0 {
			means[i] = sum / float64(n)
		}
	}
	slices.Sort(means)
	return Interval{quantile(means, (1-Confidence)/2), quantile(means, (1+Confidence)/2)}, true
}

// quantile returns the q-quantile of sorted values, 0 <= q <= 1, interpolated between the two nearest (Hyndman
// and Fan's type 7, the default of R and NumPy). There is at least one value.
func quantile(sorted []float64, q float64) float64 {
	at := q * float64(len(sorted)-1)
	below := int(at)
	if below >= len(sorted)-1 {
		return sorted[len(sorted)-1]
	}
	return sorted[below] + (at-float64(below))*(sorted[below+1]-sorted[below])
}

// A Distribution sums up values. The zero Distribution sums up no values.
type Distribution struct {
	Count int     `json:"count"`
	Sum   float64 `json:"sum"`
	Mean  float64 `json:"mean"`
	Min   float64 `json:"min"`
	P10   float64 `json:"p10"`
	P25   float64 `json:"p25"`
	P50   float64 `json:"p50"`
	P75   float64 `json:"p75"`
	P90   float64 `json:"p90"`
	P99   float64 `json:"p99"`
	Max   float64 `json:"max"`
}

// Describe sums up values. It sorts them in place.
func Describe(values []float64) Distribution {
	if len(values) == 0 {
		return Distribution{}
	}
	slices.Sort(values)
	d := Distribution{Count: len(values), Min: values[0], Max: values[len(values)-1]}
	for _, v := range values {
		d.Sum += v
	}
	d.Mean = d.Sum / float64(d.Count)
	d.P10, d.P25, d.P50 = quantile(values, 0.10), quantile(values, 0.25), quantile(values, 0.50)
	d.P75, d.P90, d.P99 = quantile(values, 0.75), quantile(values, 0.90), quantile(values, 0.99)
	return d
}
