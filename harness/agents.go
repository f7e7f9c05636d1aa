package harness

import "slices"

// CLIs are the agents that sbench knows. A new one is a file of its own, and a
// line here.
func CLIs() []CLI { return []CLI{codex(), claudeCode()} }

// CLIOf returns the agent of a name.
func CLIOf(name string) (CLI, bool) {
	for _, c := range CLIs() {
		if c.Name == name {
			return c, true
		}
	}
	return CLI{}, false
}

// IsCredential says whether a variable holds the key of a provider of some
// agent.
func IsCredential(name string) bool {
	return slices.ContainsFunc(CLIs(), func(c CLI) bool {
		return slices.ContainsFunc(c.Credentials, func(k Credential) bool { return k.Name == name })
	})
}
