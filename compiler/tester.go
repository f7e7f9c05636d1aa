package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/proxy/domain"
)

// Tester is a tester file: which tasks to run, with which harness, and what to allow. Unless
// stated otherwise, an optional field that the file does not set is zero.
type Tester struct {
	Path         string              // absolute
	Settings     []Setting           // applied to the file; at most one per key
	Run          RunSection          `key:"run"`
	Benchmark    BenchmarkSection    `key:"benchmark"`
	Verification VerificationSection `key:"verification"`
	Harness      HarnessSection      `key:"harness"`
	Runtime      RuntimeSection      `key:"runtime"`

	doc  *document.Document
	name string // the path as it was given to LoadTester
}

// RunSection names a run and says which tasks it runs and how often.
type RunSection struct {
	ID        string `key:"id"`
	OutputDir string `key:"output_dir"` // absolute
	Jobs      int    `key:"jobs"`       // attempts that run at the same time
	Attempts  int    `key:"attempts"`   // per task
	// MaxCostUSD is what the run may cost at HarnessConfig.Prices; 0 means no limit.
	MaxCostUSD float64  `key:"max_cost_usd"`
	Tasks      []string `key:"tasks"` // globs of task ids, see MatchTask; empty means all
}

// BenchmarkSection says which pack is run.
type BenchmarkSection struct {
	Manifest string `key:"manifest"` // absolute
	Tasks    string `key:"tasks"`    // absolute
}

// VerificationSection says what verifiers may do.
type VerificationSection struct {
	DisallowDangerousCommands bool         `key:"disallow_dangerous_commands"` // true unless the file says otherwise
	DenyCommands              []string     `key:"deny_commands"`               // refused in any case
	AfterTimeout              *bool        `key:"after_timeout"`               // nil: as the task's environment says
	Contrast                  string       `key:"contrast"`                    // full, quick or off; "" means full
	Judge                     *JudgeConfig `key:"judge"`                       // nil if the file has none
	// AllowedDomains may be reached by checkers that fetch what they need; nil if the file does not
	// say, and then such checkers do not run.
	AllowedDomains *[]domain.Domain `key:"allowed_domains"`
	// OracleImage is the image of the oracles of packs of SecureBench 2.0; "" for each task's own.
	OracleImage string `key:"oracle_image" trim:"space"`
}

// JudgeConfig names a model that judges answers by rubrics in prose.
type JudgeConfig struct {
	API         string   `key:"api"`
	Key         string   `key:"key"` // the variable with the key
	Model       string   `key:"model"`
	BaseURL     string   `key:"base_url"`    // "" means the provider's own
	Votes       int      `key:"votes"`       // for each text; 3 unless the file says otherwise
	Temperature *float64 `key:"temperature"` // nil: the model's own
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

// A Credential is an environment variable that holds a provider's key.
type Credential struct {
	Name   string
	Bearer bool // send it as a bearer token if the provider accepts keys in two ways
}

// HarnessSection says which harness produces candidates.
type HarnessSection struct {
	Type string `key:"type"` // HarnessCommand, or the name of an agent; empty is invalid
	// Env are the names of the environment variables that the harness gets.
	Env []string `key:"env"`
	// Secrets say where to get the values that neither the environment nor the env file has, by
	// names in Env.
	Secrets map[string]SecretSource `key:"secrets"`
	Config  HarnessConfig           `key:"config"`
}

// A SecretSource is a command that prints a value, or a file that holds it.
type SecretSource struct {
	Command Command `key:"command"`
	File    string  `key:"file"` // absolute; "" for a command
}

// HarnessConfig configures a harness. Which fields apply depends on its type.
type HarnessConfig struct {
	TaskFile string        `key:"task_file"`       // clean, relative to the workspace; never empty
	Timeout  time.Duration `key:"timeout_seconds"` // zero if the file does not say
	// AllowedDomains may be reached, and so may their subdomains. Each is listed once.
	AllowedDomains []domain.Domain `key:"allowed_domains"`

	Files []HarnessFile `key:"files"` // in the order of the file

	// For a command.
	Command  Command         `key:"command"`
	Provider *ProviderConfig `key:"provider"` // nil if the file has none

	// For an agent, and for a command with a Provider.
	Model              string `key:"model" trim:"space"`
	Version            string `key:"version" trim:"space"` // "latest" unless the file says otherwise
	BaseURL            string `key:"base_url"`             // of the provider's API, for gateways and tests
	KeyHeader          string `key:"key_header"`           // "" for the provider's own
	AllowExternalTools bool   `key:"allow_external_tools"` // tools that the provider runs, such as web search
	// RefuseExternalTools refuses requests that contain tools that are not allowed, instead
	// of removing the tools.
	RefuseExternalTools bool          `key:"on_external_tools" is:"refuse"`
	MaxTotalTokens      int64         `key:"max_total_tokens"`        // per attempt; 0 means no limit
	MaxRequests         int64         `key:"max_requests"`            // per attempt; 0 means no limit
	MaxRequestsMinute   int64         `key:"max_requests_per_minute"` // of the run; 0 means no limit
	MaxCostUSD          float64       `key:"max_cost_usd"`            // per attempt, at Prices; 0 means no limit
	Prices              *PricesConfig `key:"prices"`                  // nil if the file has none
	// NoPromptCache asks the provider to keep no prompt in its cache.
	NoPromptCache bool `key:"prompt_cache" is:"off"`
	// WorkingClock says that time does not count for the timeout in which the provider makes the harness wait.
	WorkingClock          bool `key:"clock" is:"working"`
	SidecarsReachProvider bool `key:"sidecars_reach_provider"` // a task's sidecars may use the relay
	// MCPServers are the tool servers that the agent is told about, by name.
	MCPServers map[string]MCPServer `key:"mcp_servers" json:",omitempty"`
	// Own are the values of AgentType.Config that the file sets: strings without surrounding
	// white space, other values as JSON.
	Own map[string]string
}

// PricesConfig says what a provider charges for a million tokens, in US dollars.
type PricesConfig struct {
	Input       float64 `key:"input"`
	CachedInput float64 `key:"cached_input"` // Input unless the file says otherwise
	Output      float64 `key:"output"`       // reasoning included
}

// An MCPServer is a server of the Model Context Protocol: a program that the agent starts in its sandbox,
// or a server that it reaches by HTTP.
type MCPServer struct {
	Command Command           `key:"command"` // zero for a URL
	Env     map[string]string `key:"env"`     // of the command
	URL     string            `key:"url"`     // "" for a command
}

// A HarnessFile is a file or directory of the tester's that a harness finds in its sandbox.
type HarnessFile struct {
	Source string `key:"source"` // absolute
	Dest   string `key:"dest"`   // in the sandbox, absolute
}

// ProviderConfig says which API a command reaches through a relay, and in which variables the command
// finds address, key and model. By default these are the variables of the provider's own clients.
type ProviderConfig struct {
	API string `key:"api"` // of AgentType, or of package harness
	Key string `key:"key"` // the variable of harness.env that holds the real key; the command does not get it
	// The variables of the command: the address of the relay, a stand-in for the key, the model.
	BaseURLVariable string `key:"base_url_variable"`
	KeyVariable     string `key:"key_variable"`
	ModelVariable   string `key:"model_variable"`
}

// RuntimeSection says which containerd to use and how.
type RuntimeSection struct {
	Address       string `key:"address"` // containerd's socket; "none" for a private daemon; "" for the system's if usable, else a private one
	Namespace     string `key:"namespace"`
	Snapshotter   string `key:"snapshotter"`
	Handler       string `key:"handler"`        // the OCI runtime's shim; "" and auto mean sbench's own, or else containerd's
	OCIRuntime    string `key:"oci_runtime"`    // the program that the shim executes, such as crun; "" and auto mean runc, or what the daemon has
	Isolation     string `key:"isolation"`      // auto, container or gvisor; "" means auto
	Pull          string `key:"pull"`           // missing, never or always
	UserNamespace string `key:"user_namespace"` // auto or host
	// AllowSeccomp and AllowNetlink let programs in sandboxes install filters of their own
	// (including Landlock) and open netlink sockets.
	AllowSeccomp bool `key:"allow_seccomp"`
	AllowNetlink bool `key:"allow_netlink"`
	// AllowCapabilities lets tasks have the capabilities of environment.capabilities.
	AllowCapabilities bool `key:"allow_capabilities"`
	// SetupDomains may be reached by the commands of environment.setup.
	SetupDomains []domain.Domain `key:"setup_domains"`
	Network      NetworkSection  `key:"network"`
	Limits       LimitsSection   `key:"limits"`
	// AllowDegraded names limits that the host's kernel need not enforce.
	AllowDegraded []string `key:"allow_degraded"`
}

// NetworkSection says how sandboxes reach the domains they are allowed.
type NetworkSection struct {
	Transparent bool   `key:"transparent"` // also redirect connections of programs that do not use the proxy
	CABundle    string `key:"ca_bundle"`   // file of certificates to trust in sandboxes, absolute; "" for none
}

// LimitsSection has the limits of sandboxes, workspaces and outputs.
type LimitsSection struct {
	Memory         int64   `key:"memory"`          // bytes
	CPUs           float64 `key:"cpus"`            // cores
	Pids           int64   `key:"pids"`            // processes and threads
	WorkspaceBytes int64   `key:"workspace_bytes"` // size of a workspace
	OutputBytes    int64   `key:"output_bytes"`    // most that sbench stores of a command's output
}

// LoadTester reads a tester file, applies the settings, and returns the result with its warnings. The
// harness is a command or one of the agents. Relative paths, also in settings, are relative to the file's
// directory. The error holds Problems, possibly with warnings among them.
func LoadTester(path string, agents []AgentType, settings ...Setting) (*Tester, Problems, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, nil, Problems{{File: path, Message: "is a directory, not a tester file", Hint: testersIn(path)}}
	}
	doc, problems := readYAML(path)
	if len(problems) == 0 {
		doc, problems = withSettings(doc, settings, agents)
	}
	if len(problems) > 0 {
		return nil, nil, problems
	}
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, nil, problemsOf(path, err)
	}
	root := doc.Root()
	if !hasTesterKey(root) && root.Get("id").Kind() != 0 {
		return nil, nil, Problems{{File: path, Message: "is a pack's manifest, not a tester file", Hint: "a tester file names it in benchmark.manifest"}}
	}
	harness := root.Get("harness")
	c := schema.Checker{File: path}
	sound := c.Check(testerSchema(agents), root)
	if config := harnessConfigs(agents)[harness.Get("type").Text()]; config != nil && isObjectOrAbsent(harness.Get("config")) {
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
	t := &Tester{Path: absolute, Settings: settings, doc: doc, name: path}
	t.fill(root)
	if i := slices.IndexFunc(agents, func(a AgentType) bool { return a.Name == t.Harness.Type }); i >= 0 {
		t.Harness.Config.Own = ownConfig(agents[i], harness.Get("config"))
	}
	warnOfSecrets(&c, t, harness.Get("env"))
	return t, c.Problems, nil
}

// ownConfig returns the agent's own keys that config sets.
func ownConfig(agent AgentType, config document.Value) map[string]string {
	own := map[string]string{}
	for _, field := range agent.Config {
		if v := config.Get(field.Name); v.Given() {
			own[field.Name] = strings.TrimSpace(v.Plain())
		}
	}
	return own
}

// testersIn says which tester files a directory has.
func testersIn(dir string) string {
	var names []string
	entries, _ := os.ReadDir(dir) // sorted; unreadable entries cannot be named
	for _, e := range entries {
		if name := filepath.Join(dir, e.Name()); isYAML(name) && e.Type().IsRegular() && looksLikeTester(name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return "and there is none in it"
	}
	return "name one in it: " + strings.Join(names, ", ")
}

// Problem returns a problem with the value at a JSON path such as $.run.tasks[0], with the
// line of that value or, if the file lacks it, of the nearest one above it.
func (t *Tester) Problem(path, hint, message string) Problem {
	p := Problem{File: cmp.Or(t.name, t.Path), Path: path, Message: message, Hint: hint}
	if t.doc != nil {
		p.Line = t.doc.Nearest(path).Line()
	}
	return p
}

// OpenPack opens the pack that the tester file names. A missing manifest or file of rows is
// a problem of the tester file. The error holds Problems.
func (t *Tester) OpenPack() (*Pack, error) {
	return t.openPack(t.Benchmark.Manifest, t.Benchmark.Tasks)
}

// openPack is OpenPack with other names of the same files. t may be nil.
func (t *Tester) openPack(manifest, tasks string) (*Pack, error) {
	pack, err := OpenPack(manifest, tasks)
	if err == nil || t == nil {
		return pack, err
	}
	problems := problemsOf(manifest, err)
	for i, p := range problems {
		field := map[string]string{manifest: "$.benchmark.manifest", tasks: "$.benchmark.tasks"}[p.File]
		if _, err := os.Stat(p.File); field != "" && errors.Is(err, fs.ErrNotExist) {
			problems[i] = t.Problem(field, "paths are relative to the tester file", fmt.Sprintf("there is no file %q", p.File))
		}
	}
	return nil, problems
}

func (t *Tester) fill(root document.Value) {
	config := &t.Harness.Config
	t.Verification.DisallowDangerousCommands = true
	config.TaskFile = "task.json"
	if !root.Get("harness").Get("type").Is(HarnessCommand) {
		config.Version = "latest"
	}
	decode(root, t)
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
	t.Verification.DenyCommands = dangerousList(root.Get("verification").Get("deny_commands"))
	config.TaskFile, _ = ParsePath(config.TaskFile) // the schema's check has passed
}

// resolve returns the clean form of a path that is absolute or relative to the tester file; ""
// for none.
func (t *Tester) resolve(p string) string {
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
func warnOfSecrets(c *schema.Checker, t *Tester, env document.Value) {
	if t.Harness.Type != HarnessCommand {
		return
	}
	for _, v := range env.Items() {
		if p := t.Harness.Config.Provider; p != nil && p.Key == v.Text() {
			continue // which the relay alone gets
		}
		if name := strings.ToUpper(v.Text()); secretName.MatchString(name) {
			c.Warnf(v, "the command, and whatever it runs, can read the value",
				"%q looks like the name of a secret", v.Text())
		}
	}
}

// secretName matches names of variables, in capitals, that look like secrets.
var secretName = regexp.MustCompile(`SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|API_KEY|APIKEY|ACCESS_KEY|AUTH_|OAUTH|_(KEY|PAT|AUTH)$|^KEY$`)

// ResolveEnv returns the values of the names in harness.env. environ has entries NAME=VALUE, as from
// os.Environ, and takes precedence over file, which is from LoadEnvFile. A missing or empty value is an
// error. The error holds Problems that quote no value.
func (t *Tester) ResolveEnv(environ []string, file map[string]string) (map[string]string, error) {
	known := map[string]string{}
	maps.Copy(known, file)
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		known[name] = value
	}
	var problems Problems
	values := make(map[string]string, len(t.Harness.Env))
	for i, name := range t.Harness.Env {
		if values[name] = known[name]; values[name] == "" {
			path, message := fmt.Sprintf("$.harness.env[%d]", i), fmt.Sprintf("environment variable %q has no value", name)
			problems = append(problems, t.Problem(path, "set it, or give it in the env file", message))
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return values, nil
}
