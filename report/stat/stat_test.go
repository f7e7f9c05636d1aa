package stat_test

import (
	"math"
	"testing"

	"github.com/securebench/sbench/report/stat"
)

func near(a, b, by float64) bool { return math.Abs(a-b) <= by }

// TestWilson: the values are from Newcombe, Statistics in Medicine 17 (1998), table I,
// method 3, and for ten trials computed by hand.
func TestWilson(t *testing.T) {
	tests := []struct {
		passed, n int
		low, high float64
	}{
		{81, 263, 0.2553, 0.3662},
		{15, 148, 0.0624, 0.1605},
		{0, 20, 0, 0.1611},
		{1, 29, 0.0061, 0.1718},
		{5, 10, 0.2366, 0.7634},
		{0, 10, 0, 0.2775},
		{10, 10, 0.7225, 1},
		{1, 1, 0.2065, 1},
	}
	for _, tt := range tests {
		got, ok := stat.Wilson(tt.passed, tt.n)
		if !ok || !near(got.Low, tt.low, 5e-5) || !near(got.High, tt.high, 5e-5) {
			t.Errorf("Wilson(%d, %d) = %v %v, want [%v, %v]", tt.passed, tt.n, got, ok, tt.low, tt.high)
		}
	}
	for _, bad := range [][2]int{{0, 0}, {1, 0}, {-1, 3}, {4, 3}, {0, -1}} {
		if got, ok := stat.Wilson(bad[0], bad[1]); ok || got != (stat.Interval{}) {
			t.Errorf("Wilson(%d, %d) = %v", bad[0], bad[1], got)
		}
	}
}

func TestPassK(t *testing.T) {
	tests := []struct {
		n, c, k       int
		atLeast1, all float64
		ok            bool
	}{
		{5, 2, 1, 0.4, 0.4, true},
		{5, 2, 2, 0.7, 0.1, true}, // 1 - C(3,2)/C(5,2), C(2,2)/C(5,2)
		{5, 2, 3, 0.9, 0, true},   // 1 - C(3,3)/C(5,3)
		{5, 2, 4, 1, 0, true},     // fewer than four failed
		{5, 2, 5, 1, 0, true},
		{5, 2, 6, 0, 0, false}, // k > n
		{5, 0, 3, 0, 0, true},
		{5, 5, 5, 1, 1, true},
		{1, 1, 1, 1, 1, true},
		{0, 0, 1, 0, 0, false},
		{5, 2, 0, 0, 0, false},
		{5, 6, 1, 0, 0, false},
		{5, -1, 1, 0, 0, false},
		{200, 100, 10, 0.999229, 0.000771, true}, // C(100,10)/C(200,10)
	}
	for _, tt := range tests {
		at, ok := stat.PassAtK(tt.n, tt.c, tt.k)
		if ok != tt.ok || ok && !near(at, tt.atLeast1, 1e-6) {
			t.Errorf("PassAtK(%d, %d, %d) = %v %v, want %v %v", tt.n, tt.c, tt.k, at, ok, tt.atLeast1, tt.ok)
		}
		all, ok := stat.PassAllK(tt.n, tt.c, tt.k)
		if ok != tt.ok || ok && !near(all, tt.all, 1e-6) {
			t.Errorf("PassAllK(%d, %d, %d) = %v %v, want %v %v", tt.n, tt.c, tt.k, all, ok, tt.all, tt.ok)
		}
	}
}

func TestMcNemar(t *testing.T) {
	tests := []struct {
		a, b int
		want float64
	}{
		{0, 0, 1},
		{0, 1, 1},
		{0, 5, 2.0 / 32},
		{5, 0, 2.0 / 32},
		{1, 9, 22.0 / 1024}, // 2 (C(10,0) + C(10,1)) / 2^10
		{3, 3, 1},
		{2, 8, 112.0 / 1024}, // 2 (1 + 10 + 45) / 2^10
		{400, 600, 2.72846e-10},
	}
	for _, tt := range tests {
		if got := stat.McNemar(tt.a, tt.b); !near(got, tt.want, max(1e-12, tt.want*1e-4)) {
			t.Errorf("McNemar(%d, %d) = %v, want %v", tt.a, tt.b, got, tt.want)
		}
	}
}

// TestBootstrap checks known properties of the interval: near the normal interval for clusters of one value,
// wider for clusters of equal values, and the same each time.
func TestBootstrap(t *testing.T) {
	var single, pairs []stat.Cluster
	for i := range 400 {
		single = append(single, stat.Cluster{Sum: float64(i % 2), N: 1})
		if i < 200 {
			pairs = append(pairs, stat.Cluster{Sum: 2 * float64(i%2), N: 2})
		}
	}
	got, ok := stat.Bootstrap(single)
	half := 1.96 * 0.5 / math.Sqrt(400)
	if !ok || !near(got.Low, 0.5-half, 0.006) || !near(got.High, 0.5+half, 0.006) {
		t.Errorf("interval %v, want 0.5 ± %v", got, half)
	}
	again, _ := stat.Bootstrap(single)
	if again != got {
		t.Errorf("%v, then %v", got, again)
	}
	wide, _ := stat.Bootstrap(pairs)
	if wide.High-wide.Low < 1.3*(got.High-got.Low) {
		t.Errorf("pairs %v, single %v", wide, got)
	}
	if _, ok := stat.Bootstrap(single[:1]); ok {
		t.Error("an interval from one cluster")
	}
}
