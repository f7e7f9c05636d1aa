package report

import (
	"cmp"
	"math"
	"slices"

	"github.com/securebench/sbench/report/stat"
)

// compare compares the tasks that both runs scored. a and b are the runs' indices.
func compare(a, b int, from, to *Source) Comparison {
	c := Comparison{A: a, B: b, Differ: []Differs{}}
	others, scored := map[string]Task{}, 0
	for _, t := range tasksOf(to.Attempts) {
		others[t.TaskID] = t
		if t.Scored > 0 {
			scored++
		}
	}
	var pairs []Differs
	both := 0.0 // tasks that are the same in both, errors included
	for _, t := range tasksOf(from.Attempts) {
		other := others[t.TaskID] // zero if there is none
		same := t.rows == "" || other.rows == "" || t.rows == other.rows
		if same && t.Scored+t.Errors > 0 && other.Scored+other.Errors > 0 {
			both++
			c.WithErrorsA += (t.withErrors() - c.WithErrorsA) / both
			c.WithErrorsB += (other.withErrors() - c.WithErrorsB) / both
		}
		switch {
		case t.Scored == 0:
		case other.Scored == 0:
			c.OnlyA++
		case !same:
			c.Different++
		default:
			pairs = append(pairs, Differs{t.TaskID, t.share(), other.share(), t.Scored, other.Scored})
		}
	}
	c.Tasks, c.OnlyB = len(pairs), scored-c.Different-len(pairs)
	c.sum(pairs)
	return c
}

// share returns the share of scored attempts that passed.
func (t Task) share() float64 { return float64(t.Passed) / float64(t.Scored) }

// withErrors is share with errors as failures.
func (t Task) withErrors() float64 { return float64(t.Passed) / float64(t.Scored+t.Errors) }

// Apart returns the tasks of Differ that are better in B, and those that are worse.
func (c Comparison) Apart() (better, worse []Differs) {
	for _, d := range c.Differ {
		if d.B > d.A {
			better = append(better, d)
		} else {
			worse = append(worse, d)
		}
	}
	return better, worse
}

func (c *Comparison) sum(pairs []Differs) {
	if len(pairs) == 0 {
		return
	}
	clusters := make([]stat.Cluster, len(pairs))
	for i, p := range pairs {
		c.MeanA, c.MeanB = c.MeanA+p.A, c.MeanB+p.B
		clusters[i] = stat.Cluster{Sum: p.B - p.A, N: 1}
		if p.A != p.B {
			c.Differ = append(c.Differ, p)
		}
	}
	better, worse := c.Apart()
	c.Better, c.Worse, c.Same = len(better), len(worse), len(pairs)-len(c.Differ)
	n := float64(len(pairs))
	c.MeanA, c.MeanB = c.MeanA/n, c.MeanB/n
	c.Difference = c.MeanB - c.MeanA
	if i, ok := stat.Bootstrap(clusters); ok {
		c.Interval = &i
	}
	c.McNemar = mcNemar(pairs)
	slices.SortStableFunc(c.Differ, func(a, b Differs) int {
		return cmp.Or(cmp.Compare(math.Abs(b.B-b.A), math.Abs(a.B-a.A)), cmp.Compare(a.B-a.A, b.B-b.A), Natural(a.TaskID, b.TaskID))
	})
}

// mcNemar returns nil unless each task has exactly one scored attempt in both runs.
func mcNemar(pairs []Differs) *McNemar {
	var m McNemar
	for _, p := range pairs {
		switch {
		case p.ScoredA != 1 || p.ScoredB != 1:
			return nil
		case p.A == 1 && p.B == 1:
			m.BothPassed++
		case p.A == 0 && p.B == 0:
			m.BothFailed++
		case p.A == 1:
			m.PassedA++
		default:
			m.PassedB++
		}
	}
	m.P = stat.McNemar(m.PassedA, m.PassedB)
	return &m
}
