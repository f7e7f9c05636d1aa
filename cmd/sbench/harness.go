package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

type harnessCmd struct {
	Install harnessInstallCmd `cmd:"" help:"Fetch agent CLIs into the cache."`
	Show    harnessShowCmd    `cmd:"" help:"Print the descriptor of an agent, as a start for one of your own."`
	Ls      harnessLsCmd      `cmd:"" help:"List the agent CLIs in the cache."`
	Rm      harnessRmCmd      `cmd:"" help:"Remove agent CLIs from the cache."`
}

type harnessInstallCmd struct {
	Agents []string `arg:"" name:"agent" placeholder:"NAME[@VERSION]" help:"${agents}, with a version or latest."`
	Musl   bool     `help:"For images with musl instead of glibc."`
	jsonFlag
}

func (cmd *harnessInstallCmd) Run(ctx context.Context, a *app, cache *agentcli.Cache) error {
	var all []agentcli.Installed
	for _, arg := range cmd.Agents {
		name, version, _ := strings.Cut(arg, "@")
		agent, ok := harness.CLIOf(name)
		if !ok {
			return noAgent(name)
		}
		pkg, err := agent.Package(goruntime.GOARCH, cmd.Musl)
		if err != nil {
			return marked(errUsage, err)
		}
		exact, err := a.resolveVersion(ctx, cache, pkg, cmp.Or(version, agentcli.Latest))
		if err != nil {
			return err
		}
		in, err := cache.Install(ctx, pkg, exact)
		if err != nil {
			return err
		}
		all = append(all, in)
		if node, version, ok := agent.Node(goruntime.GOARCH); ok {
			if in, err = cache.Install(ctx, node, version); err != nil {
				return err
			}
			all = append(all, in)
		}
	}
	return a.printTools(all, cmd.JSON)
}

// joined returns the names of a list's items, separated by between.
func joined[T any](list []T, between string, name func(T) string) string {
	names := make([]string, len(list))
	for i, item := range list {
		names[i] = name(item)
	}
	return strings.Join(names, between)
}

type harnessShowCmd struct {
	Agent string `arg:"" placeholder:"NAME" help:"${agents}."`
}

func (cmd *harnessShowCmd) Run(a *app) error {
	agent, ok := harness.CLIOf(cmd.Agent)
	if !ok {
		return noAgent(cmd.Agent)
	}
	return a.printf("%s", agent.Descriptor)
}

func noAgent(name string) error {
	return fmt.Errorf("%w: no agent %q; there are %s", errUsage, name, joined(harness.CLIs(), ", ", func(c harness.CLI) string { return c.Name }))
}

type harnessLsCmd struct{ jsonFlag }

func (cmd *harnessLsCmd) Run(a *app, cache *agentcli.Cache) error {
	all, err := cache.List()
	if err != nil {
		return err
	}
	return a.printTools(all, cmd.JSON)
}

type harnessRmCmd struct {
	Agents []string `arg:"" name:"agent" placeholder:"NAME[@VERSION]" help:"${agents}, or the name of a package: one version, or all of them. No run may be using it."`
	JSON   bool     `name:"json" help:"Print what was removed as JSON."`
}

// Run removes and prints packages. A name that matches none is an error; the others are removed all the same.
func (cmd *harnessRmCmd) Run(a *app, cache *agentcli.Cache) error {
	var all []agentcli.Installed
	var errs []error
	for _, arg := range cmd.Agents {
		name, version := arg, ""
		if i := strings.LastIndex(arg, "@"); i > 0 { // packages begin with @
			name, version = arg[:i], arg[i+1:]
		}
		packages := []string{name}
		if agent, ok := harness.CLIOf(name); ok {
			for _, musl := range []bool{false, true} {
				pkg, err := agent.Package(goruntime.GOARCH, musl)
				errs, packages = append(errs, err), append(packages, pkg.Name)
			}
		}
		removed, err := cache.Remove(func(in agentcli.Installed) bool {
			return slices.Contains(packages, in.Package) && (version == "" || version == in.Version)
		})
		if err == nil && len(removed) == 0 {
			err = fmt.Errorf("%w: the cache has no %s; sbench harness ls lists what it has", errUsage, arg)
		}
		errs, all = append(errs, err), append(all, removed...)
	}
	return errors.Join(append(errs, a.printTools(all, cmd.JSON))...)
}

func (a *app) printTools(all []agentcli.Installed, asJSON bool) error {
	return printList(a, asJSON, all, func(in agentcli.Installed) string {
		return fmt.Sprintf("%s %s %d MB %s", in.Package, in.Version, in.Bytes>>20, in.Integrity)
	})
}

// tools returns the cache of agents' command lines, in SBENCH_CACHE or in the user's cache directory.
func (a *app) tools() (*agentcli.Cache, error) {
	dir := os.Getenv("SBENCH_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("%w: no cache directory: %w; set SBENCH_CACHE", errUsage, err)
		}
		dir = filepath.Join(user, "sbench")
	}
	return &agentcli.Cache{
		Dir: filepath.Join(dir, "tools"), Registry: agentcli.RegistryFrom(os.Environ()),
		Downloading: func(pkg, version string, bytes int64) {
			a.logger().Info("download", "package", pkg, "version", version, "bytes", bytes)
		},
	}, nil
}

// resolveVersion returns the exact version, and warns if it is from an earlier query, as the registry is away.
func (a *app) resolveVersion(ctx context.Context, cache *agentcli.Cache, pkg agentcli.Package, version string) (string, error) {
	exact, stale, err := cache.Resolve(ctx, pkg, version)
	if stale {
		a.logger().Warn("the registry cannot be reached: using the version that the tag last stood for", "package", pkg.Name, "tag", version, "version", exact)
	}
	return exact, err
}

// testerProblems returns what is wrong with a tester file that the package compiler cannot know.
func testerProblems(t *testerfile.File) compiler.Problems {
	_, err := egressFor(t)
	problems := keyProblems(t)
	if also := (compiler.Problems{}); errors.As(err, &also) {
		problems = append(problems, also...)
	}
	return problems
}

// egressFor returns what the tester file lets a harness reach. The error holds compiler.Problems.
func egressFor(t *testerfile.File) (harness.Egress, error) {
	bundle := t.Runtime.Network.CABundle
	if bundle != "" {
		info, err := os.Stat(bundle)
		if err == nil && !info.Mode().IsRegular() {
			err = fmt.Errorf("%s is not a regular file", bundle)
		}
		if err != nil {
			return harness.Egress{}, compiler.Problems{t.Problem("$.runtime.network.ca_bundle", "the path is relative to the tester file", err.Error())}
		}
	}
	c := t.Harness.Config
	return harness.Egress{
		Domains: c.AllowedDomains, Transparent: t.Runtime.Network.Transparent, CABundle: bundle,
		WorkingClock: c.WorkingClock, SidecarsReachProvider: c.SidecarsReachProvider,
	}, nil
}

// keysOf returns the keys of the harness's provider, if it has one, and the message that it needs one of them.
func keysOf(t *testerfile.File) (keys []testerfile.Credential, need string, problems compiler.Problems) {
	agent, problems := agentOf(t)
	if p := t.Harness.Config.Provider; p != nil {
		return []testerfile.Credential{{Name: p.Key}}, "harness.config.provider needs its key", problems
	}
	return agent.Credentials, agent.Name + " needs a key of its provider", problems
}

func alternatives(keys []testerfile.Credential) string {
	return joined(keys, " or ", func(c testerfile.Credential) string { return c.Name })
}

// keyProblems returns a problem if harness.env names none of the keys of the harness's provider.
func keyProblems(t *testerfile.File) compiler.Problems {
	keys, need, problems := keysOf(t)
	named := func(c testerfile.Credential) bool { return slices.Contains(t.Harness.Env, c.Name) }
	if problems != nil || len(keys) == 0 || slices.ContainsFunc(keys, named) {
		return problems
	}
	return compiler.Problems{t.Problem("$.harness.env", "name "+alternatives(keys)+" here, and set it in the environment or the env file; it stays outside of the sandbox", need)}
}

// producerFor makes the harness that the tester file names.
func (a *app) producerFor(ctx context.Context, t *testerfile.File, env map[string]string) (harness.Producer, error) {
	refuse := func(path, message string) (harness.Producer, error) {
		return nil, compiler.Problems{t.Problem(path, "", message)}
	}
	c := t.Harness.Config
	agent, problems := agentOf(t)
	switch {
	case problems != nil:
		return nil, problems
	case agent.Name == "":
		return commandFor(ctx, t, env)
	}
	key, bearer := credential(agent, env)
	if key == "" {
		return nil, keyProblems(t)
	}
	cache, err := a.tools()
	if err != nil {
		return nil, err
	}
	made := &harness.Agent{HarnessConfig: c, CLI: agent, Tools: cache, Arch: goruntime.GOARCH}
	if made.Relay, err = harness.RelayTo(agent.Provider, key, c); err != nil {
		return nil, err
	}
	made.Relay.Bearer = bearer
	if made.Files, err = filesFor(ctx, t); err != nil {
		return nil, err
	}
	if agent.Directory != "" {
		made.Version = ""
		if made.Digest, err = readable(ctx, agent.Directory); err != nil {
			return refuse("$.harness.config.descriptor", fmt.Sprintf("its directory: %v: everything in it has to be readable by others (chmod -R o+rX)", err))
		}
	}
	if t.Harness.Type == harness.CustomAgent {
		made.Own, made.Digest = agentOptions(t), record.Digest(append([]byte(made.Digest), agent.Descriptor...))
	}
	if agent.Directory != "" {
		return made, nil
	}
	pkg, err := agent.Package(goruntime.GOARCH, false)
	if err != nil {
		return refuse("$.harness.type", err.Error())
	}
	made.Version, err = a.resolveVersion(ctx, cache, pkg, c.Version)
	switch {
	case errors.Is(err, agentcli.ErrNoVersion):
		return refuse("$.harness.config.version", err.Error())
	case err != nil:
		return nil, marked(run.ErrInfrastructure, err)
	}
	return made, nil
}

// agentOf returns the agent that the tester file names or describes; that of a command has no name.
func agentOf(t *testerfile.File) (agent harness.CLI, problems compiler.Problems) {
	if t.Harness.Type != harness.CustomAgent {
		agent, _ = harness.CLIOf(t.Harness.Type)
		return agent, serverProblems(t, agent)
	}
	file := beside(t.Path, t.Harness.Config.Own["descriptor"])
	text, err := os.ReadFile(file)
	if err != nil {
		return agent, compiler.Problems{t.Problem("$.harness.config.descriptor", "", document.Bare(err).Error())}
	}
	if agent, problems = harness.ParseDescriptor(file, text); problems != nil {
		return agent, problems
	}
	if agent.Directory != "" {
		agent.Directory = beside(file, agent.Directory)
	}
	for name, value := range agentOptions(t) {
		i := slices.IndexFunc(agent.Config, func(f schema.Field) bool { return f.Name == name })
		known := joined(agent.Config, ", ", func(f schema.Field) string { return f.Name })
		switch {
		case i < 0:
			problems = append(problems, t.Problem("$.harness.config.options."+name, "its descriptor names: "+cmp.Or(known, "none"), agent.Name+" has no such key"))
		case !ownWord.MatchString(value):
			problems = append(problems, t.Problem("$.harness.config.options."+name, "letters, digits and . _ + -", "is no word"))
		}
	}
	return agent, append(problems, serverProblems(t, agent)...)
}

// beside returns the path of what file names: name is absolute, or relative to the file's directory.
func beside(file, name string) string {
	if filepath.IsAbs(name) {
		return name
	}
	return filepath.Join(filepath.Dir(file), name)
}

// serverProblems returns a problem for each server of tools that the agent cannot use or cannot reach.
func serverProblems(t *testerfile.File, agent harness.CLI) (problems compiler.Problems) {
	for name, s := range t.Harness.Config.MCPServers {
		at := "$.harness.config.mcp_servers." + name
		address, err := url.Parse(s.URL)
		switch {
		case !agent.Supports(s):
			problems = append(problems, t.Problem(at, "describe how under mcp in its descriptor", agent.Name+" cannot use such a server"))
		case s.URL != "" && (err != nil || !slices.ContainsFunc(t.Harness.Config.AllowedDomains, func(d domain.Domain) bool { return d.Allows(address.Hostname()) })):
			problems = append(problems, t.Problem(at+".url", "add its name there", "harness.config.allowed_domains has no "+address.Hostname()))
		}
	}
	slices.SortFunc(problems, func(a, b compiler.Problem) int { return cmp.Compare(a.Path, b.Path) })
	return problems
}

// ownWord matches what schema.Word allows.
var ownWord = regexp.MustCompile(`^[a-zA-Z0-9._+-]+$`)

// agentOptions returns the values of an own agent's own keys.
func agentOptions(t *testerfile.File) map[string]string {
	var given map[string]any
	_ = json.Unmarshal([]byte(t.Harness.Config.Own["options"]), &given) // absent, or an object
	options := map[string]string{}
	for name, value := range given {
		switch value.(type) {
		case string, float64, bool:
			options[name] = fmt.Sprint(value)
		default:
			options[name] = ""
		}
	}
	return options
}

// checkAgent checks that the harness's provider, if it has one, can be reached and accepts the key.
func checkAgent(ctx context.Context, t *testerfile.File, p harness.Producer) error {
	to := p.Identity().Relay
	if to == nil {
		return nil
	}
	err := relay.Check(ctx, *to)
	switch {
	case errors.Is(err, relay.ErrRefused):
		keys, _, _ := keysOf(t)
		return fmt.Errorf("%w: harness.env: %w: set another %s", run.ErrInfrastructure, err, alternatives(keys))
	case errors.Is(err, relay.ErrUnreachable):
		return fmt.Errorf("%w: harness.config.base_url: %w", run.ErrInfrastructure, err)
	}
	return err
}

// credential returns the first key of the agent's provider that is set.
func credential(agent harness.CLI, env map[string]string) (key string, bearer bool) {
	for _, c := range agent.Credentials {
		if env[c.Name] != "" {
			return env[c.Name], c.Bearer
		}
	}
	return "", false
}

// noKeys returns a stand-in for the keys, for commands that execute nothing.
func noKeys(t *testerfile.File) map[string]string {
	keys, _, _ := keysOf(t)
	if len(keys) == 0 {
		return nil
	}
	return map[string]string{keys[0].Name: "none"}
}
