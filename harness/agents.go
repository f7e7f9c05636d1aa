package harness

import (
	"bytes"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/schema"
)

// CLIs returns the agents that sbench knows. To add one, describe it in a file of the directory
// agents.
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

// OwnAgent is the type of a harness whose agent a file of the tester's describes.
const OwnAgent = "agent"

// ownType is what tester files may say about an agent of the tester's.
func ownType() compiler.AgentType {
	return compiler.AgentType{Name: OwnAgent, Config: []schema.Field{
		{Name: "descriptor", Schema: schema.Text("The file that describes the agent, relative to this file."), Required: true},
		{Name: "options", Schema: schema.Open("The agent's own keys, which its descriptor names.")},
	}}
}

// AgentTypes returns what tester files may say about the agents.
func AgentTypes() []compiler.AgentType {
	var types []compiler.AgentType
	for _, c := range CLIs() {
		types = append(types, c.AgentType)
	}
	return append(types, ownType())
}

// Known reports whether the agent is one that sbench knows.
func (c CLI) Known() bool {
	known, ok := CLIOf(c.Name)
	return ok && bytes.Equal(known.Descriptor, c.Descriptor)
}

// isCredential reports whether the variable name may hold a provider's key for some agent.
func isCredential(name string) bool {
	return slices.ContainsFunc(CLIs(), func(c CLI) bool { return c.hasKey(name) })
}

func (c CLI) hasKey(name string) bool {
	return slices.ContainsFunc(c.Credentials, func(k compiler.Credential) bool { return k.Name == name })
}
