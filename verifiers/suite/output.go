package suite

import (
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

// summaryLine matches the line that ends the output of pytest or unittest, failureCount the numbers in it:
// "== 1 failed, 2 errors in 61.02s ==" and "FAILED (failures=2, errors=1)".
var (
	summaryLine  = regexp.MustCompile(`^(=+ )?(\d+ [a-z]+, )*\d+ [a-z]+ in \d|^FAILED \(`)
	failureCount = regexp.MustCompile(`(\d+) (?:failed|errors?)\b|(?:failures|errors)=(\d+)`)
)

// failures returns the number of failed tests in all such lines: a command can run several runners, in any order.
func failures(streams ...runtime.Output) (n int) {
	for _, output := range streams {
		for line := range strings.Lines(Plain(output.String())) {
			if !summaryLine.MatchString(line) {
				continue
			}
			for _, m := range failureCount.FindAllStringSubmatch(line, -1) {
				count, _ := strconv.Atoi(m[1] + m[2])
				n += count
			}
		}
	}
	return n
}

// Plain returns a text without escape sequences for colors (ECMA-48, SGR).
func Plain(text string) string { return colors.ReplaceAllString(text, "") }

var colors = regexp.MustCompile(`\x1b\[[0-9;]*m`)

// failureLine matches a line of a test runner that begins or ends with a word for a failure, such as
// "FAILED tests/test_a.py::test_one - it has to", "ERROR: test_two (a.B)" and "tests/test_a.py::test_one FAILED  [ 50%]".
var failureLine = regexp.MustCompile(`^(\W|\[.*\])*(FAILED|FAIL|ERROR)\b|\s(FAILED|FAIL|ERROR)(\s+\[[ \d%]+\])?\s*$`)

// failureLines are the lines in which a test runner names the tests that failed.
type failureLines []string

func failureLinesOf(exit runtime.Exit) (lines failureLines) {
	for line := range strings.Lines(Plain(exit.Stdout.String() + "\n" + exit.Stderr.String())) {
		if failureLine.MatchString(line) {
			lines = append(lines, line)
		}
	}
	return lines
}

// name reports whether pytest or unittest names the edit's test as failed.
func (l failureLines) name(e contrast.Edit) bool { return len(l.of(e)) > 0 }

// of returns the lines in which pytest or unittest name the edit's test. A line in another form may be one that the
// candidate prints.
func (l failureLines) of(e contrast.Edit) failureLines {
	class, name := "", e.Test
	if i := strings.LastIndex(name, "::"); i >= 0 {
		class, name = name[:i], name[i+2:]
	}
	pytest := regexp.MustCompile(`(^|[\s/])` + regexp.QuoteMeta(path.Base(e.Path)+"::"+e.Test) + `($|[\s[])`)
	unittest := regexp.MustCompile(`^((FAIL|ERROR): )?` + regexp.QuoteMeta(name) + ` \(.*\b` + regexp.QuoteMeta(class) + `\b.*\)`)
	return slices.DeleteFunc(slices.Clone(l), func(line string) bool {
		return !pytest.MatchString(line) && (class == "" || !unittest.MatchString(line))
	})
}

// omit reports whether no line names the edit's test as failed: it passed, or did not run.
func (l failureLines) omit(e contrast.Edit) bool { return !l.name(e) }

// testID matches how pytest and unittest name a test in a failure line, with its class and, for pytest, with the row of a
// table. A subtest of unittest has the name of its test: what it adds can be an address in memory. What a test
// prints may follow its name.
var testID = regexp.MustCompile(`(\S+\.py::[^\s\[]+(?:\[.*?\](?:\s|$))?)|^\s*(?:(?:FAIL|ERROR): )?(\w+ \([\w.]+\))`)

// tests returns the names of the tests that the lines name as failed, sorted.
func (l failureLines) tests() (names []string) {
	for _, line := range l {
		if m := testID.FindStringSubmatch(line); m != nil {
			names = append(names, strings.TrimSpace(m[1]+m[2]))
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// saysFailures reports whether the output of a failed run counts tests, or names a file of the tests or a test in it.
func (s Suite) saysFailures(exit runtime.Exit) bool {
	return failures(exit.Stdout, exit.Stderr) > 0 || slices.ContainsFunc(s.Files, func(f contrast.File) bool {
		module := regexp.MustCompile(`\b` + regexp.QuoteMeta(strings.TrimSuffix(path.Base(f.Path), ".py")) + `\b`)
		return slices.ContainsFunc(failureLinesOf(exit), module.MatchString)
	})
}
