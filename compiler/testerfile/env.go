package testerfile

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/securebench/sbench/compiler/document"
)

// LoadEnv reads a file of lines NAME=VALUE, which may begin with "export " and quote the value. It
// skips blank lines and lines that begin with "#". The last line for a name counts. If the file does not
// exist, the error matches fs.ErrNotExist. Any other error holds Problems that quote no value.
//
// Libraries such as godotenv do not serve: their errors quote the text that they cannot read, and they
// replace $NAME in values.
func LoadEnv(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	if err != nil {
		return nil, document.ProblemsOf(path, err)
	}
	values := map[string]string{}
	var problems document.Problems
	line := 0
	for raw := range strings.Lines(strings.TrimPrefix(string(text), "\ufeff")) {
		line++
		entry := strings.TrimSpace(raw)
		if entry == "" || entry[0] == '#' {
			continue
		}
		name, value, problem := parseEnvLine(entry)
		if problem != nil {
			problem.File, problem.Line = path, line
			problems = append(problems, *problem)
			continue
		}
		values[name] = value
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return values, nil
}

func parseEnvLine(entry string) (name, value string, problem *document.Problem) {
	if rest, ok := strings.CutPrefix(entry, "export "); ok {
		entry = strings.TrimSpace(rest)
	}
	name, value, ok := strings.Cut(entry, "=")
	name = strings.TrimSpace(name)
	switch {
	case !ok:
		return "", "", &document.Problem{Message: "expected NAME=VALUE", Hint: "a line without an equals sign"}
	case name == "":
		return "", "", &document.Problem{Message: "name of an environment variable is empty"}
	case strings.ContainsAny(name, " \t\x00"):
		// The text may be part of a secret with several lines, so it is not quoted.
		return "", "", &document.Problem{Message: "the text before the equals sign is no name of an environment variable"}
	case strings.Contains(value, "\x00"):
		return "", "", &document.Problem{Message: fmt.Sprintf("value of %q holds a NUL byte", name)}
	}
	value = strings.TrimSpace(value)
	if n := len(value); n >= 2 && value[0] == value[n-1] && (value[0] == '"' || value[0] == '\'') {
		value = value[1 : n-1]
	}
	return name, value, nil
}
