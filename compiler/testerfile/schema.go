package testerfile

import (
	"fmt"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// testerVersion is the only supported schema_version of tester files.
const testerVersion = "0.2"

// Schema returns what a tester file may hold if these are the agents. The variants of harness are its types.
func Schema(agents []AgentType) *schema.Schema {
	version := schema.Enum("The version of this format: \"0.2\".", testerVersion)
	version.String.Hint = "write \"0.2\" for a file of version \"1.0\", too"
	s := schema.Closed("A SecureBench tester file, schema version 0.2.", slices.Concat(
		[]schema.Field{schema.Required("schema_version", version)},
		schema.Fields(File{}, rules(agents)),
		[]schema.Field{schema.Optional("matrix", matrixSchema())},
	)...)
	s.Object.Foreign = map[string]string{"docker": "remove it: sbench uses no Docker, and images stay until sbench image prune"}
	s.Check = checkCosts
	return s
}

// ProviderAPIs are the values of harness.config.provider.api. Package harness knows them.
var ProviderAPIs = []string{"openai", "anthropic", "google"}

func rules(agents []AgentType) schema.Rules {
	types := []string{HarnessCommand}
	for _, a := range agents {
		types = append(types, a.Name)
	}
	matching := func(pattern, allowed string) func(*schema.Schema) {
		return schema.As(func(doc string) *schema.Schema { return schema.Matching(doc, pattern, allowed) })
	}
	return schema.Rules{
		"api":         func(s *schema.Schema) { s.String = &schema.String{Enum: ProviderAPIs} },
		"bytes":       schema.As(func(doc string) *schema.Schema { return schema.Bytes(doc, 1) }),
		"dest":        schema.As(destSchema),
		"env":         schema.As(envNameSchema),
		"header":      matching(`^[A-Za-z0-9-]*[Kk][Ee][Yy]$`, "letters, digits and -, with key at the end"),
		"limits":      func(s *schema.Schema) { s.Object.Fields = append(schema.Resources(), s.Object.Fields...) },
		"model":       matching(`^\s*[A-Za-z0-9._+:/@-]+\s*$`, "letters, digits and . _ + - : / @"),
		"name":        func(s *schema.Schema) { s.String, s.Check = &schema.String{NonEmpty: true}, schema.NoNUL },
		"socket":      matching(`^(none|(unix://)?/.*)$`, "an absolute path, or none"),
		"temperature": func(s *schema.Schema) { s.Number = &schema.Number{Min: new(0.0)} },
		"type":        func(s *schema.Schema) { s.String = &schema.String{Enum: types} },
		"url":         schema.As(urlSchema),
		"variable":    matching(`^[A-Za-z_][A-Za-z0-9_]*$`, "letters, digits and _"),
		"votes":       func(s *schema.Schema) { s.Check = checkVotes },

		"run": func(s *schema.Schema) { s.Object.Foreign = map[string]string{"max_workers": "write jobs"} },
		"runtime": func(s *schema.Schema) {
			s.Object.Foreign = map[string]string{"handler": "remove it: sbench's own shim runs all sandboxes"}
		},
		"secrets": func(s *schema.Schema) { s.Object.Others.Check = checkSource },
		"servers": func(s *schema.Schema) {
			s.Object.Others.Check = checkServer
			s.Object.Named = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_-]{0,31}$`).MatchString
			s.Object.Misnamed = "is no name of a server: up to 32 letters, digits, _ and -, a letter first"
		},
		"harness": func(s *schema.Schema) {
			s.Object.Fields = append(s.Object.Fields, schema.Optional("config", schema.Nullable(schema.Open("What the type of harness needs."))))
			configs := harnessConfigs(agents)
			for _, name := range types {
				field := schema.Required("config", &schema.Schema{Object: configs[name]})
				s.Object.Variants = append(s.Object.Variants, schema.Variant{Key: "type", Value: name, Fields: []schema.Field{field}})
			}
			s.Check = checkHarness
		},
	}
}

func checkVotes(c *schema.Checker, v document.Value) {
	if n, _ := v.Int64(); n%2 == 0 || n > 15 {
		c.Errorf(v, "such as 3", "expected an odd number up to 15, found %s", v.Raw())
	}
}

func checkHarness(c *schema.Checker, harness document.Value) {
	listed := schema.Strings(harness.Get("env"))
	for name := range harness.Get("secrets").Fields() {
		if !slices.Contains(listed, name.Text()) {
			c.Errorf(name, "add it there", "harness.env does not list %q", name.Text())
		}
	}
	if harness.Get("type").Is(HarnessCommand) {
		checkCommand(c, harness.Get("config"))
	}
}

func envNameSchema(doc string) *schema.Schema {
	return schema.Checked(doc, schema.String{NonEmpty: true, Pattern: `^[^=]+$`}, func(text string) (string, error) {
		if schema.IsEnvName(text) {
			return "", nil
		}
		name, _, _ := strings.Cut(text, "=")
		return "values come from the environment or the env file", fmt.Errorf("expected the name of an environment variable alone, such as %q", name)
	})
}

func checkSource(c *schema.Checker, v document.Value) {
	if (v.Get("command").Kind() == 0) == (v.Get("file").Kind() == 0) {
		c.Errorf(v, "", "expected one of command and file")
	}
}

func checkServer(c *schema.Checker, v document.Value) {
	switch command, url := v.Get("command").Kind() != 0, v.Get("url").Kind() != 0; {
	case command == url:
		c.Errorf(v, "", "expected one of command and url")
	case url && v.Get("env").Kind() != 0:
		c.Errorf(v.Get("env"), "", "%q is for a command", "env")
	}
}

// relayKeys are the keys of harness.config that need a provider: the model, and what the relay does.
func relayKeys() []string {
	return strings.Fields(`model allow_external_tools on_external_tools max_total_tokens max_requests max_cost_usd prices base_url
		key_header max_requests_per_minute prompt_cache clock`)
}

// harnessConfigs returns the rules for harness.config by type of harness.
func harnessConfigs(agents []AgentType) map[string]*schema.Object {
	all := schema.Fields(HarnessConfig{}, rules(nil))
	pick := func(names ...string) (fields []schema.Field) {
		for _, name := range names {
			fields = append(fields, all[slices.IndexFunc(all, func(f schema.Field) bool { return f.Name == name })])
		}
		return fields
	}
	common := pick("task_file", "timeout_seconds", "files", "allowed_domains")
	configs := map[string]*schema.Object{HarnessCommand: {
		Fields:  slices.Concat(pick("command", "provider"), pick(relayKeys()...), common),
		Foreign: map[string]string{"artifact_path": "remove it: a text is what the command prints, code is in candidate.py, and a patch is what the command changes in the repository"},
	}}
	for _, agent := range agents {
		own := pick("model", "version", "mcp_servers")
		own[0].Required = true
		configs[agent.Name] = &schema.Object{Fields: slices.Concat(own, agent.Config, pick(relayKeys()[1:]...), common)}
	}
	return configs
}

func checkCommand(c *schema.Checker, config document.Value) {
	provider := config.Get("provider").Kind() == document.Object
	for _, name := range relayKeys() {
		if own := config.Get(name); own.Kind() != 0 && !provider {
			c.Errorf(own, "", "%q means nothing for a command without a provider", name)
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

func destSchema(doc string) *schema.Schema {
	return schema.Checked(doc, schema.String{NonEmpty: true, Pattern: "^/opt/."}, func(p string) (string, error) {
		if !paths.IsWorkdir(p) || path.Clean(p) != p || !paths.IsBelow(p, "/opt") || paths.IsTaken(p) {
			return `such as "/opt/agent"`, fmt.Errorf("%q is no path below /opt, or is sbench's own", p)
		}
		return "", nil
	})
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
