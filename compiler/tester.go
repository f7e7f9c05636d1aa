package compiler

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Tester is a tester file: which tasks to run, with which harness, and what to allow.
// An optional field is zero if the file does not set it, unless stated otherwise.
type Tester struct {
	Path         string // absolute
	Run          RunSection
	Benchmark    BenchmarkSection
	Verification VerificationSection
	Harness      HarnessSection
	Runtime      RuntimeSection

	envLines []int  // 1-based, of the items of Harness.Env
	name     string // the path as it was given to LoadTester
}

// RunSection names a run and says which tasks it runs and how often.
type RunSection struct {
	ID        string
	OutputDir string   // absolute
	Jobs      int      // attempts that run at the same time
	Attempts  int      // per task
	Tasks     []string // globs of task ids, see MatchTask; empty means all
}

// BenchmarkSection says which pack is run.
type BenchmarkSection struct {
	Manifest string // absolute
	Tasks    string // absolute
}

// VerificationSection says which dangerous commands verifiers may use.
type VerificationSection struct {
	DisallowDangerousCommands bool     // true unless the file says otherwise
	DenyCommands              []string // refused in any case
}

// HarnessType is the type of a harness. The zero HarnessType is invalid.
type HarnessType string

// The types of harnesses.
const (
	HarnessCommand    HarnessType = "command"
	HarnessCodex      HarnessType = "codex"
	HarnessClaudeCode HarnessType = "claude_code"
)

// HarnessSection says which harness produces candidates.
type HarnessSection struct {
	Type HarnessType
	// Env are the names of the environment variables that the harness gets.
	Env    []string
	Config HarnessConfig
}

// HarnessConfig configures a harness. Which fields apply depends on its type.
type HarnessConfig struct {
	TaskFile string        // clean, relative to the workspace; never empty
	Timeout  time.Duration // zero if the file does not say
	// AllowedDomains are in lower case, each once; a name allows its
	// subdomains too.
	AllowedDomains []string

	// For a command.
	Command Command

	// For an agent.
	Model              string
	Version            string // "latest" unless the file says otherwise
	ReasoningEffort    string
	BaseURL            string // of the provider's API, for gateways and tests
	AllowExternalTools bool   // tools that the provider runs, such as web search
	// RefuseExternalTools refuses a request for tools that are not allowed, instead
	// of removing them from it.
	RefuseExternalTools bool
	MaxTotalTokens      int64 // per attempt; 0 means no limit
	MaxRequests         int64 // per attempt; 0 means no limit
}

// RuntimeSection says which containerd to use and how.
type RuntimeSection struct {
	Address       string // containerd's socket; empty for a containerd that sbench manages
	Namespace     string
	Snapshotter   string
	Handler       string // the OCI runtime's shim, such as io.containerd.runc.v2
	OCIRuntime    string // the program that the shim executes, such as crun; "" and auto are runc
	Pull          string // missing, never or always
	UserNamespace string // auto or host
	// AllowSeccomp and AllowNetlink let programs in sandboxes install filters of
	// their own, which includes Landlock, and open netlink sockets.
	AllowSeccomp, AllowNetlink bool
	Network                    NetworkSection
	Limits                     LimitsSection
	// AllowDegraded names the limits that a host's kernel need not enforce.
	AllowDegraded []string
}

// NetworkSection says how sandboxes reach the domains they are allowed.
type NetworkSection struct {
	Transparent bool   // also catch connections of programs that do not use the proxy
	CABundle    string // file of certificates to trust in sandboxes, absolute; "" for none
}

// LimitsSection has the limits of sandboxes and of what they leave behind.
type LimitsSection struct {
	Memory         int64   // bytes
	CPUs           float64 // cores
	Pids           int64   // processes and threads
	WorkspaceBytes int64   // size of a workspace
	OutputBytes    int64   // kept of a command's output
}

// LoadTester reads a tester file and returns it with its warnings. Relative paths in
// it are relative to its folder. The error holds Problems, possibly with warnings
// among them.
func LoadTester(path string) (*Tester, Problems, error) {
	text, problem := readFile(path)
	if problem != nil {
		return nil, nil, Problems{*problem}
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, Problems{{File: path, Message: err.Error()}}
	}
	var doc document.Document
	if problems := doc.ParseYAML(text); len(problems) > 0 {
		return nil, nil, problems.In(path)
	}
	root := doc.Root()
	c := schema.Checker{File: path}
	sound := c.Check(testerSchema(), root)
	kind := root.Get("harness").Get("type").Text()
	if config := harnessConfig(HarnessType(kind)); config != nil && isObjectOrAbsent(root.Get("harness").Get("config")) {
		harness := root.Get("harness")
		c.At("harness", func() { sound = c.CheckAt("config", config, harness) && sound })
	}
	if !sound {
		return nil, nil, c.Problems
	}
	t := &Tester{Path: absolute, name: path}
	t.fill(root)
	warnOfSecrets(&c, t, root.Get("harness").Get("env"))
	return t, c.Problems, nil
}

func (t *Tester) fill(root document.Value) {
	run, benchmark, verification := root.Get("run"), root.Get("benchmark"), root.Get("verification")
	t.Run = RunSection{
		ID: run.Get("id").Text(), OutputDir: t.resolve(run.Get("output_dir")),
		Jobs: integer(run.Get("jobs")), Attempts: integer(run.Get("attempts")), Tasks: stringList(run.Get("tasks")),
	}
	t.Benchmark = BenchmarkSection{Manifest: t.resolve(benchmark.Get("manifest")), Tasks: t.resolve(benchmark.Get("tasks"))}
	disallow := verification.Get("disallow_dangerous_commands")
	t.Verification = VerificationSection{
		DisallowDangerousCommands: disallow.Kind() != document.Bool || disallow.IsTrue(),
		DenyCommands:              dangerousList(verification.Get("deny_commands")),
	}
	harness := root.Get("harness")
	t.Harness = HarnessSection{Type: HarnessType(harness.Get("type").Text()), Env: stringList(harness.Get("env"))}
	for _, v := range harness.Get("env").Items() {
		t.envLines = append(t.envLines, v.Line())
	}
	t.Harness.Config = parseConfig(t.Harness.Type, harness.Get("config"))
	t.Runtime = parseRuntime(root.Get("runtime"))
	if bundle := root.Get("runtime").Get("network").Get("ca_bundle"); bundle.Kind() == document.String {
		t.Runtime.Network.CABundle = t.resolve(bundle)
	}
}

func (t *Tester) resolve(v document.Value) string {
	if path := v.Text(); filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(filepath.Dir(t.Path), v.Text())
}

func integer(v document.Value) int {
	n, _ := v.Int64()
	return int(n)
}

func parseConfig(kind HarnessType, v document.Value) HarnessConfig {
	config := HarnessConfig{
		TaskFile: "task.json", Timeout: seconds(v.Get("timeout_seconds")),
		Command: parseCommand(v.Get("command")),
		Model:   strings.TrimSpace(v.Get("model").Text()), Version: "latest",
		ReasoningEffort:    v.Get("reasoning_effort").Text(),
		BaseURL:            v.Get("base_url").Text(),
		AllowExternalTools: v.Get("allow_external_tools").IsTrue(), RefuseExternalTools: v.Get("on_external_tools").Text() == "refuse",
	}
	config.MaxTotalTokens, _ = v.Get("max_total_tokens").Int64()
	config.MaxRequests, _ = v.Get("max_requests").Int64()
	if file := v.Get("task_file"); file.Kind() == document.String {
		config.TaskFile, _ = ParsePath(file.Text()) // the schema's check has passed
	}
	for _, name := range stringList(v.Get("allowed_domains")) {
		if domain, err := ParseDomain(name); err == nil && !slices.Contains(config.AllowedDomains, domain) {
			config.AllowedDomains = append(config.AllowedDomains, domain)
		}
	}
	if kind == HarnessCommand {
		config.Version = ""
		return config
	}
	if version := strings.TrimSpace(v.Get("version").Text()); version != "" {
		config.Version = version
	}
	return config
}

func parseRuntime(v document.Value) RuntimeSection {
	limits := v.Get("limits")
	r := RuntimeSection{
		Address: v.Get("address").Text(), Namespace: v.Get("namespace").Text(), Snapshotter: v.Get("snapshotter").Text(),
		Handler: v.Get("handler").Text(), OCIRuntime: v.Get("oci_runtime").Text(), Pull: v.Get("pull").Text(), UserNamespace: v.Get("user_namespace").Text(),
		AllowSeccomp: v.Get("allow_seccomp").IsTrue(), AllowNetlink: v.Get("allow_netlink").IsTrue(),
		Network:       NetworkSection{Transparent: v.Get("network").Get("transparent").IsTrue()},
		AllowDegraded: stringList(v.Get("allow_degraded")),
		Limits: LimitsSection{
			Memory: parseBytes(limits.Get("memory")), WorkspaceBytes: parseBytes(limits.Get("workspace_bytes")),
			OutputBytes: parseBytes(limits.Get("output_bytes")),
		},
	}
	r.Limits.CPUs, _ = limits.Get("cpus").Float64()
	r.Limits.Pids, _ = limits.Get("pids").Int64()
	return r
}

// warnOfSecrets warns of variables for a command that look like secrets: a command
// gets the values themselves, whereas an agent gets placeholders.
func warnOfSecrets(c *schema.Checker, t *Tester, env document.Value) {
	if t.Harness.Type != HarnessCommand {
		return
	}
	for i, v := range env.Items() {
		if name := strings.ToUpper(v.Text()); looksSecret(name) {
			c.Warnf(v, []any{"harness", "env", i}, "the command, and whatever it runs, can read the value",
				"%q looks like the name of a secret", v.Text())
		}
	}
}

func looksSecret(name string) bool {
	for _, word := range []string{"SECRET", "TOKEN", "PASSWORD", "PASSWD", "CREDENTIAL", "PRIVATE", "API_KEY", "APIKEY", "ACCESS_KEY", "AUTH_", "OAUTH"} {
		if strings.Contains(name, word) {
			return true
		}
	}
	return strings.HasSuffix(name, "_KEY") || strings.HasSuffix(name, "_PAT") || strings.HasSuffix(name, "_AUTH") || name == "KEY"
}

// ResolveEnv returns the values of the names in harness.env. Environ is a list of
// NAME=VALUE as os.Environ returns it, and takes precedence over file, which
// LoadEnvFile returns. A name without a value, or with an empty one, is an error; it
// holds Problems, none of which quotes a value.
func (t *Tester) ResolveEnv(environ []string, file map[string]string) (map[string]string, error) {
	known := make(map[string]string, len(environ))
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		known[name] = value
	}
	var problems Problems
	values := make(map[string]string, len(t.Harness.Env))
	for i, name := range t.Harness.Env {
		value := known[name]
		if _, ok := known[name]; !ok {
			value = file[name]
		}
		if value == "" {
			problems = append(problems, Problem{
				File: t.name, Line: t.envLines[i], Path: fmt.Sprintf("$.harness.env[%d]", i),
				Message: fmt.Sprintf("environment variable %q has no value", name),
				Hint:    "set it, or give it in the env file",
			})
			continue
		}
		values[name] = value
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return values, nil
}
