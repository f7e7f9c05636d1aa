package harness

import (
	"bytes"
	"cmp"
	"embed"
	"fmt"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/proxy/relay"
)

//go:embed agents/*.yaml
var agentFiles embed.FS

// CustomAgent is the harness type of an agent that the tester's own descriptor describes.
const CustomAgent = "agent"

var descriptors = sync.OnceValue(func() []CLI {
	var all []CLI
	entries, _ := agentFiles.ReadDir("agents")
	for _, e := range entries {
		text, _ := agentFiles.ReadFile("agents/" + e.Name())
		cli, problems := ParseDescriptor(e.Name(), text)
		if problems != nil {
			panic(problems) // the files are sbench's own
		}
		all = append(all, cli)
	}
	return all
})

// CLIs returns the agents that sbench knows, by name. To add an agent, describe it in a file of
// the directory agents.
func CLIs() []CLI { return descriptors() }

// CLIOf returns the agent with the given name.
func CLIOf(name string) (CLI, bool) {
	for _, c := range CLIs() {
		if c.Name == name {
			return c, true
		}
	}
	return CLI{}, false
}

// AgentTypes returns the harness types of agents for tester files, with their keys of harness.config.
func AgentTypes() []testerfile.AgentType {
	var types []testerfile.AgentType
	for _, c := range CLIs() {
		types = append(types, c.AgentType)
	}
	return append(types, testerfile.AgentType{Name: CustomAgent, Config: []schema.Field{
		schema.Required("descriptor", schema.Text("The file that describes the agent, relative to this file.")),
		schema.Optional("options", schema.Open("The agent's own keys, which its descriptor names.")),
	}})
}

// A CLI describes an agent's command-line program: everything in which agents differ.
type CLI struct {
	testerfile.AgentType
	Provider relay.Provider
	// Packages are the npm packages by platform: "any", a GOARCH such as "amd64", or "amd64-musl"
	// for images with musl.
	Packages map[string]agentcli.Package
	// Directory has the program if no package has it. Program is the path in Directory.
	Directory, Program string
	// Descriptor is the text that was parsed.
	Descriptor []byte
	// Read parses a line of the program's output; ok is false if it is not an event.
	Read func(line []byte) (steps []Step, ok bool)

	written       descriptor
	node          bool // the program needs Node.js
	passesServers bool // the command or a file names the MCP servers
}

// Known reports whether sbench knows the agent.
func (c CLI) Known() bool {
	known, ok := CLIOf(c.Name)
	return ok && bytes.Equal(known.Descriptor, c.Descriptor)
}

// hasKey reports whether the variable name may hold the key of the agent's provider.
func (c CLI) hasKey(name string) bool {
	return slices.ContainsFunc(c.Credentials, func(k testerfile.Credential) bool { return k.Name == name })
}

// isCredential reports whether the variable name may hold a provider's key for some agent.
func isCredential(name string) bool {
	return slices.ContainsFunc(CLIs(), func(c CLI) bool { return c.hasKey(name) })
}

// descriptor has the keys of an agent's descriptor.
type descriptor struct {
	Name      string                      `key:"name" rule:"required name" doc:"The agent's name, for records and reports."`
	Model     string                      `key:"model" doc:"The model of tester files that an import of a pack writes."`
	API       string                      `key:"api" rule:"required api" doc:"The API that it speaks."`
	Keys      []testerfile.Credential     `key:"keys" rule:"required keys" items:"A variable of harness.env." doc:"Variables of harness.env that may have the provider's key. The relay uses the first that is set; the agent gets none of them."`
	Config    map[string]string           `key:"config" rule:"templates" doc:"Keys of harness.config that only this agent has, with a description of each."`
	NPM       map[string]agentcli.Package `key:"npm" rule:"platforms" items:"A package of the npm registry." doc:"Its program as a package of the npm registry, by platform."`
	Directory string                      `key:"directory" doc:"Its program as a directory, relative to this file."`
	File      string                      `key:"file" rule:"file" doc:"The program, relative to the directory."`
	Command   []texts                     `key:"command" rule:"required command" items:"An argument, as a template." doc:"The arguments of its process, which reads the prompt from standard input. An inner list of arguments is omitted if it mentions a key of harness.config that is not set, or the servers and there are none."`
	Env       map[string]string           `key:"env" rule:"templates" doc:"Its variables."`
	Files     map[string]string           `key:"files" rule:"templates" doc:"Files to write below {home}, a directory for the agent that is fresh for each attempt."`
	MCP       mcpForms                    `key:"mcp" doc:"The keys of a server of the Model Context Protocol in the agent's own configuration."`
	Events    []eventRule                 `key:"events" items:"What a line of JSON means." doc:"Rules for lines of JSON."`
}

// texts are a text or a list of texts. Numbers and booleans count as texts.
type texts []string

// Decode implements what schema.Decode looks for.
func (t *texts) Decode(v document.Value) {
	if v.Kind() != document.Array {
		*t = texts{v.Plain()}
		return
	}
	*t = nil
	for _, item := range v.Items() {
		*t = append(*t, item.Plain())
	}
}

// orList makes s also allow a list of at least so many items.
func orList(s, items *schema.Schema, least int) *schema.Schema {
	s.Array = &schema.Array{Items: items, Min: least}
	return s
}

const variable = `^[A-Za-z_][A-Za-z0-9_]*$`

var descriptorRules = schema.Rules{
	"name": schema.As(func(doc string) *schema.Schema {
		return schema.Matching(doc, `^[a-z][a-z0-9_]*$`, "small letters, digits and _")
	}),
	"variable": schema.As(func(doc string) *schema.Schema { return schema.Matching(doc, variable, "letters, digits and _") }),
	"api":      schema.As(func(doc string) *schema.Schema { return schema.Enum(doc, testerfile.ProviderAPIs...) }),
	"keys": func(s *schema.Schema) {
		s.Array.Min, s.Array.Items.String = 1, &schema.String{Pattern: variable}
	},
	"templates": schema.As(func(doc string) *schema.Schema { return schema.Map(doc, schema.AnyText("A template.")) }),
	"platforms": func(s *schema.Schema) {
		one := s.Object.Others
		s.Object = new(schema.Object)
		for _, platform := range []string{"any", "amd64", "arm64", "amd64-musl", "arm64-musl"} {
			s.Object.Fields = append(s.Object.Fields, schema.Optional(platform, one))
		}
	},
	"file": schema.As(func(doc string) *schema.Schema {
		return schema.Checked(doc, schema.String{NonBlank: true}, func(p string) (string, error) {
			if !fs.ValidPath(p) {
				return "such as bin/agent", fmt.Errorf("%q is not a path within the directory", p)
			}
			return "", nil
		})
	}),
	"conditions": schema.As(func(doc string) *schema.Schema {
		value := func() *schema.Schema {
			return &schema.Schema{Doc: "The value, or a list of values that are allowed; * allows anything but null.", String: &schema.String{}, Number: &schema.Number{}, Boolean: true}
		}
		return schema.Map(doc, orList(value(), value(), 1))
	}),
	"paths": schema.As(func(doc string) *schema.Schema { return orList(schema.Text(doc), schema.Text(doc), 0) }),
	"command": func(s *schema.Schema) {
		doc := s.Array.Items.Doc
		s.Array.Min, s.Array.Items = 1, orList(schema.Text(doc), schema.AnyText(doc), 1)
	},
}

var descriptorSchema = sync.OnceValue(func() *schema.Schema {
	return schema.Closed("An agent: what its program is, how it is started, and how its output reads.", schema.Fields(descriptor{}, descriptorRules)...)
})

// ParseDescriptor parses the descriptor of an agent (docs/harnesses.md). Problems name it file. The
// CLI has Directory as it is in the descriptor.
func ParseDescriptor(file string, text []byte) (CLI, compiler.Problems) {
	doc := new(document.Document)
	if problems := doc.ParseYAML(text).In(file); len(problems) > 0 {
		return CLI{}, problems
	}
	root := doc.Root()
	c := schema.Checker{File: file}
	if !c.Check(descriptorSchema(), root) {
		return CLI{}, c.Problems
	}
	var d descriptor
	schema.Decode(root, &d)
	cli := CLI{
		AgentType: testerfile.AgentType{Name: d.Name, Model: d.Model, Credentials: d.Keys}, Provider: relay.Provider(d.API), Packages: d.NPM,
		Directory: d.Directory, Program: d.File, Descriptor: text, written: d,
	}
	for _, name := range slices.Sorted(maps.Keys(d.Config)) {
		cli.Config = append(cli.Config, schema.Field{Name: name, Schema: schema.Word(d.Config[name])})
	}
	cli.checkProgram(&c, root)
	cli.checkTemplates(&c, root)
	cli.checkServers(&c, root)
	cli.Read = readerOf(d.Events)
	if len(c.Problems) > 0 {
		return CLI{}, c.Problems
	}
	return cli, nil
}

// checkProgram checks that there is exactly one program, and that the command runs it.
func (c *CLI) checkProgram(check *schema.Checker, root document.Value) {
	switch {
	case len(c.Packages) > 0 && c.Directory != "":
		check.Errorf(root.Get("directory"), "remove one of the two", "the program is in a package and in a directory")
	case len(c.Packages) == 0 && c.Directory == "":
		check.Errorf(root, "give npm or directory", "there is no program")
	case c.Directory != "" && c.Program == "":
		check.Errorf(root, "the path of the program in the directory", "key %q is missing", "file")
	case c.Directory == "" && c.Program != "":
		check.Errorf(root.Get("file"), "remove it: an npm package has its own file", "%q is for a directory", "file")
	}
	if !slices.ContainsFunc(c.written.Command, func(g texts) bool { return slices.Contains(g, "{program}") }) {
		check.Errorf(root.Get("command"), `with "{program}" as an argument`, "the command does not run the program")
	}
	for name := range c.written.Files {
		if !fs.ValidPath(name) {
			check.Errorf(root.Get("files").Get(name), "such as .config/agent/settings.json", "is no path below {home}")
		}
	}
}

var placeholder = regexp.MustCompile(`\{([a-z_]+)\}`)

// checkTemplates checks that every placeholder is known.
func (c *CLI) checkTemplates(check *schema.Checker, root document.Value) {
	known := []string{"program", "node", "model", "base_url", "key", "home", mcpJSON, mcpTOML}
	for _, f := range c.Config {
		known = append(known, f.Name)
	}
	var look func(v document.Value)
	look = func(v document.Value) {
		for _, inner := range v.Items() {
			look(inner)
		}
		for _, inner := range v.Fields() {
			look(inner)
		}
		for _, m := range placeholder.FindAllStringSubmatch(v.Text(), -1) {
			c.node = c.node || m[1] == "node"
			c.passesServers = c.passesServers || m[1] == mcpJSON || m[1] == mcpTOML
			if !slices.Contains(known, m[1]) {
				check.Errorf(v, schema.Suggest(m[1], known), "%s is no placeholder; there are {%s}", m[0], strings.Join(known, "}, {"))
			}
		}
	}
	for _, section := range []string{"command", "env", "files"} {
		look(root.Get(section))
	}
}

// expand returns the process of an attempt. values are the values of the placeholders.
func (c CLI) expand(values map[string]string) (args, env []string, files map[string]string) {
	fill := func(text string) string {
		return placeholder.ReplaceAllStringFunc(text, func(m string) string { return values[m[1:len(m)-1]] })
	}
	unset := func(m []string) bool { return values[m[1]] == "" || values[m[1]] == noServers }
	for _, group := range c.written.Command {
		if len(group) > 1 && slices.ContainsFunc(placeholder.FindAllStringSubmatch(strings.Join(group, " "), -1), unset) {
			continue
		}
		for _, arg := range group {
			args = append(args, fill(arg))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.written.Env)) {
		env = append(env, name+"="+fill(c.written.Env[name]))
	}
	files = map[string]string{}
	for name, text := range c.written.Files {
		files[name] = fill(text)
	}
	return args, env, files
}

// Package returns the npm package for an architecture and a C library, musl or glibc.
func (c CLI) Package(arch string, musl bool) (agentcli.Package, error) {
	names := []string{arch, "any"}
	if musl {
		names = append([]string{arch + "-musl"}, names...)
	}
	for _, name := range names {
		if p, ok := c.Packages[name]; ok {
			return p, nil
		}
	}
	return agentcli.Package{}, fmt.Errorf("%s has no package for %s", c.Name, arch)
}

// nodeVersion is the release of Node.js for agents that need it. It needs glibc 2.28 and libstdc++.
const nodeVersion = "24.21.0"

// Node returns the npm package with Node.js for an architecture, and its version; ok is false if
// the agent does not need it.
func (c CLI) Node(arch string) (p agentcli.Package, version string, ok bool) {
	platform := cmp.Or(map[string]string{"amd64": "x64"}[arch], arch)
	return agentcli.Package{Name: "node-linux-" + platform, Program: "bin/node"}, nodeVersion, c.node
}
