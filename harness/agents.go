package harness

import (
	"slices"

	"github.com/securebench/sbench/compiler"
)

// CLIs returns the agents that sbench knows. To add one, describe it in a file of its
// own and list it here.
func CLIs() []CLI { return []CLI{codex(), claudeCode(), openCode()} }

// CLIOf returns the agent with the given name.
func CLIOf(name string) (CLI, bool) {
	for _, c := range CLIs() {
		if c.Name == name {
			return c, true
		}
	}
	return CLI{}, false
}

// AgentTypes returns what tester files may say about the agents.
func AgentTypes() []compiler.AgentType {
	var types []compiler.AgentType
	for _, c := range CLIs() {
		types = append(types, c.AgentType)
	}
	return types
}

// isCredential reports whether the variable name may hold a provider's key for some agent.
func isCredential(name string) bool {
	return slices.ContainsFunc(CLIs(), func(c CLI) bool {
		return slices.ContainsFunc(c.Credentials, func(k compiler.Credential) bool { return k.Name == name })
	})
}
