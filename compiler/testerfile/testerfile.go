// Package testerfile reads tester files: which tasks to run, with which harness, and what to allow. A tester file is
// YAML; settings replace values of it, and a matrix makes several files of one.
package testerfile

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/proxy/domain"
)

// File is a tester file. Its tags say what it may hold, as in [schema.Fields]. Unless stated otherwise, an optional
// field that the file does not set is zero.
type File struct {
	Path         string              // absolute
	Settings     []Setting           // applied to the file; at most one per key
	Run          RunSection          `key:"run" rule:"required run" doc:"What the run is called and how much of it there is."`
	Benchmark    BenchmarkSection    `key:"benchmark" rule:"required" doc:"The pack."`
	Harness      HarnessSection      `key:"harness" rule:"required harness" doc:"What produces candidates."`
	Verification VerificationSection `key:"verification" rule:"null" doc:"What verifiers may do."`
	Runtime      RuntimeSection      `key:"runtime" rule:"null" doc:"Which containerd to use and how."`

	doc  *document.Document
	name string // the path as it was given to Load
}

// RunSection names a run and says which tasks it runs and how often.
type RunSection struct {
	ID         string   `key:"id" rule:"required name" doc:"The run's id."`
	OutputDir  string   `key:"output_dir" rule:"required name" doc:"The directory for the records, relative to this file."` // absolute
	Jobs       int      `key:"jobs" doc:"How many attempts run at the same time. By default as many as the cores can serve."`
	Attempts   int      `key:"attempts" doc:"How often each task is tried, by default once."`
	MaxCostUSD float64  `key:"max_cost_usd" doc:"What the run may cost at harness.config.prices, in US dollars: once it has cost that, no attempt is started."`
	Tasks      []string `key:"tasks" rule:"name" items:"A glob." doc:"Globs of the ids of the tasks to run."` // see compiler.MatchTask; empty means all
}

// BenchmarkSection says which pack is run. Its paths are absolute.
type BenchmarkSection struct {
	Manifest string `key:"manifest" rule:"required name" doc:"The pack's manifest, relative to this file."`
	Tasks    string `key:"tasks" rule:"required name" doc:"The pack's rows, relative to this file."`
}

// VerificationSection says what verifiers may do.
type VerificationSection struct {
	DisallowDangerousCommands bool         `key:"disallow_dangerous_commands" preset:"true" doc:"Refuse the dangerous commands that tasks need."`
	DenyCommands              []string     `key:"deny_commands" rule:"null" enum:"chroot" items:"The only one known is \"chroot\"." doc:"Dangerous commands that are refused in any case."`
	AfterTimeout              *bool        `key:"after_timeout" doc:"Judge what the harness left even if it did not end in time or ended badly. By default the task's environment.verify_after_timeout decides; without either, such an attempt has failed."`
	Contrast                  string       `key:"contrast" enum:"full,off" doc:"How much is done against candidates that follow their tests; full is the default."`
	Judge                     *JudgeConfig `key:"judge" rule:"null" doc:"A model that judges answers by rubrics in prose, of the tasks that allow it (eval.judge)."`
	OracleImage               string       `key:"oracle_image" trim:"space" rule:"image" doc:"The image in which the oracles of a pack of SecureBench 2.0 run; by default the task's."`
	// AllowedDomains is nil if the file does not say; then checkers that fetch what they need do not run.
	AllowedDomains *[]domain.Domain `key:"allowed_domains" doc:"DNS names, with their subdomains, that checkers with eval.checker.network may reach. A run of such tasks needs the list, which may be empty."`
}

// JudgeConfig names a model that judges answers by rubrics in prose.
type JudgeConfig struct {
	API         string   `key:"api" rule:"required api" doc:"Its API: openai (Chat Completions), anthropic (Messages) or google (generateContent)."`
	Key         string   `key:"key" rule:"required variable" doc:"The environment variable that holds its key, or a name in the env file."`
	Model       string   `key:"model" rule:"required model" doc:"The model."`
	BaseURL     string   `key:"base_url" rule:"url" doc:"The provider's API, for gateways and tests."` // "" means the provider's own
	Votes       int      `key:"votes" rule:"votes" doc:"How often the model is asked about each text, an odd number; 3 by default."`
	Temperature *float64 `key:"temperature" rule:"temperature" doc:"The model's own unless given."`
}

// HarnessCommand is the type of a harness that runs a command from the tester file. Any
// other type is the Name of an AgentType.
const HarnessCommand = "command"

// AgentType is what a tester file may say about one agent. Package harness describes the
// agents; functions that read tester files are given their types.
type AgentType struct {
	Name string // the value of harness.type
	// Credentials are the variables of harness.env that may hold the provider's key; the first
	// that is set is used. There are none here if a file of the tester's describes the agent,
	// and so names them. The key never reaches the agent's sandbox.
	Credentials []Credential
	Model       string // for tester files that an import of a pack writes
	// Config are the agent's own keys of harness.config. Their values are in
	// HarnessConfig.Own.
	Config []schema.Field
}

// A Credential is an environment variable that holds a provider's key. In the descriptor of an agent it is a name, or
// an object.
type Credential struct {
	Name   string `key:"name" rule:"required variable" doc:"A variable of harness.env."`
	Bearer bool   `key:"bearer" doc:"Whether the key is sent as a bearer token."` // if the provider accepts keys in two ways
}

// Decode implements what schema.Decode looks for.
func (c *Credential) Decode(v document.Value) {
	type object Credential // without this method
	if c.Name = v.Text(); v.Kind() == document.Object {
		schema.Decode(v, (*object)(c))
	}
}

// HarnessSection says which harness produces candidates.
type HarnessSection struct {
	Type    string                  `key:"type" rule:"required type" doc:"The type of harness."` // HarnessCommand, or the name of an agent
	Env     []string                `key:"env" rule:"null env" items:"A name, without a value." doc:"The names of environment variables that the harness gets. Values come from the environment or the env file."`
	Secrets map[string]SecretSource `key:"secrets" rule:"null secrets" items:"Where a value is: one of command and file." doc:"Where to get a value of harness.env that neither the environment nor the env file has, by name."`
	Config  HarnessConfig           `key:"config"`
}

// A SecretSource is a command that prints a value, or a file that holds it.
type SecretSource struct {
	Command schema.Command `key:"command" doc:"A command of this host that prints it, without a sandbox."`
	File    string         `key:"file" doc:"A file that holds it, relative to this file."` // absolute; "" for a command
}

// HarnessConfig configures a harness. Which fields apply depends on its type. The digest of a configuration is over its
// JSON, which has the order of these fields.
type HarnessConfig struct {
	TaskFile       string          `key:"task_file" rule:"mount" preset:"task.json" doc:"The file that the task is written to, relative to the workspace."` // clean, never empty
	Timeout        time.Duration   `key:"timeout_seconds" rule:"null" doc:"How long the harness may take, by default 10 minutes; a task's own timeout may be shorter."`
	AllowedDomains []domain.Domain `key:"allowed_domains" doc:"DNS names that the harness may reach. A name allows its subdomains too."` // each once
	Files          []HarnessFile   `key:"files" rule:"null" items:"A file or directory." doc:"Files and directories that the harness finds in its sandbox, read-only: {source: PATH}, which is below /opt there, or {source: PATH, dest: PATH}."`

	Command  schema.Command  `key:"command" rule:"required" doc:"The command to run in the task's sandbox."`
	Provider *ProviderConfig `key:"provider" rule:"null" doc:"The model provider that the command reaches through a relay, which adds the key."`

	Model              string `key:"model" trim:"space" rule:"model" doc:"The model."`
	Version            string `key:"version" trim:"space" rule:"word" preset:"latest" doc:"The version of the agent."`
	BaseURL            string `key:"base_url" rule:"url" doc:"The provider's API, for gateways and tests."`
	KeyHeader          string `key:"key_header" rule:"header" doc:"The header for the provider's key, where a gateway has another than the provider, such as Azure's api-key."`
	AllowExternalTools bool   `key:"allow_external_tools" doc:"Allow tools that the provider runs, such as web search."`
	// RefuseExternalTools refuses requests that contain tools that are not allowed, instead
	// of removing the tools.
	RefuseExternalTools bool          `key:"on_external_tools" is:"refuse" enum:"strip,refuse" doc:"What happens to such a tool in a request: the relay takes it out (strip, the default), or refuses the request."`
	MaxTotalTokens      int64         `key:"max_total_tokens" doc:"The tokens that an attempt may use."` // 0 means no limit, here and below
	MaxRequests         int64         `key:"max_requests" doc:"The requests that an attempt may make."`
	MaxRequestsMinute   int64         `key:"max_requests_per_minute" doc:"How fast all attempts of a run together may ask the provider; a request that is too early waits."`
	MaxCostUSD          float64       `key:"max_cost_usd" doc:"What an attempt may cost at the prices, in US dollars."`
	Prices              *PricesConfig `key:"prices" rule:"null" doc:"What the provider asks for a million tokens, in US dollars."`
	NoPromptCache       bool          `key:"prompt_cache" is:"off" enum:"shared,off" doc:"shared, the default: the provider may keep the agent's prompts in a cache, which all attempts with one key share; off: it may not."`
	// WorkingClock says that time does not count for the timeout in which the provider makes the harness wait.
	WorkingClock bool                 `key:"clock" is:"working" enum:"wall,working" doc:"What counts for the timeout. wall, the default: all time; working: not the time, up to an hour, in which the harness waits because the provider has too much load."`
	MCPServers   map[string]MCPServer `key:"mcp_servers" json:",omitempty" rule:"null servers" items:"A server: one of command and url." doc:"Servers of the Model Context Protocol that the agent is told of, by name."`
	// Own are the values of AgentType.Config that the file sets: strings without surrounding
	// white space, other values as JSON.
	Own map[string]string
}

// PricesConfig says what a provider charges for a million tokens, in US dollars.
type PricesConfig struct {
	Input       float64 `key:"input" rule:"required" doc:"Tokens that the model reads."`
	CachedInput float64 `key:"cached_input" doc:"Input tokens that the provider has in its cache; by default the price of input."`
	Output      float64 `key:"output" rule:"required" doc:"Tokens that the model writes, reasoning included."`
}

// An MCPServer is a server of the Model Context Protocol: a program that the agent starts in its sandbox,
// or a server that it reaches by HTTP.
type MCPServer struct {
	Command schema.Command    `key:"command" doc:"A command that the agent runs in its sandbox, and speaks with by its standard streams."`
	Env     map[string]string `key:"env" doc:"The variables of the command."`
	URL     string            `key:"url" rule:"url" doc:"Where the server is; its host has to be in allowed_domains."`
}

// A HarnessFile is a file or directory of the tester's that a harness finds in its sandbox. Both paths are absolute.
type HarnessFile struct {
	Source string `key:"source" rule:"required" doc:"Its path, relative to this file."`
	Dest   string `key:"dest" rule:"dest" doc:"Where it is in the sandbox, below /opt; by default /opt and its name."`
}

// ProviderConfig says which API a command reaches through a relay, and in which variables the command
// finds address, key and model. By default these are the variables of the provider's own clients.
type ProviderConfig struct {
	API             string `key:"api" rule:"required api" doc:"Its API: openai (Responses and Chat Completions), anthropic (Messages) or google (generateContent)."`
	Key             string `key:"key" rule:"required variable" doc:"The variable of harness.env that holds the key. The command does not get it."`
	BaseURLVariable string `key:"base_url_variable" rule:"variable" doc:"The command's variable for the address of the relay, by default OPENAI_BASE_URL, ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL."`
	KeyVariable     string `key:"key_variable" rule:"variable" doc:"The command's variable for a stand-in for the key, by default OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY."`
	ModelVariable   string `key:"model_variable" rule:"variable" doc:"The command's variable for the model, by default SBENCH_MODEL."`
}

// RuntimeSection says which containerd to use and how.
type RuntimeSection struct {
	Address           string          `key:"address" rule:"socket" doc:"The socket of containerd; none for a private containerd."` // "" for the system's if usable, else a private one
	Namespace         string          `key:"namespace" doc:"The containerd namespace."`
	Snapshotter       string          `key:"snapshotter" doc:"The snapshotter."`
	OCIRuntime        string          `key:"oci_runtime" doc:"The OCI runtime, by path or by name: auto (the default) is runc."`
	Isolation         string          `key:"isolation" enum:"auto,container,gvisor" doc:"How sandboxes are kept apart from the host's kernel: auto, the default, is gvisor for tasks that ask for it, and container for the other tasks; container refuses tasks that ask for gvisor."`
	Pull              string          `key:"pull" enum:"missing,never,always" doc:"When images are pulled; missing is the default."`
	UserNamespace     string          `key:"user_namespace" enum:"auto,host" doc:"Whether sandboxes have a user namespace of their own: auto, the default, or host, which means none."`
	AllowSeccomp      bool            `key:"allow_seccomp" doc:"Let programs in sandboxes install seccomp and socket filters, which take memory of the host, and use Landlock."`
	AllowNetlink      bool            `key:"allow_netlink" doc:"Let programs in sandboxes open netlink sockets, which take memory of the host."`
	AllowCapabilities bool            `key:"allow_capabilities" doc:"Let tasks have the capabilities that they name, such as CHOWN and SETUID for package managers."`
	SetupDomains      []domain.Domain `key:"setup_domains" doc:"DNS names that the commands of environment.setup may reach. A name allows its subdomains too."`
	Network           NetworkSection  `key:"network" rule:"null" doc:"How sandboxes reach what they are allowed to."`
	Limits            LimitsSection   `key:"limits" rule:"null limits" doc:"Bounds on sandboxes and on what they leave."`
	AllowDegraded     []string        `key:"allow_degraded" enum:"memory,swap,pids,cpu" items:"The name of a limit." doc:"Limits that the host's kernel need not enforce."`
}

// NetworkSection says how sandboxes reach the domains they are allowed.
type NetworkSection struct {
	Transparent bool   `key:"transparent" doc:"Redirect the connections of programs that ignore the proxy variables."`
	CABundle    string `key:"ca_bundle" doc:"A file of certificates to trust in sandboxes whose image has none, relative to this file."` // absolute
}

// LimitsSection has the limits of sandboxes, workspaces and outputs.
type LimitsSection struct {
	Memory         int64   `key:"memory"` // bytes; for the first three see schema.Resources
	CPUs           float64 `key:"cpus"`   // cores
	Pids           int64   `key:"pids"`   // processes and threads
	WorkspaceBytes int64   `key:"workspace_bytes" rule:"bytes" doc:"The size of a workspace in bytes, or as \"1g\"; 2 GiB by default."`
	OutputBytes    int64   `key:"output_bytes" rule:"bytes" doc:"How much of a command's output is kept, in bytes or as \"1m\"; 1 MiB by default."`
}

// Load reads a tester file, applies the settings, and returns the result with its warnings. The
// harness is a command or one of the agents. Relative paths, also in settings, are relative to the file's
// directory. The error holds Problems, possibly with warnings among them.
func Load(path string, agents []AgentType, settings ...Setting) (*File, document.Problems, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, nil, document.Problems{{File: path, Message: "is a directory, not a tester file", Hint: testersIn(path)}}
	}
	if filepath.Ext(path) == ".jsonl" {
		return nil, nil, document.Problems{{File: path, Message: "is a pack's file of rows, not a tester file", Hint: "a tester file names it in benchmark.tasks"}}
	}
	doc, problems := document.ReadYAML(path)
	if len(problems) == 0 {
		doc, problems = withSettings(doc, settings, agents)
	}
	if len(problems) > 0 {
		return nil, nil, problems
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, document.ProblemsOf(path, err)
	}
	root := doc.Root()
	if !hasTesterKey(root) && root.Get("id").Kind() != 0 {
		return nil, nil, document.Problems{{File: path, Message: "is a pack's manifest, not a tester file", Hint: "a tester file names it in benchmark.manifest"}}
	}
	harness := root.Get("harness")
	c := schema.Checker{File: path}
	sound := c.Check(Schema(agents), root)
	if config := harnessConfigs(agents)[harness.Get("type").Text()]; config != nil {
		sound = c.CheckAt("config", config, harness) && sound
	}
	for i := range c.Problems {
		if c.Problems[i].Line == 0 {
			c.Problems[i].File = settingsFile
		}
	}
	if !sound {
		return nil, nil, c.Problems
	}
	t := &File{Path: absolute, Settings: settings, doc: doc, name: path}
	t.fill(root)
	if i := slices.IndexFunc(agents, func(a AgentType) bool { return a.Name == t.Harness.Type }); i >= 0 {
		t.Harness.Config.Own = ownConfig(agents[i], harness.Get("config"))
	}
	warnOfSecrets(&c, t, harness.Get("env"))
	return t, c.Problems, nil
}

func ownConfig(agent AgentType, config document.Value) map[string]string {
	own := map[string]string{}
	for _, field := range agent.Config {
		if v := config.Get(field.Name); v.Given() {
			own[field.Name] = strings.TrimSpace(v.Plain())
		}
	}
	return own
}

// Likely reports whether a YAML file is probably a tester file: its name says so, or it has a key that only tester files
// have.
func Likely(path string) bool {
	doc, problems := document.ReadYAML(path)
	return doc != nil && (strings.HasPrefix(filepath.Base(path), "tester") || len(problems) == 0 && hasTesterKey(doc.Root()))
}

func hasTesterKey(root document.Value) bool {
	if root.Get("schema_version").Is("2.0") { // a manifest of SecureBench 2.0
		return false
	}
	return slices.ContainsFunc([]string{"schema_version", "harness", "run"}, func(key string) bool { return root.Get(key).Kind() != 0 })
}

func testersIn(dir string) string {
	var names []string
	entries, _ := os.ReadDir(dir) // sorted; unreadable entries cannot be named
	for _, e := range entries {
		if name := filepath.Join(dir, e.Name()); strings.HasPrefix(filepath.Ext(name), ".y") && e.Type().IsRegular() && Likely(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "and there is none in it"
	}
	return "name one in it: " + strings.Join(names, ", ")
}

// Name returns the file's path as it was given to Load; "" for the zero File.
func (t *File) Name() string { return cmp.Or(t.name, t.Path) }

// Problem returns a problem with the value at a JSON path such as $.run.tasks[0], with the
// line of that value or, if the file lacks it, of the nearest one above it.
func (t *File) Problem(path, hint, message string) document.Problem {
	p := document.Problem{File: t.Name(), Path: path, Message: message, Hint: hint}
	if t.doc != nil {
		p.Line = t.doc.Nearest(path).Line()
	}
	return p
}

func (t *File) fill(root document.Value) {
	config := &t.Harness.Config
	t.Verification.DisallowDangerousCommands = true
	config.TaskFile = "task.json"
	if !root.Get("harness").Get("type").Is(HarnessCommand) {
		config.Version = "latest"
	}
	schema.Decode(root, t)
	for _, p := range []*string{&t.Run.OutputDir, &t.Benchmark.Manifest, &t.Benchmark.Tasks, &t.Runtime.Network.CABundle} {
		*p = t.resolve(*p)
	}
	for name, s := range t.Harness.Secrets {
		s.File = t.resolve(s.File)
		t.Harness.Secrets[name] = s
	}
	for i := range config.Files {
		f := &config.Files[i]
		f.Source = t.resolve(f.Source)
		f.Dest = cmp.Or(f.Dest, path.Join("/opt", filepath.Base(f.Source)))
	}
	if p := config.Prices; p != nil {
		p.CachedInput = cmp.Or(p.CachedInput, p.Input)
	}
	if p := config.Provider; p != nil {
		p.ModelVariable = cmp.Or(p.ModelVariable, "SBENCH_MODEL")
	}
	if j := t.Verification.Judge; j != nil {
		j.Votes = cmp.Or(j.Votes, 3)
	}
	config.TaskFile, _ = paths.Parse(config.TaskFile) // the schema's check has passed
}

// resolve returns the clean form of a path that is absolute or relative to the tester file; ""
// for none.
func (t *File) resolve(p string) string {
	switch {
	case p == "":
		return ""
	case filepath.IsAbs(p):
		return filepath.Clean(p)
	}
	return filepath.Join(filepath.Dir(t.Path), p)
}

// warnOfSecrets warns about variables for a command that look like secrets: a command gets
// the values themselves, whereas an agent gets placeholders.
func warnOfSecrets(c *schema.Checker, t *File, env document.Value) {
	if t.Harness.Type != HarnessCommand {
		return
	}
	for _, v := range env.Items() {
		if p := t.Harness.Config.Provider; p != nil && p.Key == v.Text() {
			continue // which the relay alone gets
		}
		if schema.IsSecret(v.Text()) {
			c.Warnf(v, "the command, and whatever it runs, can read the value",
				"%q looks like the name of a secret", v.Text())
		}
	}
}
