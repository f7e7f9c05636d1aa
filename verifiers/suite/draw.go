package suite

import (
	"context"
	"errors"
	"math/rand/v2"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// draw lists the changes of the tests and draws the sets of a candidate's runs.
func (s Suite) draw(ctx context.Context) (c contrast.Calibration, err error) {
	python := slices.DeleteFunc(slices.Concat(s.Files, s.Others), func(f contrast.File) bool { return !IsPython(f) })
	if len(python) == 0 {
		return c, nil
	}
	found, err := contrast.List(ctx, contrast.InSandbox(s.Engine, s.Input.Sandbox("listing")), python, contrast.Options{Seed: s.Key, Each: true})
	if errors.Is(err, contrast.ErrPython) {
		return c, nil
	}
	c.Canary, c.Broken, c.Unread = found.Canary, found.Broken, found.Unread
	found.Edits = slices.DeleteFunc(found.Edits, func(e contrast.Edit) bool {
		row := e.Test[strings.LastIndex(e.Test, ":")+1:] + "["
		return strings.Contains(strings.ReplaceAll(s.Selects, `\`, ""), row) // pytest would find no test of the name
	})
	if err != nil || len(s.Files) == 0 || len(found.Edits) == 0 || s.Input.Left != nil {
		return c, err
	}
	exit, err := s.Command.Run(ctx, Unsolved, s.Files)
	if err != nil && !neverStarted(err) {
		return c, err
	}
	unseen := slices.DeleteFunc(slices.Clone(found.Edits), s.seen)
	if c.Seen = len(unseen) == 0; c.Seen {
		unseen = slices.Clone(found.Edits)
	}
	c.Sets = sets(s.functions(unseen, exit), s.functions(found.Edits, exit), failureLinesOf(exit), stopsEarly.MatchString(s.Selects) || !s.saysFailures(exit))
	c.Sets[allSet].Needed = slices.DeleteFunc(slices.Clone(c.Sets[allSet].Edits), failureLinesOf(exit).omit)
	return c, nil
}

// seen reports whether an edit changes a line that authors of candidates can read.
func (s Suite) seen(e contrast.Edit) bool {
	text := s.Files[slices.IndexFunc(s.Files, func(f contrast.File) bool { return f.Path == e.Path })].Text
	after, _, _ := strings.Cut(text[e.End:], "\n")
	line := "\n" + text[strings.LastIndexByte(text[:e.Start], '\n')+1:e.End] + after + "\n"
	return slices.ContainsFunc(s.Seen, func(seen string) bool { return strings.Contains("\n"+seen+"\n", line) })
}

// stopsEarly matches a command of pytest, unittest, nose or tox with an option to stop at the first failure.
var stopsEarly = regexp.MustCompile(`(test\w*|tox)\b(\\\n|[^\n;|&])*\s(-[qsvx]*x[qsvx]*|--exitfirst|--maxfail|--failfast)\b|unittest (.* )?-f\b`)

// maxChanged bounds the changed functions, so that the output holds all their failures.
const maxChanged = 40

// location matches a file and a line of it in a traceback.
var location = regexp.MustCompile(`([\w.-]+\.py)(?::|", line )(\d+)\b`)

// functions returns the edits of at most maxChanged test functions in random order. Those that fail in the run
// without a solution come first, then those that the command names, and those in files that it names. Of each, the
// edits at the assertion at which it fails come first.
func (s Suite) functions(edits []contrast.Edit, unsolved runtime.Exit) (of [][]contrast.Edit) {
	failed, shown := map[string]bool{}, ""
	for line := range strings.Lines(Plain(unsolved.Stdout.String() + "\n" + unsolved.Stderr.String())) {
		for _, m := range location.FindAllStringSubmatch(line, -1) {
			failed[m[1]+":"+m[2]] = true
		}
		if strings.HasPrefix(line, "E ") || strings.Contains(line, "Error:") {
			shown += line
		}
	}
	text := map[string]string{}
	for _, f := range s.Files {
		text[f.Path] = f.Text
	}
	rank := func(e contrast.Edit) (n int) {
		for line := e.Line; line <= e.Last; line++ {
			if failed[path.Base(e.Path)+":"+strconv.Itoa(line)] {
				n = -2
			}
		}
		if literal := strings.Trim(text[e.Path][e.Start:e.End], `'"`); n < 0 && literal != "" && strings.Contains(shown, literal) {
			n-- // of a table's rows, the one that fails
		}
		if e.Shared {
			n++
		}
		return 2*n + map[bool]int{true: 1}[e.Kind != contrast.Value]
	}
	rand.Shuffle(len(edits), func(i, j int) { edits[i], edits[j] = edits[j], edits[i] })
	slices.SortStableFunc(edits, func(a, b contrast.Edit) int { return rank(a) - rank(b) })
	lines := failureLinesOf(unsolved)
	for _, e := range edits {
		i := slices.IndexFunc(of, func(own []contrast.Edit) bool { return own[0].SameTest(e) })
		if i < 0 {
			i, of = len(of), append(of, nil)
		}
		of[i] = append(of[i], e)
	}
	order := func(own []contrast.Edit) int {
		e := own[0]
		file, name := strings.TrimSuffix(path.Base(e.Path), ".py"), e.Test[strings.LastIndex(e.Test, ":")+1:]
		switch {
		case lines.name(e):
			return 0
		case strings.Contains(s.Selects, name):
			return 1
		case strings.Contains(s.Selects, file):
			return 2
		}
		return 3
	}
	slices.SortStableFunc(of, func(a, b []contrast.Edit) int { return order(a) - order(b) })
	return of[:min(len(of), maxChanged)]
}

// sets draws the sets of two runs from functions, and returns a third set with every function in all:
//
//	every function                its first edit or, by chance, one of another value, is in one of the two sets
//	the first function            an edit of another assertion, or of another row of its table, is in the other set
//	the second and the third      are not in the same set, so that each set leaves a function unchanged
//	rows of a parametrize table   each row is in one of the two sets
//	what passes without solution  is in one set only, if anything fails: in the other run, no test that a candidate
//	                              passes without a solution tells the candidate that tests are changed
//
// The first function fails without a solution, if any function does. The task's description may tell
// the answer to the assertion at which it fails, and so another assertion is changed, too.
//
// With one, each run changes one function. That is for output that neither names nor counts all tests that fail: of
// several functions, a candidate that fails one would seem to fail all.
func sets(of, all [][]contrast.Edit, unsolved failureLines, one bool) []contrast.Set {
	if one {
		of = of[:min(len(of), 2)]
	}
	drawn := make([]contrast.Set, 3)
	add := func(set int, edits []contrast.Edit, wanted func(contrast.Edit) bool) (e contrast.Edit, ok bool) {
		i := slices.IndexFunc(edits, func(e contrast.Edit) bool { return wanted(e) && !slices.ContainsFunc(drawn[set].Edits, e.Overlaps) })
		if i < 0 {
			return e, false
		}
		drawn[set].Edits = append(drawn[set].Edits, edits[i])
		return edits[i], true
	}
	half := rand.IntN(2)
	passing := 1 - half
	for i, own := range of {
		passes := unsolved.name(of[0][0]) && unsolved.omit(own[0])
		if i > 2 {
			half = rand.IntN(2)
		}
		if passes {
			half = passing
		}
		later := i > 0 && rand.IntN(2) == 0
		first, ok := add(half, own, func(e contrast.Edit) bool { return !later || e.Start != own[0].Start })
		if !ok {
			first, ok = add(half, own, func(contrast.Edit) bool { return true })
		}
		if ok && i == 0 && !(one && len(of) > 1) {
			_, other := add(1-half, own, func(e contrast.Edit) bool { return e.Place != first.Place })
			if !other { // another row of a table
				add(1-half, own, func(e contrast.Edit) bool { return e.Start != first.Start })
			}
		}
		for _, row := range own {
			n := rand.IntN(2)
			if passes {
				n = passing
			}
			if ok && !one && first.Row && row.Row && !slices.ContainsFunc(slices.Concat(drawn[0].Edits, drawn[1].Edits), row.Overlaps) {
				drawn[n].Edits = append(drawn[n].Edits, row)
			}
		}
		half = 1 - half
	}
	for _, own := range all {
		add(allSet, own, func(e contrast.Edit) bool { return !e.Shared })
	}
	return drawn
}
