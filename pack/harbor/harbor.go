// Package harbor reads tasks that are directories: in the format of Harbor, which Terminal-Bench 2 and later use, and in
// the format of the first Terminal-Bench.
package harbor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/pack"
)

const (
	harborSeconds = 600.0 // of a verifier
	harborTest    = "test.sh"
	composeFile   = "docker-compose.yaml" // with another ending it is the task's data
)

// harborTask has the keys of a task.toml that the import knows (schema 1.4).
type harborTask struct {
	Version   any            `toml:"version"`
	Schema    any            `toml:"schema_version"`
	Task      any            `toml:"task"`
	Source    any            `toml:"source"`
	Artifacts []any          `toml:"artifacts"` // paths, or tables; see collected
	Metadata  map[string]any `toml:"metadata"`
	Agent     harborAgent    `toml:"agent"`
	Verifier  harborVerifier `toml:"verifier"`
	Solution  struct {
		Env map[string]string `toml:"env"`
	} `toml:"solution"`
	Environment harborContainer `toml:"environment"`
	Steps       []harborStep    `toml:"steps"`
	Strategy    string          `toml:"multi_step_reward_strategy"`

	step *harborStep // that the keys are about; nil if the task has none
}

type harborAgent struct {
	Timeout *float64 `toml:"timeout_sec"`
	User    any      `toml:"user"` // a name or a number
	Network string   `toml:"network_mode"`
	Hosts   any      `toml:"allowed_hosts"`
}

type harborVerifier struct {
	Timeout     *float64          `toml:"timeout_sec"`
	Env         map[string]string `toml:"env"`
	User        any               `toml:"user"`
	Network     string            `toml:"network_mode"`
	Hosts       any               `toml:"allowed_hosts"`
	Mode        string            `toml:"environment_mode"`
	Environment *harborContainer  `toml:"environment"`
	Collect     []harborCollect   `toml:"collect"`
}

type harborCollect struct {
	Command string   `toml:"command"`
	Service any      `toml:"service"`
	Timeout *float64 `toml:"timeout_sec"`
	User    any      `toml:"user"`
}

type harborContainer struct {
	Image       string             `toml:"docker_image"`
	OS          string             `toml:"os"`
	CPUs        *float64           `toml:"cpus"`
	MemoryMB    *int64             `toml:"memory_mb"`
	Memory      string             `toml:"memory"`
	StorageMB   *int64             `toml:"storage_mb"`
	Storage     string             `toml:"storage"`
	GPUs        int64              `toml:"gpus"`
	GPUTypes    any                `toml:"gpu_types"`
	TPU         any                `toml:"tpu"`
	Workdir     string             `toml:"workdir"`
	Internet    *bool              `toml:"allow_internet"`
	Network     string             `toml:"network_mode"`
	Hosts       any                `toml:"allowed_hosts"`
	Env         map[string]string  `toml:"env"`
	Servers     []any              `toml:"mcp_servers"`
	Skills      string             `toml:"skills_dir"`
	HealthCheck *harborHealthCheck `toml:"healthcheck"`
	// How long a build may take is up to the operator.
	BuildTimeout any `toml:"build_timeout_sec"`
}

// A harborSize is a limit in bytes: KEY_mb or, in the older form, the text of KEY, such as "2G".
type harborSize struct {
	key   string
	least int64 // megabytes, as in a row
	mb    *int64
	text  string
}

func (c *harborContainer) memory() harborSize {
	return harborSize{"memory", 16, c.MemoryMB, c.Memory}
}

func (c *harborContainer) storage() harborSize {
	return harborSize{"storage", 1, c.StorageMB, c.Storage}
}

// megabytes returns nil if there is no limit, or none that can be read.
func (s harborSize) megabytes() *int64 {
	m := olderSize.FindStringSubmatch(s.text)
	if s.mb != nil || m == nil {
		return s.mb
	}
	n, _ := strconv.ParseFloat(m[1], 64)
	return new(int64(n * map[string]float64{"G": 1024, "M": 1, "K": 1.0 / 1024}[strings.ToUpper(m[2])]))
}

// olderSize matches a size in the older form.
var olderSize = regexp.MustCompile(`^\s*(\d{1,8}(?:\.\d{1,8})?)\s*([GMKgmk])[Bb]?\s*$`)

type harborHealthCheck struct {
	Command       string   `toml:"command"`
	Interval      *float64 `toml:"interval_sec"`
	Timeout       *float64 `toml:"timeout_sec"`
	StartPeriod   *float64 `toml:"start_period_sec"`
	StartInterval *float64 `toml:"start_interval_sec"`
	Retries       *float64 `toml:"retries"`
}

// harborSchema is the newest schema version that the import knows.
const harborSchema = "1.4"

// newer reports whether a schema version is newer than harborSchema.
func newer(version string) bool {
	var v, known struct{ major, minor int }
	_, _ = fmt.Sscanf(harborSchema, "%d.%d", &known.major, &known.minor)
	n, _ := fmt.Sscanf(version, "%d.%d", &v.major, &v.minor)
	return n > 0 && (v.major > known.major || v.major == known.major && v.minor > known.minor)
}

// harbor adds a task of Harbor, which is checked by tests/test.sh.
func (b *builder) harbor(ctx context.Context, t *task) error {
	var spec harborTask
	unknown, ok := t.toml(&spec)
	if !ok {
		return nil
	}
	switch version := fmt.Sprint(cmp.Or(spec.Schema, spec.Version)); { // Harbor ignores unknown keys, too
	case len(unknown) > 0 && newer(version):
		t.wrong(harborFile, 0, "leave out what does not change who passes", "schema_version %s is newer than %s, and %s unknown", version, harborSchema, strings.Join(unknown, ", "))
	case len(unknown) > 0:
		b.Note(pack.Place{File: t.path(harborFile)}, "nothing is done about %s", strings.Join(unknown, ", "))
	}
	compose := b.readCompose(t, path.Join("environment", composeFile), "main")
	image := compose.build(t, spec.Environment.Image, "environment")
	if image == nil {
		image = spec.Environment.filesIn(t)
	}
	var parts []terminalTask
	for _, part := range spec.parts(t) {
		made := b.harborPart(t, part)
		made.image, made.compose = image, compose
		if part.step != nil {
			part.addStep(t, spec.Strategy, &made)
		}
		parts = append(parts, made)
	}
	return b.addTask(ctx, t, parts...)
}

// filesIn returns the build context of an image that has been built before, if the task has files for its working
// directory: all of environment/, where that says nothing about an image itself.
func (c harborContainer) filesIn(t *task) []taskFile {
	files := t.below("environment")
	for i, f := range files {
		if f.path == "Dockerfile" || f.path == composeFile {
			return nil
		}
		files[i].path, files[i].at = "files/"+f.path, "environment/"+f.path
	}
	if c.Image == "" || files == nil {
		return nil
	}
	dockerfile := "FROM " + c.Image + "\n"
	if c.Workdir != "" {
		dockerfile += "WORKDIR " + c.Workdir + "\n"
	}
	return append(files, taskFile{path: "Dockerfile", text: []byte(dockerfile + "COPY files/ ./\n")})
}

// harborPart reads the task or, if spec is about one, a step of it.
func (b *builder) harborPart(t *task, spec harborTask) terminalTask {
	spec.check(t)
	verifier := cmp.Or(spec.Verifier.Environment, new(harborContainer))
	for _, hosts := range []any{spec.Environment.Hosts, spec.Agent.Hosts, spec.Verifier.Hosts, verifier.Hosts} {
		if hosts != nil {
			b.Note(pack.Place{File: t.path(harborFile)}, "the task may reach %v: the tester file or --set decides, by harness.config.allowed_domains and verification.allowed_domains", hosts)
		}
	}
	for _, env := range []map[string]string{spec.Environment.Env, spec.Verifier.Env, spec.Solution.Env, spec.container().Env} {
		b.fromHost(t, env)
	}
	part := terminalTask{
		row:   pack.Row{Input: map[string]any{"instructions": instructionOf(t, spec.file("instruction.md"))}, Environment: spec.environment(), Metadata: merged(spec.Metadata)},
		tests: spec.tests(t), seconds: *cmp.Or(spec.Verifier.Timeout, new(harborSeconds)), network: spec.checkerNetwork(), solution: b.harborSolution(t, spec),
	}
	script, _ := find(part.tests, harborTest)
	part.script = t.script(cmp.Or(script.at, "tests/"+harborTest), harborTest)
	var own map[string]any
	if spec.separate() {
		spec.Verifier.Env = merged(spec.container().Env, spec.Verifier.Env)
		own = spec.ownChecker(t, &part)
	}
	part.checker = merged(own, given(map[string]any{"reward": true, "env": spec.Verifier.Env, "user": userOf(spec.Verifier.User)}))
	return part
}

// harborSolution returns the reference solution; nothing if there is no solve.sh. If the solution has variables, solve.sh
// of the pack is a script that sets them and executes solve.sh of the task.
func (b *builder) harborSolution(t *task, spec harborTask) []taskFile {
	files, env := t.below(spec.file("solution")), spec.Solution.Env
	i := slices.IndexFunc(files, func(f taskFile) bool { return f.path == "solve.sh" })
	if i < 0 {
		b.Note(t.place, "the task has no %s/solve.sh to check it by", spec.file("solution"))
		return nil
	}
	if len(env) > 0 {
		own := t.script(spec.file("solution/solve.sh"), ownSolution)
		files[i] = taskFile{path: "solve.sh", text: []byte("#!/bin/bash\n" + exports(env) + "exec \"${0%/*}/" + ownSolution + "\"\n"), executable: true}
		files = append(files, own)
	}
	return files
}

// ownSolution is the name of a task's solve.sh if another script executes it.
const ownSolution = "solve.task.sh"

// mismatch matches go-toml's error about a value of another type than its key has.
var mismatch = regexp.MustCompile(`cannot decode TOML ([\w ]+) into`)

// toml decodes the task's own file as TOML into v and returns the keys without a field in v. A number that JSON does not
// have, which is nan or inf, is a problem.
func (t *task) toml(v any) (unknown []string, ok bool) {
	text := t.text(harborFile)
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
		unknown, err = slices.Compact(unknown), nil
	case errors.As(err, &position):
		line, column := position.Position()
		if m := mismatch.FindStringSubmatch(err.Error()); m != nil {
			t.wrong(harborFile, line, "", "%s cannot be a TOML %s", strings.Join(position.Key(), "."), m[1])
			break
		}
		t.wrong(harborFile, line, "", "invalid TOML at column %d: %v", column, err)
	case err != nil:
		t.wrong(harborFile, 0, "", "invalid TOML: %v", err)
	}
	if err != nil {
		return nil, false
	}
	var all map[string]any
	_ = toml.Unmarshal([]byte(text), &all) // was decoded above
	strange := notFinite("", all)
	for _, key := range strange {
		t.wrong(harborFile, 0, "write a number, or leave the key out", "%s is nan or inf", key)
	}
	return unknown, len(strange) == 0
}

// notFinite returns the keys of numbers in a value that are nan or inf, such as steps[0].min_reward.
func notFinite(key string, value any) (keys []string) {
	switch v := value.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			keys = []string{key}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			keys = append(keys, notFinite(strings.TrimPrefix(key+"."+name, "."), v[name])...)
		}
	case []any:
		for i, element := range v {
			keys = append(keys, notFinite(fmt.Sprintf("%s[%d]", key, i), element)...)
		}
	}
	return keys
}

// check records a problem for each invalid value, and for each feature that sandboxes do not
// support and that changes verdicts.
func (spec harborTask) check(t *task) {
	v, before := spec.Verifier, len(t.problems)
	modes, limits := []string{spec.Agent.Network, v.Network}, map[string]*float64{"agent.timeout_sec": spec.Agent.Timeout, "verifier.timeout_sec": v.Timeout}
	for at, e := range map[string]*harborContainer{"environment": &spec.Environment, "verifier.environment": cmp.Or(v.Environment, new(harborContainer))} {
		t.refuse(e.OS != "" && !strings.EqualFold(e.OS, "linux"), "a task needs linux", "%s.os %q is not supported", at, e.OS)
		t.refuse(e.GPUs > 0 || e.TPU != nil, "write gpus = 0 if the task can be solved without", "%s: GPUs and TPUs are not supported", at)
		t.refuse(len(e.Servers) > 0, "name them in the tester file, in harness.config.mcp_servers, and leave the key out", "%s.mcp_servers is not supported", at)
		t.refuse(e.Skills != "", "put what the agent has to know into the instruction, and leave the key out", "%s.skills_dir is not supported", at)
		modes = append(modes, e.Network)
		t.refuse(e.CPUs != nil && !(*e.CPUs >= 0.01 && *e.CPUs <= 4096), "a number from 0.01 to 4096", "%s.cpus is %v", at, *cmp.Or(e.CPUs, new(float64)))
		for _, size := range []harborSize{e.memory(), e.storage()} {
			mb := size.megabytes()
			t.refuse(size.mb != nil && size.text != "", "leave one of them out", "%s.%s and %s_mb are both there", at, size.key, size.key)
			fits := mb != nil && *mb >= size.least && *mb <= 1<<30
			t.refuse(size.mb != nil && !fits, fmt.Sprintf("megabytes, at least %d", size.least), "%s.%s_mb is %d", at, size.key, *cmp.Or(mb, new(int64)))
			t.refuse(size.mb == nil && size.text != "" && !fits, `write "512M" or "2G"`, "%s.%s is %q", at, size.key, size.text)
		}
	}
	if h := spec.Environment.HealthCheck; h != nil {
		t.refuse(h.Command != "" && !(h.seconds() > 0 && h.seconds() < 1e9), "write numbers above 0", "environment.healthcheck: its times add up to %v s", h.seconds())
	}
	t.refuse(len(v.Collect) > 0 && !spec.separate(), `write the commands into tests/test.sh, or environment_mode = "separate"`, "verifier.collect is not supported for a verifier in the task's own environment")
	t.refuse(!slices.Contains([]string{"", "shared", "separate"}, v.Mode), "shared or separate", "verifier.environment_mode %q is unknown", v.Mode)
	t.refuse(v.Mode == "shared" && v.Environment != nil, "leave one of them out", "verifier.environment contradicts environment_mode shared")
	for _, mode := range modes {
		t.refuse(!slices.Contains([]string{"", public, noNetwork, allowlist}, mode), "public, no-network or allowlist", "network_mode %q is unknown", mode)
	}
	for key, limit := range limits {
		t.refuse(limit != nil && !(*limit > 0 && *limit < 1e9), "a number above 0", "%s is %v", key, *cmp.Or(limit, new(float64)))
	}
	slices.SortFunc(t.problems[before:], func(a, b compiler.Problem) int { return strings.Compare(a.Message, b.Message) })
}

// refuse records a problem with a key of the task's own file, if there is one, and what to write instead.
func (t *task) refuse(found bool, hint, format string, args ...any) {
	if found {
		t.wrong(harborFile, 0, hint, format, args...)
	}
}

// separate reports whether the verifier has an environment of its own.
func (spec harborTask) separate() bool {
	return spec.Verifier.Mode == "separate" || spec.Verifier.Mode == "" && spec.Verifier.Environment != nil
}

// container returns the environment of a separate verifier: its own or, if it has none, the task's.
func (spec harborTask) container() *harborContainer {
	return cmp.Or(spec.Verifier.Environment, &spec.Environment)
}

// ownChecker returns the checker of a verifier with an environment of its own. If that is built from the
// tests' directory, it holds the tests; otherwise they are mounted.
func (spec harborTask) ownChecker(t *task, part *terminalTask) map[string]any {
	dir := spec.file("tests")
	if len(t.below(dir)) == 0 {
		dir = "tests"
	}
	_, built := t.file(dir + "/Dockerfile")
	_, composed := t.file(dir + "/" + composeFile)
	own := spec.container()
	checker := map[string]any{"image": own.Image}
	switch {
	case composed:
		t.wrong(dir+"/"+composeFile, 0, "build the verifier's image by "+dir+"/Dockerfile", "a verifier with services of its own is not supported")
	case own.Image == "" && built:
		part.verifier, part.script, part.tests = t.below(dir), taskFile{}, nil
		checker["source"], checker["command"] = "command", []string{"bash", "-c", "chmod +x /tests/test.sh; (/tests/test.sh)"}
	default:
		t.refuse(own.Image == "", "write verifier.environment.docker_image or "+dir+"/Dockerfile", "the verifier has an environment of its own without an image")
	}
	t.refuse(spec.Verifier.Environment != nil && own.HealthCheck != nil, "wait in tests/test.sh", "verifier.environment.healthcheck is not supported")
	checker["workdir"] = own.Workdir
	checker["artifacts"], checker["collect"] = spec.collected(t)
	return given(checker)
}

// collected returns the paths of the artifacts, and the commands that run before these are copied: the task's own, and
// one for each pattern that an artifact excludes, in a copy of the machine, as tar matches the pattern.
func (spec harborTask) collected(t *task) (paths []string, commands []map[string]any) {
	for _, c := range spec.Verifier.Collect {
		t.refuse(!isMain(c.Service), "collect it in the service main", "verifier.collect: the service %v is not supported", c.Service)
		commands = append(commands, given(map[string]any{"command": c.Command, "timeout_seconds": c.Timeout, "user": userOf(c.User)}))
	}
	for _, a := range spec.Artifacts {
		table, _ := a.(map[string]any)
		source, _ := cmp.Or[any](table["source"], a).(string)
		source = path.Clean(source)
		t.refuse(!path.IsAbs(source) || source == "/" || !isMain(table["service"]), "write an absolute path of the task's own sandbox, without service", "artifacts: %s is not supported", source)
		if source != "/logs/artifacts" {
			paths = append(paths, source)
		}
		for _, key := range slices.Sorted(maps.Keys(table)) {
			known := slices.Contains([]string{"source", "service", "destination", "exclude"}, key) // the destination is Harbor's own on the host
			t.refuse(!known, "leave it out", "artifacts: %s has the unknown key %s", source, key)
		}
		excluded, list := table["exclude"].([]any)
		t.refuse(!list && table["exclude"] != nil, "a list of patterns", "artifacts: exclude of %s is %v", source, table["exclude"])
		for _, pattern := range excluded {
			at := compiler.ShellWords("*/" + strings.TrimSuffix(fmt.Sprint(pattern), "/"))
			commands = append(commands, map[string]any{"command": "find " + compiler.ShellWords(source) + " -mindepth 1 -path " + at + " -prune -exec rm -rf {} +"})
		}
	}
	return paths, commands
}

// isMain reports whether a service is the task's own sandbox.
func isMain(service any) bool { return service == nil || service == "main" }

// userOf returns a user, which is a name or a number; "" for none.
func userOf(user any) string {
	if user == nil {
		return ""
	}
	return fmt.Sprint(user)
}

// canary matches a comment that asks to keep a task out of training data. It is no part of
// the instruction.
var canary = regexp.MustCompile(`(?i)^\s*(<!--.*canary.*-->|#.*canary.*)\s*$`)

func instructionOf(t *task, name string) string {
	text := t.text(name)
	for text != "" {
		line, rest, _ := strings.Cut(text, "\n")
		if strings.TrimSpace(line) != "" && !canary.MatchString(line) {
			break
		}
		text = rest
	}
	if strings.TrimSpace(text) == "" && len(t.problems) == 0 {
		t.wrong(name, 0, "say there what the agent has to do", "no instruction")
	}
	return text
}

// environment returns the row's environment. If the verifier has limits of its own, both sandboxes get the larger limits.
func (spec harborTask) environment() map[string]any {
	e := spec.Environment
	memory, disk := e.memory().megabytes(), e.storage().megabytes()
	if own := spec.Verifier.Environment; own != nil {
		e.CPUs, memory, disk = larger(e.CPUs, own.CPUs), larger(memory, own.memory().megabytes()), larger(disk, own.storage().megabytes())
	}
	size := func(mb *int64) string {
		if mb == nil {
			return ""
		}
		return fmt.Sprintf("%dm", *mb)
	}
	network := ""
	if cmp.Or(networkMode(spec.Agent.Network, spec.Agent.Hosts), e.network()) == noNetwork {
		network = "none"
	}
	return given(map[string]any{
		"timeout_seconds": spec.Agent.Timeout, "image": e.Image, "workdir": e.Workdir, "harness_user": userOf(spec.Agent.User), "env": e.Env, "network": network,
		"resources":  given(map[string]any{"cpus": e.CPUs, "memory": size(memory), "disk": size(disk)}),
		"entrypoint": e.HealthCheck.entrypoint(),
	})
}

// given returns m without zero values and without maps that have no keys.
func given(m map[string]any) map[string]any {
	maps.DeleteFunc(m, func(_ string, value any) bool {
		v := reflect.ValueOf(value)
		return !v.IsValid() || v.IsZero() || v.Kind() == reflect.Map && v.Len() == 0
	})
	return m
}

// merged returns a new map with the entries of all maps. The later one of two entries with the same key counts.
func merged[V any](all ...map[string]V) map[string]V {
	m := map[string]V{}
	for _, one := range all {
		maps.Copy(m, one)
	}
	return m
}

// Network modes.
const public, noNetwork, allowlist = "public", "no-network", "allowlist"

// networkMode returns the network mode that a mode and a list of allowed hosts mean together: hosts without a mode mean
// allowlist, and allowlist without hosts means noNetwork.
func networkMode(mode string, hosts any) string {
	list, _ := hosts.([]any)
	switch {
	case mode == allowlist && len(list) == 0:
		return noNetwork
	case mode == "" && len(list) > 0:
		return allowlist
	}
	return mode
}

// network returns the network mode of the environment.
func (c *harborContainer) network() string {
	if c.Internet != nil && !*c.Internet && c.Network == "" {
		return noNetwork
	}
	return networkMode(c.Network, c.Hosts)
}

// checkerNetwork returns the network mode of the verifier: the mode that the verifier names, or else the mode of the
// verifier's own environment. Without either, the verifier has no network if the task has none. A mode that opens the network
// for the verifier alone is allowlist: the operator has the list.
func (spec harborTask) checkerNetwork() string {
	own, task := networkMode(spec.Verifier.Network, spec.Verifier.Hosts), spec.Environment.network()
	if own == "" && spec.Verifier.Environment != nil {
		own = spec.Verifier.Environment.network()
	}
	switch {
	case own == public && task == noNetwork:
		return allowlist
	case own == "" && spec.Verifier.Environment == nil && task == noNetwork:
		return noNetwork
	}
	return own
}

// larger returns the larger of two limits; nil is none, and gives way to the other.
func larger[T cmp.Ordered](a, b *T) *T {
	if a == nil || b != nil && *b > *a {
		return b
	}
	return a
}

// exports returns the shell commands that set variables.
func exports(env map[string]string) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(env)) {
		_, _ = fmt.Fprintf(&b, "export %s=%s\n", name, compiler.ShellWords(env[name]))
	}
	return b.String()
}
