package harness

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
)

// mcpForms are an agent's own keys for a server of the Model Context Protocol, with templates for
// their values. The agent does not support a kind of server that is nil.
type mcpForms struct {
	Stdio map[string]string `key:"stdio" rule:"templates" doc:"The keys of a program that the agent starts."`
	HTTP  map[string]string `key:"http" rule:"templates" doc:"The keys of a server that the agent reaches by HTTP."`
}

// Placeholders for all servers, in command, env and files.
const (
	mcpJSON = "mcp_servers"
	mcpTOML = "mcp_servers_toml"
)

// noServers is the value of mcpJSON and of mcpTOML if there is no server.
const noServers = "{}"

// mcpPlaceholders are the placeholders for one server, by its kind. args and argv are lists, env is an
// object, and command and url are strings.
var mcpPlaceholders = map[string][]string{"stdio": {"command", "args", "argv", "env"}, "http": {"url"}}

// checkServers checks the placeholders of both kinds of servers, and that the command or a file
// passes the servers to the agent. It runs after checkTemplates.
func (c *CLI) checkServers(check *schema.Checker, root document.Value) {
	for _, kind := range slices.Sorted(maps.Keys(mcpPlaceholders)) {
		known := mcpPlaceholders[kind]
		for _, v := range root.Get("mcp").Get(kind).Fields() {
			if m := placeholder.FindStringSubmatch(v.Text()); m != nil && (m[0] != v.Text() || !slices.Contains(known, m[1])) {
				check.Errorf(v, "a text, or one of {"+strings.Join(known, "}, {")+"}", "%s is not allowed here", v.Text())
			}
		}
	}
	if mcp := root.Get("mcp"); mcp.Kind() != 0 && !c.passesServers {
		check.Errorf(mcp, "put {"+mcpJSON+"} into one of files, or into command", "the agent never gets the servers")
	}
}

// Supports reports whether the agent can use a server.
func (c CLI) Supports(s testerfile.MCPServer) bool { return c.mcpForm(s) != nil }

func (c CLI) mcpForm(s testerfile.MCPServer) map[string]string {
	if s.URL != "" {
		return c.written.MCP.HTTP
	}
	return c.written.MCP.Stdio
}

// servers returns the values of mcpJSON and mcpTOML. The agent must support each server.
func (c CLI) servers(all map[string]testerfile.MCPServer) (asJSON, asTOML string) {
	table := map[string]any{}
	for name, s := range all {
		values := map[string]any{"url": s.URL}
		if argv := s.Command.Args(); len(argv) > 0 {
			env := map[string]any{}
			for name, value := range s.Env {
				env[name] = value
			}
			values = map[string]any{"command": argv[0], "args": argv[1:], "argv": argv, "env": env}
		}
		server := map[string]any{}
		for key, text := range c.mcpForm(s) {
			server[key] = text
			if m := placeholder.FindStringSubmatch(text); m != nil {
				server[key] = values[m[1]]
			}
		}
		table[name] = server
	}
	return jsonText(table), tomlInline(table)
}

func jsonText(v any) string {
	text, _ := json.Marshal(v) // cannot fail: strings, lists and maps of strings
	return string(text)
}

// tomlInline returns an inline table: a library would write tables of several lines. JSON's strings
// and lists of strings are also TOML's.
func tomlInline(table map[string]any) string {
	pairs := make([]string, 0, len(table))
	for _, key := range slices.Sorted(maps.Keys(table)) {
		value, inner := table[key].(map[string]any)
		if inner {
			pairs = append(pairs, jsonText(key)+"="+tomlInline(value))
		} else {
			pairs = append(pairs, jsonText(key)+"="+jsonText(table[key]))
		}
	}
	return "{" + strings.Join(pairs, ",") + "}"
}
