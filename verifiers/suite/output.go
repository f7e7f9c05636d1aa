package suite

import (
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers/contrast"
)

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

// name reports whether pytest or unittest names the question's test as failed.
func (l failureLines) name(q contrast.Question) bool {
	class, name := "", q.Test
	if i := strings.LastIndex(name, "::"); i >= 0 {
		class, name = name[:i], name[i+2:]
	}
	pytest := regexp.MustCompile(`(^|[\s/])` + regexp.QuoteMeta(path.Base(q.Path)+"::"+q.Test) + `($|[\s[])`)
	unittest := regexp.MustCompile(`^((FAIL|ERROR): )?` + regexp.QuoteMeta(name) + ` \(.*\b` + regexp.QuoteMeta(class) + `\b.*\)`)
	return slices.ContainsFunc(l, func(line string) bool {
		return pytest.MatchString(line) || class != "" && unittest.MatchString(line)
	})
}
