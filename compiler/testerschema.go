package compiler

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/proxy/domain"
)

// testerVersion is the only supported schema_version of tester files.
const testerVersion = "0.2"

func testerSchema(agents []AgentType) *schema.Schema {
	name := func(doc string) *schema.Schema {
		return &schema.Schema{Doc: doc, String: &schema.String{NonEmpty: true}, Check: checkNoNUL}
	}
	s := schema.Closed("A SecureBench tester file, schema version 0.2.",
		required("schema_version", schema.Enum("The version of this format: \"0.2\".", testerVersion)),
		required("run", schema.Closed("What the run is called and how much of it there is.",
			required("id", name("The run's id.")),
			required("output_dir", name("The directory for the records, relative to this file.")),
			optional("jobs", schema.PositiveInteger("How many attempts run at the same time. By default as many as the cores can serve.")),
			optional("attempts", schema.PositiveInteger("How often each task is tried, by default once.")),
			optional("max_cost_usd", schema.Positive("What the run may cost at harness.config.prices, in US dollars: once it has cost that, no attempt is started.")),
			optional("tasks", schema.List("Globs of the ids of the tasks to run.", name("A glob."))),
		)),
		required("benchmark", schema.Closed("The pack.",
			required("manifest", name("The pack's manifest, relative to this file.")),
			required("tasks", name("The pack's rows, relative to this file.")),
		)),
		required("harness", harnessSchema(agents)),
		optional("verification", schema.Nullable(schema.Closed("What verifiers may do.",
			optional("disallow_dangerous_commands", schema.Boolean("Refuse the dangerous commands that tasks need.", true)),
			optional("deny_commands", dangerousSchema("Dangerous commands that are refused in any case.")),
			optional("after_timeout", &schema.Schema{Doc: "Judge what the harness left even if it did not end in time or ended badly. By default the task's environment.verify_after_timeout decides; without either, such an attempt has failed.", Boolean: true}),
			optional("contrast", schema.Enum("How much is done against candidates that follow their tests; full is the default.", "full", "quick", "off")),
			optional("judge", judgeSchema()),
			optional("oracle_image", imageSchema("The image in which the oracles of a pack of SecureBench 2.0 run; by default the task's.")),
			optional("allowed_domains", domainsSchema("DNS names, with their subdomains, that checkers with eval.checker.network may reach. A run of such tasks needs the list, which may be empty.")),
		))),
		optional("runtime", schema.Nullable(runtimeSchema())),
		optional("matrix", matrixSchema()),
	)
	s.Check = checkCosts
	return s
}

func judgeSchema() *schema.Schema {
	votes := schema.PositiveInteger("How often the model is asked about each text, an odd number; 3 by default.")
	votes.Check = func(c *schema.Checker, v document.Value) {
		if n, _ := v.Int64(); n%2 == 0 || n > 15 {
			c.Errorf(v, "such as 3", "expected an odd number up to 15, found %s", v.Raw())
		}
	}
	return schema.Nullable(schema.Closed("A model that judges answers by rubrics in prose, of the tasks that allow it (eval.judge).",
		required("api", schema.Enum("Its API: openai (Chat Completions), anthropic (Messages) or google (generateContent).", ProviderAPIs...)),
		required("key", schema.Matching("The environment variable that holds its key, or a name in the env file.", `^[A-Za-z_][A-Za-z0-9_]*$`, "letters, digits and _")),
		required("model", modelSchema()),
		optional("base_url", urlSchema("The provider's API, for gateways and tests.")),
		optional("votes", votes),
		optional("temperature", &schema.Schema{Doc: "The model's own unless given.", Number: &schema.Number{Min: new(0.0)}}),
	))
}

func harnessSchema(agents []AgentType) *schema.Schema {
	types := []string{HarnessCommand}
	for _, a := range agents {
		types = append(types, a.Name)
	}
	s := schema.Closed("What produces candidates.",
		required("type", schema.Enum("The type of harness.", types...)),
		optional("env", envNamesSchema()),
		optional("secrets", secretsSchema()),
		optional("config", schema.Nullable(schema.Open("What the type of harness needs."))),
	)
	configs := harnessConfigs(agents)
	for _, name := range types {
		field := required("config", &schema.Schema{Object: configs[name]})
		s.Object.Variants = append(s.Object.Variants, schema.Variant{Key: "type", Value: name, Fields: []schema.Field{field}})
	}
	s.Check = func(c *schema.Checker, harness document.Value) {
		checkSecrets(c, harness)
		if harness.Get("type").Is(HarnessCommand) {
			checkCommand(c, harness.Get("config"))
		}
	}
	return s
}

func envNamesSchema() *schema.Schema {
	const doc = "The names of environment variables that the harness gets. Values come from the environment or the env file."
	name := schema.Checked("A name, without a value.", schema.String{NonEmpty: true, Pattern: `^[^=]+$`}, func(text string) (string, error) {
		if isEnvName(text) {
			return "", nil
		}
		name, _, _ := strings.Cut(text, "=")
		return "values come from the environment or the env file", fmt.Errorf("expected the name of an environment variable alone, such as %q", name)
	})
	return schema.Nullable(schema.List(doc, name))
}

func secretsSchema() *schema.Schema {
	source := schema.Closed("Where a value is: one of command and file.",
		optional("command", commandSchema("A command of this host that prints it, without a sandbox.")),
		optional("file", schema.Text("A file that holds it, relative to this file.")),
	)
	source.Check = func(c *schema.Checker, v document.Value) {
		if (v.Get("command").Kind() == 0) == (v.Get("file").Kind() == 0) {
			c.Errorf(v, "", "expected one of command and file")
		}
	}
	return schema.Nullable(schema.Map("Where to get a value of harness.env that neither the environment nor the env file has, by name.", source))
}

// checkSecrets checks that harness.env lists all names.
func checkSecrets(c *schema.Checker, harness document.Value) {
	listed := stringList(harness.Get("env"))
	for name := range harness.Get("secrets").Fields() {
		if !slices.Contains(listed, name.Text()) {
			c.Errorf(name, "add it there", "harness.env does not list %q", name.Text())
		}
	}
}

func runtimeSchema() *schema.Schema {
	s := schema.Closed("Which containerd to use and how.",
		optional("address", schema.Matching("The socket of containerd; none for a private containerd.", `^(none|(unix://)?/.*)$`, "an absolute path, or none")),
		optional("namespace", schema.Text("The containerd namespace.")),
		optional("snapshotter", schema.Text("The snapshotter.")),
		optional("handler", schema.Text("The shim: auto (the default), io.containerd.sbench.v1, io.containerd.runc.v2, or another.")),
		optional("oci_runtime", schema.Text("The OCI runtime, by path or by name: auto (the default) is runc.")),
		optional("isolation", schema.Enum("How sandboxes are kept apart from the host's kernel: auto, the default, is gvisor for tasks that ask for it, and container for the other tasks; container refuses tasks that ask for gvisor.", append([]string{"auto"}, isolations()...)...)),
		optional("pull", schema.Enum("When images are pulled; missing is the default.", "missing", "never", "always")),
		optional("user_namespace", schema.Enum("Whether sandboxes have a user namespace of their own: auto, the default, or host, which means none.", "auto", "host")),
		optional("allow_seccomp", schema.Boolean("Let programs in sandboxes install seccomp and socket filters, which take memory of the host, and use Landlock.", false)),
		optional("allow_netlink", schema.Boolean("Let programs in sandboxes open netlink sockets, which take memory of the host.", false)),
		optional("allow_capabilities", schema.Boolean("Let tasks have the capabilities that they name, such as CHOWN and SETUID for package managers.", false)),
		optional("setup_domains", domainsSchema("DNS names that the commands of environment.setup may reach. A name allows its subdomains too.")),
		optional("network", schema.Nullable(schema.Closed("How sandboxes reach what they are allowed to.",
			optional("transparent", schema.Boolean("Redirect the connections of programs that ignore the proxy variables.", false)),
			optional("ca_bundle", schema.Text("A file of certificates to trust in sandboxes whose image has none, relative to this file.")),
		))),
		optional("limits", schema.Nullable(schema.Closed("Bounds on sandboxes and on what they leave.", append(resourceFields(),
			optional("workspace_bytes", bytesSchema("The size of a workspace in bytes, or as \"1g\"; 2 GiB by default.", 1)),
			optional("output_bytes", bytesSchema("How much of a command's output is kept, in bytes or as \"1m\"; 1 MiB by default.", 1)),
		)...))),
		optional("allow_degraded", schema.List("Limits that the host's kernel need not enforce.", schema.Enum("The name of a limit.", "memory", "swap", "pids", "cpu"))),
	)
	s.Check = func(c *schema.Checker, v document.Value) {
		program, handler := v.Get("oci_runtime"), v.Get("handler").Text()
		own := !slices.Contains([]string{"", "auto", "io.containerd.runc.v2", "io.containerd.sbench.v1"}, handler)
		if own && program.Text() != "" && !program.Is("auto") {
			c.Errorf(program, "remove one of the two", "the handler %q has an OCI runtime of its own", handler)
		}
	}
	return s
}

// harnessConfigs returns the rules for harness.config by type of harness.
func harnessConfigs(agents []AgentType) map[string]*schema.Object {
	taskFile := mountSchema()
	taskFile.Doc, taskFile.Default = "The file that the task is written to, relative to the workspace.", "task.json"
	common := []schema.Field{
		optional("task_file", taskFile),
		optional("timeout_seconds", secondsSchema("How long the harness may take, by default 10 minutes; a task's own timeout may be shorter.")),
		optional("files", filesSchema()),
		optional("allowed_domains", domainsSchema("DNS names that the harness may reach. A name allows its subdomains too.")),
	}
	version := schema.Word("The version of the agent.")
	version.Default = "latest"
	command := slices.Concat([]schema.Field{
		required("command", commandSchema("The command to run in the task's sandbox.")),
		optional("provider", providerSchema()),
	}, providerFields(), common)
	configs := map[string]*schema.Object{HarnessCommand: {Fields: command}}
	for _, agent := range agents {
		model, relayed := required("model", modelSchema()), providerFields()[1:] // all but model
		own := []schema.Field{model, optional("version", version), optional("mcp_servers", serversSchema())}
		configs[agent.Name] = &schema.Object{Fields: slices.Concat(own, agent.Config, relayed, common)}
	}
	return configs
}

// providerFields returns the keys of harness.config that need a provider: the model, and what
// the relay does.
func providerFields() []schema.Field {
	return []schema.Field{
		optional("model", modelSchema()),
		optional("allow_external_tools", schema.Boolean("Allow tools that the provider runs, such as web search.", false)),
		optional("on_external_tools", schema.Enum("What happens to such a tool in a request: the relay takes it out (strip, the default), or refuses the request.", "strip", "refuse")),
		optional("max_total_tokens", schema.PositiveInteger("The tokens that an attempt may use.")),
		optional("max_requests", schema.PositiveInteger("The requests that an attempt may make.")),
		optional("max_cost_usd", schema.Positive("What an attempt may cost at the prices, in US dollars.")),
		optional("prices", schema.Nullable(schema.Closed("What the provider asks for a million tokens, in US dollars.",
			required("input", schema.Positive("Tokens that the model reads.")),
			optional("cached_input", schema.Positive("Input tokens that the provider has in its cache; by default the price of input.")),
			required("output", schema.Positive("Tokens that the model writes, reasoning included.")),
		))),
		optional("base_url", urlSchema("The provider's API, for gateways and tests.")),
		optional("key_header", schema.Matching("The header for the provider's key, where a gateway has another than the provider, such as Azure's api-key.", `^[A-Za-z0-9-]*[Kk][Ee][Yy]$`, "letters, digits and -, with key at the end")),
		optional("max_requests_per_minute", schema.PositiveInteger("How fast all attempts of a run together may ask the provider; a request that is too early waits.")),
		optional("prompt_cache", schema.Enum("Whether the provider may keep the agent's prompts in its cache, which attempts with one key share (shared, the default), or not (off).", "shared", "off")),
		optional("clock", schema.Enum("What counts for the timeout: all time (wall, the default), or all but up to an hour in which the load of the provider makes the harness wait (working).", "wall", "working")),
		optional("sidecars_reach_provider", schema.Boolean("Let the sidecars of a task ask the provider, at the operator's cost.", false)),
	}
}

// checkCommand checks the configuration of a command as a whole.
func checkCommand(c *schema.Checker, config document.Value) {
	provider := config.Get("provider").Kind() == document.Object
	for _, field := range providerFields() {
		if own := config.Get(field.Name); own.Kind() != 0 && !provider {
			c.Errorf(own, "", "%q means nothing for a command without a provider", field.Name)
		}
	}
	if provider && config.Get("model").Kind() == 0 {
		c.Errorf(config, "the relay lets one model pass", "key %q is missing", "model")
	}
}

// checkCosts checks that there are prices for every budget in dollars.
func checkCosts(c *schema.Checker, root document.Value) {
	config := root.Get("harness").Get("config")
	for _, section := range []document.Value{root.Get("run"), config} {
		if v := section.Get("max_cost_usd"); v.Kind() != 0 && config.Get("prices").Kind() != document.Object {
			c.Errorf(v, "give harness.config.prices", "the prices of tokens are missing")
			return
		}
	}
}

func filesSchema() *schema.Schema {
	dest := schema.Checked("Where it is in the sandbox, below /opt; by default /opt and its name.", schema.String{NonEmpty: true, Pattern: "^/opt/."}, func(p string) (string, error) {
		if !isWorkdir(p) || path.Clean(p) != p || !isBelow(p, "/opt") || isTaken(p) {
			return `such as "/opt/agent"`, fmt.Errorf("%q is no path below /opt, or is sbench's own", p)
		}
		return "", nil
	})
	return schema.Nullable(schema.List("Files and directories that the harness finds in its sandbox, read-only: {source: PATH}, which is below /opt there, or {source: PATH, dest: PATH}.", schema.Closed("A file or directory.",
		required("source", schema.Text("Its path, relative to this file.")), optional("dest", dest))))
}

func serversSchema() *schema.Schema {
	variables := envSchema()
	variables.Doc = "The variables of the command."
	server := schema.Closed("A server: one of command and url.",
		optional("command", commandSchema("A command that the agent runs in its sandbox, and speaks with by its standard streams.")),
		optional("env", variables),
		optional("url", urlSchema("Where the server is; its host has to be in allowed_domains.")),
	)
	server.Check = func(c *schema.Checker, v document.Value) {
		switch command, url := v.Get("command").Kind() != 0, v.Get("url").Kind() != 0; {
		case command == url:
			c.Errorf(v, "", "expected one of command and url")
		case url && v.Get("env").Kind() != 0:
			c.Errorf(v.Get("env"), "", "%q is for a command", "env")
		}
	}
	s := schema.Map("Servers of the Model Context Protocol that the agent is told of, by name.", server)
	s.Object.Named = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`).MatchString
	s.Object.Misnamed = "is no name of a server: up to 32 letters, digits, _ and -, a letter first"
	return schema.Nullable(s)
}

// ProviderAPIs are the values of harness.config.provider.api. Package harness knows them.
var ProviderAPIs = []string{"openai", "anthropic", "google"}

func providerSchema() *schema.Schema {
	variable := func(doc string) *schema.Schema {
		return schema.Matching(doc, `^[A-Za-z_][A-Za-z0-9_]*$`, "letters, digits and _")
	}
	return schema.Nullable(schema.Closed("The model provider that the command reaches through a relay, which adds the key.",
		required("api", schema.Enum("Its API: openai (Responses and Chat Completions), anthropic (Messages) or google (generateContent).", ProviderAPIs...)),
		required("key", variable("The variable of harness.env that holds the key. The command does not get it.")),
		optional("base_url_variable", variable("The command's variable for the address of the relay, by default OPENAI_BASE_URL, ANTHROPIC_BASE_URL or GOOGLE_GEMINI_BASE_URL.")),
		optional("key_variable", variable("The command's variable for a stand-in for the key, by default OPENAI_API_KEY, ANTHROPIC_API_KEY or GEMINI_API_KEY.")),
		optional("model_variable", variable("The command's variable for the model, by default SBENCH_MODEL.")),
	))
}

func domainsSchema(doc string) *schema.Schema {
	rule := schema.String{NonBlank: true, Pattern: `^\s*[A-Za-z0-9.-]+\s*$`}
	name := schema.Checked("A DNS name of two or more labels, without scheme, port, path or wildcard.", rule, func(name string) (string, error) {
		_, err := domain.Parse(name)
		return domain.Suggest(name), err
	})
	return schema.Nullable(schema.List(doc, name))
}

// modelSchema is schema.Word with the separators that gateways use in model names.
func modelSchema() *schema.Schema {
	return schema.Matching("The model.", `^\s*[A-Za-z0-9._+:/@-]+\s*$`, "letters, digits and . _ + - : / @")
}

func urlSchema(doc string) *schema.Schema {
	s := schema.Matching(doc, `^https?://[^\s/?#@]+(/[^\s?#]*)?$`, "http:// or https://, a host and perhaps a path, without credentials and query")
	form := s.Check
	s.Check = func(c *schema.Checker, v document.Value) {
		if _, err := url.Parse(v.Text()); err != nil {
			c.Errorf(v, "", "%v", err)
			return
		}
		form(c, v)
	}
	return s
}
