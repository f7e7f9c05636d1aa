package main

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
)

// TestAgentsServers: agents start the servers of tools that a tester file names, call their tools,
// and look for others through the proxy.
func TestAgentsServers(t *testing.T) {
	source := must.Abs(t, "testdata/mcp")
	config := `, allowed_domains: [allowed.invalid], files: [{source: ` + source + `}], mcp_servers: {
    notes: {command: [python3, -u, /opt/mcp/notes.py], env: {NOTES: /workspace/greeting.txt}},
    far: {url: 'https://allowed.invalid/mcp'}}`
	for _, agent := range agents() {
		t.Run(agent, func(t *testing.T) {
			t.Parallel()
			script := steps{{Call: &providertest.Call{Tool: "keep_note", Input: `{"text": "hello, sandbox"}`}}}
			if agent == "qwen_code" { // its model has to look for such tools
				script = steps{
					{Call: &providertest.Call{Tool: "tool_search", Input: `{"query": "select:mcp__notes__keep_note"}`}},
					{Call: &providertest.Call{Tool: "tool_call", Input: `{"name": "mcp__notes__keep_note", "arguments": {"text": "hello, sandbox"}}`}},
				}
			}
			r := runAgent(t, agent, "terminal-task-smoke", "terminal-task-smoke/create-file", append(script, providertest.Step{Say: "It is kept."}), config, 0)
			if r.record.VerificationStatus != "passed" {
				t.Errorf("%+v\nproblems %v\n%s", r.record, r.provider.Problems(), r.stderr)
			}
			if trace := r.trace(t); !strings.Contains(trace, "kept in /workspace/greeting.txt") {
				t.Errorf("the trace lacks the tool's answer:\n%s", trace)
			}
			looked := false
			for _, line := range r.egress(t) {
				looked = looked || line.Kind == "connect" && line.Host == "allowed.invalid"
			}
			if !looked {
				t.Errorf("nothing looked for the server that a URL names: %+v", r.egress(t))
			}
		})
	}
}
