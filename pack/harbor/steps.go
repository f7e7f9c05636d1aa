package harbor

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/pack"
)

// harborStep has the keys of a step.
type harborStep struct {
	Name        string             `toml:"name"`
	Agent       harborAgent        `toml:"agent"`
	Verifier    harborVerifier     `toml:"verifier"`
	MinReward   any                `toml:"min_reward"` // a number, or numbers by the names of rewards
	HealthCheck *harborHealthCheck `toml:"healthcheck"`
	Artifacts   []any              `toml:"artifacts"`
}

// parts returns the keys of each step: the step's own and, where it has none, the task's. A task without
// steps is its only part.
func (spec harborTask) parts(t *task) []harborTask {
	if len(spec.Steps) == 0 {
		return []harborTask{spec}
	}
	if !slices.Contains([]string{"", "mean", "final"}, spec.Strategy) {
		t.wrong(harborFile, 0, "mean or final", "multi_step_reward_strategy is %q", spec.Strategy)
	}
	var all []harborTask
	var names []string
	for _, s := range spec.Steps {
		if !directoryName.MatchString(s.Name) || slices.Contains(names, s.Name) {
			t.wrong(harborFile, 0, "letters, digits and . _ -, for each step another", "steps.name %q is no name of a step", s.Name)
		}
		switch s.MinReward.(type) {
		case nil, int64, float64, map[string]any:
		default:
			t.wrong(harborFile, 0, "a number, or numbers by the names of rewards", "min_reward of the step %q is %v", s.Name, s.MinReward)
		}
		names = append(names, s.Name)
		part := spec
		part.step, part.Steps = &s, nil
		part.Agent = s.Agent.over(spec.Agent)
		part.Verifier = s.Verifier.over(spec.Verifier)
		part.Artifacts = slices.Concat(spec.Artifacts, s.Artifacts)
		all = append(all, part)
	}
	return all
}

func (a harborAgent) over(below harborAgent) harborAgent {
	return harborAgent{cmp.Or(a.Timeout, below.Timeout), cmp.Or(a.User, below.User), cmp.Or(a.Network, below.Network), cmp.Or(a.Hosts, below.Hosts)}
}

func (v harborVerifier) over(below harborVerifier) harborVerifier {
	v.Timeout, v.User, v.Network, v.Hosts = cmp.Or(v.Timeout, below.Timeout), cmp.Or(v.User, below.User), cmp.Or(v.Network, below.Network), cmp.Or(v.Hosts, below.Hosts)
	v.Env = merged(below.Env, v.Env)
	if v.Mode == "" && v.Environment == nil {
		v.Mode = below.Mode
	}
	if v.Mode != "shared" {
		v.Environment = cmp.Or(v.Environment, below.Environment)
	}
	v.Collect = slices.Concat(below.Collect, v.Collect)
	return v
}

// file returns the path of a file or directory of the step or, if the task has no steps, of the task.
func (spec harborTask) file(name string) string {
	if spec.step == nil {
		return name
	}
	return path.Join("steps", spec.step.Name, name)
}

// tests returns the tests of the task and of the step. A file of the step replaces the task's file of the same
// path.
func (spec harborTask) tests(t *task) []taskFile {
	files := t.below("tests")
	if spec.step == nil {
		return files
	}
	own := t.below(spec.file("tests"))
	files = slices.DeleteFunc(files, func(f taskFile) bool {
		_, replaced := find(own, f.path)
		return replaced
	})
	return append(files, own...)
}

// addStep makes a row a step of the task, with the commands that prepare the step.
func (spec harborTask) addStep(t *task, strategy string, part *terminalTask) {
	s := spec.step
	part.name, part.public = s.Name, t.below(spec.file("workdir"))
	part.row.Step = &pack.Step{Task: t.id, MinReward: s.MinReward, Strategy: strategy}
	if len(part.compose.sidecars) > 0 {
		t.wrong(path.Join("environment", composeFile), 0, "start them in the image's entry point", "other services in a task with steps are not supported: they would lose their state between the steps")
	}
	var before []string
	if _, ok := find(part.public, setupScript); ok {
		before = append(before, "bash ./"+setupScript+" || exit 1")
	}
	if h := s.HealthCheck; h != nil && h.Command != "" {
		before = append(before, fmt.Sprintf("sleep %v\nfailed=0\nuntil timeout %v bash -c %s; do\n\tfailed=$((failed + 1))\n\t[ $failed -lt %v ] || exit 1\n\tsleep %v\ndone",
			h.or(h.StartPeriod, 0), h.or(h.Timeout, 30), compiler.ShellWords(h.Command), h.or(h.Retries, 3), h.or(h.Interval, 5)))
	}
	if len(before) > 0 {
		part.row.Environment["prepare"] = []string{"bash", "-c", strings.Join(before, "\n")}
	}
}

// setupScript is the file of a step's workdir that prepares the step.
const setupScript = "setup.sh"

// entrypoint returns the part of a row's entry point that waits until the check succeeds; nil without a check.
func (h *harborHealthCheck) entrypoint() map[string]any {
	if h == nil || h.Command == "" {
		return nil
	}
	return map[string]any{"ready": []string{"bash", "-c", h.Command}, "timeout_seconds": h.seconds()}
}

// seconds returns how long the check is tried.
func (h *harborHealthCheck) seconds() float64 {
	return h.or(h.StartPeriod, 0) + h.or(h.Retries, 3)*(h.or(h.Interval, 5)+h.or(h.Timeout, 30))
}

// or returns the seconds or the number, or a preset for none.
func (*harborHealthCheck) or(v *float64, preset float64) float64 { return *cmp.Or(v, &preset) }
