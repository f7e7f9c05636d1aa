package pack

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/securebench/sbench/compiler"
)

// harbor reads the task directories of Harbor, the format of Terminal-Bench 2 and later.
func harbor(o *taskOptions) Format {
	return Format{
		Name:   "harbor",
		Source: "a task directory with a task.toml, or a directory of them", Family: compiler.TerminalTask(),
		Image: "sbench.local/harbor/{task}:latest", Timeout: 7200,
		Environment: map[string]any{"workdir": defaultWorkdir, "materialize_workdir_from_image": true, "verify_after_timeout": true, "timeout_seconds": harborSeconds},
		Options:     o,
		Read:        o.readHarbor,
	}
}

const (
	harborSeconds = 600
	harborCheck   = "sbench-check.sh" // beside the task's test.sh
)

// harborCheckScript runs a task's test.sh and turns the reward into an exit status.
//
//go:embed harbor-check.sh
var harborCheckScript string

// harborTask has the keys of a task.toml that the import knows.
type harborTask struct {
	Version  any            `toml:"version"`
	Schema   any            `toml:"schema_version"`
	Metadata map[string]any `toml:"metadata"`
	Agent    struct {
		Timeout *float64 `toml:"timeout_sec"`
		Network string   `toml:"network_mode"`
	} `toml:"agent"`
	Verifier struct {
		Timeout *float64          `toml:"timeout_sec"`
		Env     map[string]string `toml:"env"`
		Network string            `toml:"network_mode"`
	} `toml:"verifier"`
	Solution struct {
		Env map[string]string `toml:"env"`
	} `toml:"solution"`
	Environment harborEnvironment `toml:"environment"`
	Steps       []map[string]any  `toml:"steps"`
}

type harborEnvironment struct {
	Image    string            `toml:"docker_image"`
	CPUs     *float64          `toml:"cpus"`
	MemoryMB *int64            `toml:"memory_mb"`
	Memory   string            `toml:"memory"`
	GPUs     int64             `toml:"gpus"`
	Workdir  string            `toml:"workdir"`
	Internet *bool             `toml:"allow_internet"`
	Network  string            `toml:"network_mode"`
	Env      map[string]string `toml:"env"`
	Servers  []any             `toml:"mcp_servers"`
	// How images are built and how large workspaces are is up to the operator: these keys
	// are ignored.
	BuildTimeout any `toml:"build_timeout_sec"`
	Storage      any `toml:"storage"`
	StorageMB    any `toml:"storage_mb"`
}

// readHarbor turns each directory into a task checked by tests/test.sh.
func (o *taskOptions) readHarbor(ctx context.Context, b *Builder) error {
	return b.tasks(ctx, "task.toml", func(t *task) error {
		var spec harborTask
		unknown, ok := t.toml("task.toml", &spec)
		if !ok {
			return nil
		}
		if len(unknown) > 0 {
			b.Note(Place{File: t.path("task.toml")}, "nothing is done about %s", strings.Join(unknown, ", "))
		}
		spec.check(t)
		task := terminalTask{
			row:     Row{Input: map[string]any{"instructions": instructionOf(t)}, Environment: spec.environment(t), Metadata: map[string]any{}},
			seconds: float64(harborSeconds), solution: b.harborSolution(t, spec.Solution.Env), machine: o.Machine,
			compose: t.compose("environment/docker-compose.yaml", "main"), // with another ending it is the task's data
		}
		if !o.Pytest {
			task.script = spec.script(t)
		}
		if len(spec.Metadata) > 0 {
			task.row.Metadata["task"] = plainTOML(spec.Metadata)
		}
		if spec.Verifier.Timeout != nil {
			task.seconds = *spec.Verifier.Timeout
		}
		if spec.Environment.Image == "" {
			task.image = append([]taskFile{}, t.below("environment")...)
		}
		return b.addTask(ctx, t, task)
	})
}

// harborSolution returns the reference solution, with its variables set at the beginning of
// solve.sh; nothing if there is no solve.sh.
func (b *Builder) harborSolution(t *task, env map[string]string) []taskFile {
	files := t.below("solution")
	i := slices.IndexFunc(files, func(f taskFile) bool { return f.path == "solve.sh" })
	if i < 0 {
		b.Note(t.place, "the task has no solution/solve.sh to check it by")
		return nil
	}
	if len(env) > 0 {
		text := string(files[i].text)
		first, rest, ok := strings.Cut(text, "\n")
		if !ok || !strings.HasPrefix(first, "#!") {
			first, rest = "#!/bin/bash", text
		}
		files[i].text = []byte(first + "\n" + exports(env) + rest)
	}
	return files
}

// toml decodes a file as TOML into v and returns the keys without a field in v.
func (t *task) toml(name string, v any) (unknown []string, ok bool) {
	text := t.text(name)
	if text == "" {
		return nil, false
	}
	err := toml.NewDecoder(strings.NewReader(text)).DisallowUnknownFields().Decode(v)
	var missing *toml.StrictMissingError
	var position *toml.DecodeError
	switch {
	case errors.As(err, &missing):
		for _, e := range missing.Errors {
			unknown = append(unknown, strings.Join(e.Key(), "."))
		}
		slices.Sort(unknown)
		return slices.Compact(unknown), true
	case errors.As(err, &position):
		line, column := position.Position()
		t.wrong(name, line, "", "invalid TOML at column %d: %v", column, err)
	case err != nil:
		t.wrong(name, 0, "", "invalid TOML: %v", err)
	}
	return nil, err == nil
}

// plainTOML turns values that JSON cannot express, such as dates, into strings.
func plainTOML(v any) any {
	switch v := v.(type) {
	case map[string]any:
		m := map[string]any{}
		for key, value := range v {
			m[key] = plainTOML(value)
		}
		return m
	case []any:
		list := make([]any, len(v))
		for i, item := range v {
			list[i] = plainTOML(item)
		}
		return list
	case string, bool, int64:
		return v
	case float64:
		if !math.IsInf(v, 0) && !math.IsNaN(v) {
			return v
		}
	}
	return fmt.Sprint(v)
}

// check records a problem for each invalid value, and for each feature that sandboxes do not
// support.
func (spec harborTask) check(t *task) {
	const file = "task.toml"
	if len(spec.Steps) > 0 {
		t.wrong(file, 0, "", "a task of several steps is not supported")
	}
	if spec.Environment.GPUs > 0 {
		t.wrong(file, 0, "", "a task with GPUs is not supported")
	}
	if len(spec.Environment.Servers) > 0 {
		t.wrong(file, 0, "", "a task with MCP servers is not supported")
	}
	for _, env := range []map[string]string{spec.Environment.Env, spec.Verifier.Env, spec.Solution.Env} {
		for _, name := range sortedKeys(env) {
			if !pythonName.MatchString(name) {
				t.wrong(file, 0, "", "%q is no name of a variable", name)
			}
			if strings.Contains(env[name], "${") {
				t.wrong(file, 0, "a pack has no secrets of the host", "the variable %q comes from the host, which is not supported", name)
			}
		}
	}
	for _, mode := range []string{spec.Environment.Network, spec.Agent.Network, spec.Verifier.Network} {
		if !slices.Contains([]string{"", "public", "no-network", "allowlist"}, mode) {
			t.wrong(file, 0, "", "the network mode %q is unknown", mode)
		}
	}
	for _, seconds := range []*float64{spec.Agent.Timeout, spec.Verifier.Timeout, spec.Environment.CPUs} {
		if seconds != nil && !(*seconds > 0 && *seconds < 1e9) {
			t.wrong(file, 0, "", "a limit of %v is no positive number", *seconds)
		}
	}
	if spec.Environment.MemoryMB != nil && (*spec.Environment.MemoryMB <= 0 || *spec.Environment.MemoryMB > 1<<32) {
		t.wrong(file, 0, "", "memory_mb is %d", *spec.Environment.MemoryMB)
	}
}

// canary matches a comment that asks to keep a task out of training data. It is no part of
// the instruction.
var canary = regexp.MustCompile(`(?i)^\s*(<!--.*canary.*-->|#.*canary.*)\s*$`)

func instructionOf(t *task) string {
	text := t.text("instruction.md")
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		if strings.TrimSpace(line) != "" && !canary.MatchString(line) {
			break
		}
		text = rest
	}
	if strings.TrimSpace(text) == "" && len(t.problems) == 0 {
		t.wrong("instruction.md", 0, "", "no instruction")
	}
	return text
}

func (spec harborTask) environment(t *task) map[string]any {
	e := spec.Environment
	env := map[string]any{"timeout_seconds": float64(harborSeconds)}
	if spec.Agent.Timeout != nil {
		env["timeout_seconds"] = *spec.Agent.Timeout
	}
	dir := e.Workdir
	if e.Image != "" {
		env["image"] = e.Image
	} else if dockerfile := t.text("environment/Dockerfile"); dir == "" {
		dir = workdirOf(dockerfile)
	}
	if dir != "" && dir != defaultWorkdir {
		env["workdir"] = dir
	}
	resources := map[string]any{}
	if e.CPUs != nil {
		resources["cpus"] = *e.CPUs
	}
	if e.MemoryMB != nil {
		resources["memory"] = fmt.Sprintf("%dm", *e.MemoryMB)
	} else if e.Memory != "" {
		resources["memory"] = e.Memory
	}
	if len(resources) > 0 {
		env["resources"] = resources
	}
	if len(e.Env) > 0 {
		env["env"] = e.Env
	}
	if e.Internet != nil && !*e.Internet || e.Network == "no-network" || spec.Agent.Network == "no-network" {
		env["network"] = "none"
	}
	return env
}

// script returns the script that runs tests/test.sh, which must exist.
func (spec harborTask) script(t *task) taskFile {
	t.text("tests/test.sh") // records a problem if it is missing
	return taskFile{harborCheck, []byte(strings.Replace(harborCheckScript, "# @EXPORTS@\n", exports(spec.Verifier.Env), 1)), true}
}

// exports returns the shell commands that set variables.
func exports(env map[string]string) string {
	var b strings.Builder
	for _, name := range sortedKeys(env) {
		_, _ = fmt.Fprintf(&b, "export %s=%s\n", name, quoteShell(env[name]))
	}
	return b.String()
}

// quoteShell quotes a string as one word of a shell.
func quoteShell(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
