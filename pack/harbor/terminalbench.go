package harbor

import (
	"context"
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/pack"
)

// Defaults of a task.
const (
	defaultAgentSeconds = 360
	defaultTestSeconds  = 60
)

// terminalBench adds a task of the original Terminal-Bench, which is checked by run-tests.sh.
func (b *builder) terminalBench(ctx context.Context, t *task) error {
	spec := t.yaml(terminalBenchFile)
	if spec.Kind() != document.Object {
		return nil
	}
	part := terminalTask{
		row: pack.Row{
			Input:       map[string]any{"instructions": terminalInstruction(t, spec)},
			Environment: map[string]any{"timeout_seconds": t.seconds(spec, "max_agent_timeout_sec", defaultAgentSeconds)}, Metadata: map[string]any{},
		},
		tests: t.below("tests"), seconds: t.seconds(spec, "max_test_timeout_sec", defaultTestSeconds), solution: b.terminalSolution(t),
		script: t.script(runTests, runTests), checker: map[string]any{"pytest_summary": true}, compose: b.readCompose(t, composeFile, "client"),
	}
	part.image = part.compose.build(t, "", ".")
	if parser := spec.Get("parser_name"); parser.Given() && !parser.Is("pytest") {
		t.wrong(terminalBenchFile, parser.Line(), "let pytest or the script's exit status say it, with parser_name: pytest", "the parser %q is not supported: it finds the results of the tests in their output", parser.Text())
	}
	for _, key := range []string{"author_name", "difficulty", "category", "tags", "parser_name", "run_tests_in_same_shell"} {
		if v := spec.Get(key); v.Given() {
			part.row.Metadata[key] = v.Any()
		}
	}
	return b.addTask(ctx, t, part)
}

const runTests = "run-tests.sh"

// isEvaluation reports whether a file is left out of build contexts: agents must not find it in the
// image.
func isEvaluation(name string) bool {
	top, _, _ := strings.Cut(name, "/")
	return slices.Contains([]string{terminalBenchFile, harborFile, composeFile, runTests, "tests", "solution", "steps", "solution.sh", "solution.yaml"}, top)
}

// copiesOf matches a COPY or ADD, and its words.
var copiesOf = regexp.MustCompile(`(?im)^\s*(?:COPY|ADD)\s+(.*)$`)

// context returns the build context in the directory at, without what is for the evaluation unless the
// Dockerfile names it: then the image is made to hold it.
func (t *task) context(at string) (files []taskFile) {
	var named []string
	for _, f := range t.files {
		if strings.EqualFold(path.Ext(f.path), ".dockerfile") || path.Base(f.path) == "Dockerfile" {
			for _, m := range copiesOf.FindAllStringSubmatch(string(f.text), -1) {
				for _, word := range strings.Fields(m[1]) {
					named = append(named, path.Clean(strings.Trim(word, `[]",`)))
				}
			}
		}
	}
	for _, f := range t.files {
		rel, inside := f.path, true
		if at != "." {
			rel, inside = strings.CutPrefix(f.path, at+"/")
		}
		wanted := !isEvaluation(f.path) || slices.ContainsFunc(named, func(name string) bool { return name == rel || name != "." && strings.HasPrefix(rel, name+"/") })
		if f.path = rel; inside && wanted {
			files = append(files, f)
		}
	}
	return files
}

// terminalInstruction also reads an older form: descriptions with keys, where base is the
// instruction.
func terminalInstruction(t *task, spec document.Value) string {
	text := spec.Get("instruction")
	for _, d := range spec.Get("descriptions").Items() {
		if text.Kind() == 0 && d.Get("key").Is("base") {
			text = d.Get("description")
		}
	}
	if strings.TrimSpace(text.Text()) == "" {
		t.wrong(terminalBenchFile, max(text.Line(), 1), "write instruction", "no instruction, and no description of the key base")
	}
	return text.Text()
}

// seconds reads a time limit.
func (t *task) seconds(spec document.Value, key string, preset float64) float64 {
	v := spec.Get(key)
	if !v.Given() {
		return preset
	}
	n, ok := v.Float64()
	if !ok || n <= 0 || math.IsInf(n, 0) {
		t.wrong(terminalBenchFile, v.Line(), "seconds, above 0", "%s is no positive number", key)
	}
	return n
}

// terminalSolution returns the reference solution as a script, solve.sh; nothing if there is
// none.
func (b *builder) terminalSolution(t *task) []taskFile {
	f, ok := t.file("solution.sh")
	if _, typed := t.file("solution.yaml"); typed && !ok {
		commands, reason := keystrokes(t.text("solution.yaml"))
		if reason != "" {
			b.Note(pack.Place{File: t.path("solution.yaml")}, "no script can be made of the solution: %s", reason)
			return nil
		}
		f.text, ok = []byte(commands), true
	}
	if !ok {
		b.Note(t.place, "the task has no solution to check it by")
		return nil
	}
	return []taskFile{{path: "solve.sh", text: f.text, executable: true}}
}

// keystrokes turns a solution typed into a terminal into a script, or returns why that is
// impossible.
func keystrokes(text string) (script, reason string) {
	var doc document.Document
	if problems := doc.ParseYAML([]byte(text)); len(problems) > 0 {
		return "", problems[0].Message
	}
	var lines []string
	for i, step := range doc.Root().Items() {
		command := step.Get("command")
		if command.Kind() != document.String {
			return "", fmt.Sprintf("step %d has no command", i+1)
		}
		if enter := step.Get("append_enter"); enter.Kind() == document.Bool && !enter.IsTrue() {
			return "", fmt.Sprintf("step %d is typed into a program", i+1)
		}
		lines = append(lines, command.Text())
	}
	if len(lines) == 0 {
		return "", "it holds no steps"
	}
	return "#!/bin/bash\n" + strings.Join(lines, "\n") + "\n", ""
}
