package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
)

const (
	toolsDest     = "/opt/sbench/agent" // read-only, the same for all attempts
	nodeDest      = "/opt/sbench/node"  // read-only, the same for all attempts
	agentState    = "/opt/sbench/home"  // writable, one per attempt
	textFile      = "candidate.txt"
	preflightWall = time.Minute
	maxWatched    = 64 << 10 // bytes of a message that comes in pieces, for people who watch the agent
)

// Agent is a harness that runs an agent's command-line program in the task's image. The
// program reaches its model through a relay. Produce is safe for concurrent use.
type Agent struct {
	testerfile.HarnessConfig // Version must be exact

	CLI    CLI
	Tools  *agentcli.Cache
	Digest string       // of a tester's descriptor and its CLI.Directory; "" for an agent that sbench knows
	Arch   string       // of the images, as GOARCH
	Relay  relay.Config // to its provider; see RelayTo
	Files  Files        // that the tester brought

	init     sync.Once           // makes turn and prepared
	turn     *semaphore.Weighted // lets one preparation run at a time
	prepared map[string]prepared // by image
}

// prepared is the agent's program for an image, or why it does not run in it.
type prepared struct {
	in, node agentcli.Installed // node is zero if the agent does not need it
	err      error
}

// About is what a record says about the agent.
type About struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Package string `json:"package"`
	Digest  string `json:"digest"` // of the package's archive, as the registry gives it, or of the tester's files
	Model   string `json:"model"`
	// Interpreter is the package, version and digest of the Node.js that sbench brought for the
	// agent; "" if it brought none.
	Interpreter string `json:"interpreter,omitempty"`
	Files       string `json:"files,omitempty"` // digest of the tester's files; "" for none
}

// Produce runs the agent. It returns an error if the agent does not run in the image, or if the
// provider is at fault.
func (a *Agent) Produce(ctx context.Context, e Engine, r Request) (Result, error) {
	p, err := a.prepare(ctx, e, r)
	if err != nil {
		return Result{}, err
	}
	session, err := openSession(r, &a.Relay)
	if err != nil {
		return Result{}, err
	}
	args, env, files := a.process(p.in, session.key())
	events := &EventReader{Read: a.CLI.Read, Trace: r.Trace, MaxPiece: maxWatched, Step: func(s Step) {
		if text := s.String(); text != "" && r.OnStep != nil {
			r.OnStep(text)
		}
	}}
	result, err := production{
		engine: e, request: r, taskFile: a.TaskFile, textFile: textFile, writable: true, stateAt: agentState, stateFiles: files,
		process: runtime.Process{Args: args, Stdin: strings.NewReader(Prompt(r, a.TaskFile)), Stdout: events},
		env:     slices.Concat(a.withoutKeys(r.Env), env), // the later overrides the earlier
		mounts:  slices.Concat(p.mounts(), a.Files.Mounts),
		session: session,
	}.run(ctx)
	events.End()
	result, err = session.close(result, err)
	result.Agent = &About{Name: a.CLI.Name, Version: p.in.Version, Package: p.in.Package, Digest: p.in.Integrity, Model: a.Model, Interpreter: p.interpreter(), Files: a.Files.Digest}
	if err != nil {
		return result, err
	}
	return a.outcome(ctx, e, r, p, result, events.count, session.relay)
}

// Identity implements Producer.
func (a *Agent) Identity() Identity {
	id := Identity{Version: a.Version, Digest: a.Digest + a.Files.Digest, Relay: &a.Relay, Prompted: true, TaskFile: a.TaskFile}
	if !a.CLI.Known() {
		id.Descriptor = a.CLI.Descriptor
	}
	return id
}

func (p prepared) mounts() []runtime.Mount {
	mounts := []runtime.Mount{{Source: p.in.Dir, Dest: toolsDest}}
	if p.node.Dir != "" {
		mounts = append(mounts, runtime.Mount{Source: p.node.Dir, Dest: nodeDest})
	}
	return mounts
}

func (p prepared) interpreter() string {
	if p.node.Dir == "" {
		return ""
	}
	return p.node.Package + "@" + p.node.Version + " " + p.node.Integrity
}

// process returns the agent's process in sandboxes: arguments, variables, and files below agentState.
func (a *Agent) process(in agentcli.Installed, key string) (args, env []string, files map[string]string) {
	servers, table := a.CLI.servers(a.MCPServers)
	values := map[string]string{}
	maps.Copy(values, a.Own)
	maps.Copy(values, map[string]string{
		"program": path.Join(toolsDest, in.Program), "node": nodeDest + "/bin/node", "model": a.Model,
		"base_url": a.CLI.Provider.AgentURL(relayAddress), "key": key, "home": agentState, mcpJSON: servers, mcpTOML: table,
	})
	args, env, files = a.CLI.expand(values)
	return args, append(env, "IS_SANDBOX=1"), files
}

// RelayTo returns the relay to a provider that a tester file asks for. All attempts share its Pace.
// Each attempt sets its own Log, Task and Attempt.
func RelayTo(provider relay.Provider, key string, c testerfile.HarnessConfig) (cfg relay.Config, err error) {
	cfg = relay.Config{
		Provider: provider, Key: relay.NewKey(key), MinSecret: compiler.MinSecret, Model: c.Model,
		KeyHeader: c.KeyHeader, Pace: relay.NewPace(c.MaxRequestsMinute),
		AllowExternalTools: c.AllowExternalTools, RefuseExternalTools: c.RefuseExternalTools, NoPromptCache: c.NoPromptCache,
		MaxTotalTokens: c.MaxTotalTokens, MaxRequests: c.MaxRequests, MaxCostUSD: c.MaxCostUSD,
	}
	if p := c.Prices; p != nil {
		cfg.Prices = &proxy.Prices{Input: p.Input, Cached: p.CachedInput, Output: p.Output}
	}
	if c.BaseURL != "" {
		cfg.BaseURL, err = url.Parse(c.BaseURL)
	}
	return cfg, err
}

// withoutKeys returns env without the variables that hold a provider's key: no key enters a sandbox.
func (a *Agent) withoutKeys(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return isCredential(name) || a.CLI.hasKey(name)
	})
}

// prepare fetches the program for an image if necessary, and runs it with --version, once for each
// image. One call at a time does this, so that no program is downloaded twice.
func (a *Agent) prepare(ctx context.Context, e Engine, r Request) (prepared, error) {
	a.init.Do(func() { a.turn, a.prepared = semaphore.NewWeighted(1), map[string]prepared{} })
	if a.turn.Acquire(ctx, 1) != nil {
		return prepared{}, context.Cause(ctx)
	}
	defer a.turn.Release(1)
	if p, done := a.prepared[r.Image.ChainID]; done {
		return p, p.err
	}
	p, err := a.install(ctx, e, r.Image)
	if err == nil && a.CLI.Directory == "" {
		err = a.runVersion(ctx, e, r, p)
	}
	if ctx.Err() != nil {
		return p, context.Cause(ctx)
	}
	if err == nil || errors.Is(err, errDoesNotRun) { // other errors may be temporary
		p.err = err
		a.prepared[r.Image.ChainID] = p
	}
	return p, err
}

func (a *Agent) install(ctx context.Context, e Engine, image runtime.Image) (p prepared, err error) {
	if dir := a.CLI.Directory; dir != "" {
		p.in = agentcli.Installed{Dir: dir, Program: a.CLI.Program, Integrity: a.Digest}
	} else {
		musl, err := usesMusl(ctx, e, image)
		if err != nil {
			return p, err
		}
		pkg, err := a.CLI.Package(a.Arch, musl)
		if err != nil {
			return p, err
		}
		if p.in, err = a.Tools.Install(ctx, pkg, a.Version); err != nil {
			return p, fmt.Errorf("%w: %s: %w", ErrNotInstalled, a.CLI.Name, err)
		}
	}
	if pkg, version, ok := a.CLI.Node(a.Arch); ok {
		if p.node, err = a.Tools.Install(ctx, pkg, version); err != nil {
			return p, fmt.Errorf("%w: Node.js for %s: %w", ErrNotInstalled, a.CLI.Name, err)
		}
	}
	return p, nil
}

// usesMusl reports whether an image has musl's dynamic loader.
func usesMusl(ctx context.Context, e Engine, image runtime.Image) (bool, error) {
	view, err := e.View(ctx, image)
	if err != nil {
		return false, err
	}
	defer func() { _ = view.Close() }()
	for _, loader := range []string{"lib/ld-musl-x86_64.so.1", "lib/ld-musl-aarch64.so.1"} {
		if _, err := view.Root().Lstat(loader); err == nil {
			return true, nil
		}
	}
	return false, nil
}

// Errors of an [Agent]. The exported errors do not depend on the task: other tasks will meet them, too.
var (
	ErrProvider     = errors.New("the provider failed")
	ErrNotInstalled = errors.New("the agent's program cannot be installed")
	errDoesNotRun   = errors.New("this CLI does not run in this image")
)

// runVersion runs the beginning of the command, up to the program, with --version.
func (a *Agent) runVersion(ctx context.Context, e Engine, r Request, p prepared) error {
	in := p.in
	args, _, _ := a.process(in, "")
	args = append(args[:slices.Index(args, path.Join(toolsDest, in.Program))+1:len(args)], "--version")
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: SandboxName + "-preflight", Image: r.Image, Limits: r.Limits, Workdir: "/tmp", User: r.Task.Environment.Harness(),
		Mounts: p.mounts(), Env: []string{"HOME=/tmp"},
	})
	if err != nil {
		return err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: args, Wall: preflightWall, OutputBytes: 4096})
	closed := sandbox.Close(ctx)
	switch {
	case errors.Is(err, runtime.ErrNotStarted):
		return errors.Join(fmt.Errorf("%w: %s %s: the program cannot be executed, perhaps because the image lacks its C library: glibc is in images of Debian and Ubuntu", errDoesNotRun, a.CLI.Name, in.Version), closed)
	case err != nil || closed != nil:
		return errors.Join(err, closed)
	case !exit.Success():
		// The program's output may be shown: the agent has not run yet.
		words := strings.TrimSpace(string(append(exit.Stderr.Bytes(), exit.Stdout.Bytes()...)))
		return fmt.Errorf("%w: %s %s %s: %s", errDoesNotRun, a.CLI.Name, in.Version, exit, words)
	}
	return nil
}

// outcome judges how the agent ended by what the relay saw, never by what the agent printed. An
// agent that ends before its first event has failed, unless its program or the provider does not
// work for sbench either.
func (a *Agent) outcome(ctx context.Context, e Engine, r Request, p prepared, result Result, events int, ask prober) (Result, error) {
	if result.Ended == nil && result.Exit.Reason != "" && !result.Exit.Success() {
		result.Ended = &candidate.Failure{Reason: "producer_failed", Phase: phaseProducer, Message: "the agent " + result.Exit.String()}
	}
	silent := result.Ended != nil && events == 0 && result.Exit.Reason == runtime.Exited
	if silent && a.CLI.Directory == "" {
		if err := a.runVersion(ctx, e, r, p); err != nil {
			return result, fmt.Errorf("%s ended before its first event: %w", a.CLI.Name, err)
		}
	}
	return assignFault(ctx, result, ending{bad: result.Ended != nil || result.Failure != nil, silent: silent}, a.Relay, ask)
}

// An ending is how a harness with a provider ended: badly, or even before its first event.
type ending struct{ bad, silent bool }

// A prober asks a provider after an attempt. Probe asks for one word, Repeat sends the agent's
// first request again.
type prober interface {
	Probe(ctx context.Context) relay.Facts
	Repeat(ctx context.Context) relay.Facts
}

// probeWall bounds the wait for the provider's answers to a prober.
const probeWall = 2 * time.Minute

// assignFault returns ErrProvider if the provider is at fault for how an attempt ended, and sets
// Ended if the agent used up a budget. An agent must not be able to turn its failure into an error,
// so only what the relay itself saw counts. The provider is at fault in two cases:
//   - It failed at every request of the attempt in any way, and now serves the first request. Failures
//     alone prove nothing: an agent can provoke them, a 429 by a request that exceeds the rate limit.
//   - It did not serve the last request, and does not serve a request of sbench's own either. sbench
//     makes this request if no request was served, or if the harness ended badly.
func assignFault(ctx context.Context, result Result, how ending, provider relay.Config, ask prober) (Result, error) {
	facts := result.Egress.Relay
	name := fmt.Sprintf("%s, %s", provider.Provider, provider.Host())
	if facts.Unserved() || how.bad && facts.ProviderFailed() || how.silent {
		asking, cancel := context.WithTimeout(ctx, probeWall)
		defer cancel()
		probed := ask.Probe(asking)
		servesFirst := facts.AllFailed() && probed.Succeeded > 0 && ask.Repeat(asking).Succeeded > 0
		switch {
		case ctx.Err() != nil:
			return result, context.Cause(ctx)
		case servesFirst:
			return result, fmt.Errorf("%w (%s): it refused each request of the attempt, %d in all: %s", ErrProvider, name, facts.Sent, facts.LastCause)
		case probed.Unknown() && facts.Unknown():
			return result, fmt.Errorf("%w (%s): it answers every request with 404: it does not know the model %q, or the base_url leads elsewhere", ErrProvider, name, provider.Model)
		case probed.Sent == 0, probed.Unserved() && !probed.Unknown():
			return result, fmt.Errorf("%w (%s): %s, for the agent and for a request of sbench's own", ErrProvider, name, cmp.Or(probed.LastCause, "no answer"))
		}
	}
	if facts.Exceeded != "" {
		result.Ended = &candidate.Failure{Reason: string(facts.Exceeded) + "_exceeded", Phase: phaseProducer, Message: "the agent used up harness.config." + string(facts.Exceeded)}
	}
	return result, nil
}
