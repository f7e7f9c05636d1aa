package harness

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
)

// Command is a harness that runs the tester file's command in the task's image, with the variables of
// harness.env.
type Command struct {
	Args     []string
	TaskFile string // relative to the workspace
	Files    Files
	Provider *CommandProvider // nil for none
}

// Files are the tester's files that a harness finds in its sandbox.
type Files struct {
	Mounts []runtime.Mount
	Digest string // of the mounted files, as "sha256:" and hexadecimal digits; "" for none
}

// A CommandProvider is the model provider of a command. The command reaches it through a relay, and does not
// get the real key, which is in Request.Env.
type CommandProvider struct {
	testerfile.ProviderConfig
	Relay relay.Config
}

func (p *CommandProvider) env(given []string, token string) []string {
	baseURL, key := "OPENAI_BASE_URL", "OPENAI_API_KEY"
	switch p.Relay.Provider {
	case relay.Anthropic:
		baseURL, key = "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"
	case relay.Google:
		baseURL, key = "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"
	}
	env := slices.DeleteFunc(slices.Clone(given), func(v string) bool { return strings.HasPrefix(v, p.Key+"=") })
	env = append(env, cmp.Or(p.BaseURLVariable, baseURL)+"="+p.Relay.Provider.AgentURL(relayAddress), cmp.Or(p.KeyVariable, key)+"="+token)
	return append(env, p.ModelVariable+"="+p.Relay.Model)
}

// Produce runs the command. A text candidate is its standard output. With a provider, it returns
// ErrProvider if the provider is at fault.
func (c Command) Produce(ctx context.Context, e Engine, r Request) (Result, error) {
	env, provider := r.Env, (*relay.Config)(nil)
	if c.Provider != nil {
		provider = &c.Provider.Relay
	}
	session, err := openSession(r, provider)
	if err != nil {
		return Result{}, err
	}
	if c.Provider != nil {
		env = c.Provider.env(env, session.key())
	}
	result, err := production{
		engine: e, request: r, taskFile: c.TaskFile, process: runtime.Process{Args: c.Args},
		env: env, mounts: slices.Clone(c.Files.Mounts), session: session, // all attempts share the files
	}.run(ctx)
	if result, err = session.close(result, err); err != nil || c.Provider == nil {
		return result, err
	}
	result.Agent = &About{Name: "command", Digest: c.Files.Digest, Model: provider.Model}
	// Its candidate counts even if the command fails, unless the provider is at fault.
	bad := result.Ended != nil || result.Failure != nil || !result.Exit.Success()
	return assignFault(ctx, result, ending{bad: bad}, *provider, session.relay)
}

// Identity implements Producer.
func (c Command) Identity() Identity {
	id := Identity{Digest: c.Files.Digest}
	if c.Provider != nil {
		id.Relay = &c.Provider.Relay
	}
	return id
}
