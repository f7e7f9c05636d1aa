package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness/tooling"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
)

const (
	toolsDest     = "/opt/sbench/agent" // read-only, the same for all attempts
	agentState    = "/opt/sbench/home"  // writable, one per attempt
	placeholder   = "sbench-placeholder-key"
	textFile      = "candidate.txt"
	preflightWall = time.Minute
)

// A CLI describes an agent's command-line program: everything in which agents differ.
type CLI struct {
	compiler.AgentType
	Provider relay.Provider
	// Packages are the npm packages by architecture, as GOARCH, with "-musl" appended for
	// those that images with musl need instead.
	Packages map[string]tooling.Package

	// Args returns the program's arguments. The program reads the prompt from
	// standard input.
	Args func(a *Agent, baseURL string) []string
	// Env returns the variables, as NAME=value, that the program needs besides HOME, which
	// is home. key is a placeholder for the provider's key.
	Env func(a *Agent, baseURL, key, home string) []string
	// Read parses a line of the program's output; ok is false if it is not an event.
	Read func(line []byte) ([]Step, bool)
}

// Package returns the npm package for an architecture and a C library, musl or glibc.
func (c CLI) Package(arch string, musl bool) (tooling.Package, error) {
	p, ok := c.Packages[arch+"-musl"]
	if !musl || !ok {
		p, ok = c.Packages[arch]
	}
	if !ok {
		return p, fmt.Errorf("%s has no package for %s", c.Name, arch)
	}
	return p, nil
}

// Agent is a harness that runs an agent's command-line program in the task's image. The
// program reaches its model through a relay. Produce is safe for concurrent use.
type Agent struct {
	compiler.HarnessConfig // whose Version is exact

	CLI    CLI
	Tools  *tooling.Cache
	Arch   string // of the images, as GOARCH
	Key    relay.Key
	Bearer bool // see compiler.Credential

	mu       sync.Mutex
	prepared map[string]prepared // by image
}

// prepared is the agent's program for an image, or why it does not run in it.
type prepared struct {
	in  tooling.Installed
	err error
}

// About is what a record says about the agent.
type About struct {
	Name    string `json:"name"`
	Version string `json:"version"`
	Package string `json:"package"`
	Digest  string `json:"digest"` // of the package's archive, as the registry gives it
	Model   string `json:"model"`
}

// Produce runs the agent. It returns an error if the agent does not run in the image, ends
// before its first event, or fails because of its provider.
func (a *Agent) Produce(ctx context.Context, e Engine, r Request) (Result, error) {
	in, err := a.prepare(ctx, e, r)
	if err != nil {
		return Result{}, err
	}
	prompt, err := Prompt(r, a.TaskFile)
	if err != nil {
		return Result{}, err
	}
	provider, err := a.provider()
	if err != nil {
		return Result{}, err
	}
	way, err := openWay(r, provider)
	if err != nil {
		return Result{}, err
	}
	baseURL := a.CLI.Provider.AgentURL(relayAddress)
	events := &eventReader{read: a.CLI.Read, trace: r.Trace, said: r.Said}
	result, err := production{
		engine: e, request: r, taskFile: a.TaskFile, textFile: textFile, writable: true, stateAt: agentState,
		process: runtime.Process{
			Args: append([]string{program(in)}, a.CLI.Args(a, baseURL)...), Stdin: strings.NewReader(prompt), Stdout: events,
		},
		env:     append(append(way.env(), passed(r.Env)...), a.environment(baseURL)...),
		mounts:  append(way.mounts(), runtime.Mount{Source: in.Dir, Dest: toolsDest}),
		network: way.network(),
	}.run(ctx)
	events.end()
	result, err = way.close(result, err)
	result.Agent = &About{a.CLI.Name, in.Version, in.Package, in.Integrity, a.Model}
	if err != nil {
		return result, err
	}
	return a.outcome(result, events.count)
}

// Check asks the provider, before the first attempt, whether it accepts the key. See
// [relay.Check].
func (a *Agent) Check(ctx context.Context) error {
	provider, err := a.provider()
	if err != nil {
		return err
	}
	return relay.Check(ctx, *provider)
}

// program returns the path of the agent's program in sandboxes.
func program(in tooling.Installed) string { return path.Join(toolsDest, in.Program) }

func (a *Agent) provider() (*relay.Config, error) {
	cfg := &relay.Config{
		Provider: a.CLI.Provider, Key: a.Key, MinSecret: compiler.MinSecret, Bearer: a.Bearer, Model: a.Model,
		AllowExternalTools: a.AllowExternalTools, RefuseExternalTools: a.RefuseExternalTools,
		MaxTotalTokens: a.MaxTotalTokens, MaxRequests: a.MaxRequests, MaxCostUSD: a.MaxCostUSD, Prices: PricesOf(a.HarnessConfig),
	}
	if a.BaseURL == "" {
		return cfg, nil
	}
	var err error
	cfg.BaseURL, err = url.Parse(a.BaseURL)
	return cfg, err
}

// PricesOf returns the prices that a tester file gives; nil for none.
func PricesOf(c compiler.HarnessConfig) *proxy.Prices {
	if c.Prices == nil {
		return nil
	}
	return &proxy.Prices{Input: c.Prices.Input, Cached: c.Prices.CachedInput, Output: c.Prices.Output}
}

// environment returns the agent's own variables, which take precedence over those of
// the image and of the tester file.
func (a *Agent) environment(baseURL string) []string {
	return append(a.CLI.Env(a, baseURL, placeholder, agentState), "HOME="+agentState, "IS_SANDBOX=1")
}

// passed returns env without the variables that hold a provider's key: no key enters
// a sandbox.
func passed(env []string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return isCredential(name)
	})
}

// prepare fetches the program for an image if necessary, and runs it with --version, both
// once for each image.
func (a *Agent) prepare(ctx context.Context, e Engine, r Request) (tooling.Installed, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if p, done := a.prepared[r.Image.ChainID]; done {
		return p.in, p.err
	}
	in, err := a.install(ctx, e, r.Image)
	if err == nil {
		err = a.version(ctx, e, r, in)
	}
	if ctx.Err() != nil {
		return in, context.Cause(ctx)
	}
	if err == nil || errors.Is(err, errDoesNotRun) { // other errors may be temporary
		if a.prepared == nil {
			a.prepared = map[string]prepared{}
		}
		a.prepared[r.Image.ChainID] = prepared{in, err}
	}
	return in, err
}

func (a *Agent) install(ctx context.Context, e Engine, image runtime.Image) (tooling.Installed, error) {
	musl, err := usesMusl(ctx, e, image)
	if err != nil {
		return tooling.Installed{}, err
	}
	pkg, err := a.CLI.Package(a.Arch, musl)
	if err != nil {
		return tooling.Installed{}, err
	}
	in, err := a.Tools.Install(ctx, pkg, a.Version)
	if err != nil {
		err = fmt.Errorf("%w: %s: %w", ErrNotInstalled, a.CLI.Name, err)
	}
	return in, err
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

// Errors of an [Agent] that are not due to its task: other tasks will meet them, too.
var (
	ErrProvider     = errors.New("the provider failed")
	ErrNotInstalled = errors.New("the agent's program cannot be installed")
)

// errDoesNotRun means that the agent's program does not run in the task's image.
var errDoesNotRun = errors.New("this CLI does not run in this image")

func (a *Agent) version(ctx context.Context, e Engine, r Request, in tooling.Installed) error {
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: SandboxName + "-preflight", Image: r.Image, Limits: r.Limits, Workdir: "/tmp", User: r.Task.Environment().User,
		Mounts: []runtime.Mount{{Source: in.Dir, Dest: toolsDest}}, Env: []string{"HOME=/tmp"},
	})
	if err != nil {
		return err
	}
	exit, err := sandbox.Exec(ctx, runtime.Process{Args: []string{program(in), "--version"}, Wall: preflightWall, OutputBytes: 4096})
	closed := sandbox.Close(ctx)
	switch {
	case errors.Is(err, runtime.ErrNotStarted):
		return errors.Join(fmt.Errorf("%w: %s %s: the program cannot be executed, perhaps for want of its dynamic loader", errDoesNotRun, a.CLI.Name, in.Version), closed)
	case err != nil || closed != nil:
		return errors.Join(err, closed)
	case !exit.Success():
		// The program's output may be shown: the agent has not run yet.
		words := strings.TrimSpace(string(append(exit.Stderr.Bytes(), exit.Stdout.Bytes()...)))
		return fmt.Errorf("%w: %s %s %s: %s", errDoesNotRun, a.CLI.Name, in.Version, exit, words)
	}
	return nil
}

// outcome judges the agent's end by what the relay saw, never by what the agent printed.
func (a *Agent) outcome(result Result, events int) (Result, error) {
	ended := result.Failure
	if ended == nil && !result.Exit.Success() {
		ended = &candidate.Failure{Reason: "producer_failed", Phase: phaseProducer, Message: "the agent " + result.Exit.String()}
	}
	result, settled, err := settle(result, ended, a.Model)
	switch {
	case settled || ended == nil:
		return result, err
	case events == 0 && result.Exit.Reason == runtime.Exited:
		return result, fmt.Errorf("%s ended before its first event: it %s", a.CLI.Name, result.Exit)
	}
	result.Failure = ended
	return result, nil
}

// settle judges an end that the provider or a budget explains; settled says that one does. ended
// is nil if the agent ended well.
func settle(result Result, ended *candidate.Failure, model string) (_ Result, settled bool, err error) {
	facts := result.Egress.Relay
	switch {
	case ended != nil && outage(facts): // checked first: retries may have used up a budget
		return result, true, fmt.Errorf("%w: %s, %d times at the end", ErrProvider, facts.LastCause, facts.Outage)
	case ended != nil && unknownModel(facts):
		return result, true, fmt.Errorf("%w: it answers every request with 404: it does not know the model %q, or harness.config.base_url leads elsewhere", ErrProvider, model)
	case facts.Exceeded != "":
		result.Failure = &candidate.Failure{Reason: string(facts.Exceeded) + "_exceeded", Phase: phaseProducer, Message: "the agent used up harness.config." + string(facts.Exceeded)}
		return result, true, nil
	}
	return result, false, nil
}

// Relays reports that an agent has a provider.
func (a *Agent) Relays() bool { return true }

// outage reports whether an attempt ended badly because of the provider, not the agent.
// After one successful answer the key is known to be good. Agents retry, so an outage causes
// several failures; a single one at the end may have been provoked from inside the sandbox.
func outage(f *relay.Facts) bool {
	if !f.ProviderFailed() {
		return false
	}
	return f.Succeeded == 0 || f.Outage > 1 && f.LastCause != relay.BadKey
}

// unknownModel reports whether every answer was 404. The relay passes only the configured
// model and a few paths, so the agent did not choose what is missing.
func unknownModel(f *relay.Facts) bool {
	return f.Succeeded == 0 && len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, func(status int) bool { return status != http.StatusNotFound })
}

// eventReader splits an agent's output into lines and parses them.
type eventReader struct {
	read  func(line []byte) ([]Step, bool)
	trace io.Writer
	said  func(text string)
	line  []byte // incomplete
	cut   bool   // the line was longer than maxEvent
	count int    // of events
}

// maxEvent bounds an incomplete line in memory, in bytes. A longer line is replaced by a
// cutEvent.
const maxEvent = 16 << 20

func (r *eventReader) Write(p []byte) (int, error) {
	for piece := range bytes.Lines(p) {
		text, whole := bytes.CutSuffix(piece, []byte("\n"))
		r.line = append(r.line, text...)
		switch {
		case whole:
			r.take()
		case len(r.line) > maxEvent:
			r.line, r.cut = r.line[:0], true
		}
	}
	return len(p), nil
}

func (r *eventReader) end() {
	if len(r.line) > 0 {
		r.take()
	}
}

// take handles one line. A trace error does not stop the agent, since the record has the
// output as well.
func (r *eventReader) take() {
	line := r.line
	r.line = r.line[:0]
	if r.cut {
		r.cut = false
		line = []byte(`{"type":"` + cutEvent + `"}`)
	}
	if r.trace != nil {
		_, _ = r.trace.Write(append(bytes.Clone(line), '\n'))
	}
	steps, ok := r.read(line)
	if ok {
		r.count++
	}
	for _, s := range steps {
		if text := s.String(); text != "" && r.said != nil {
			r.said(text)
		}
	}
}
