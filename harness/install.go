package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/securebench/sbench/harness/agentcli"
)

// ErrNoAgent means that sbench knows no such agent, or that the agent has no program for this machine.
var ErrNoAgent = errors.New("no agent")

// Named returns the agent with the given name. The error is ErrNoAgent, and lists all names.
func Named(name string) (CLI, error) {
	agent, ok := CLIOf(name)
	if ok {
		return agent, nil
	}
	var names []string
	for _, c := range CLIs() {
		names = append(names, c.Name)
	}
	return CLI{}, fmt.Errorf("%w %q; there are %s", ErrNoAgent, name, strings.Join(names, ", "))
}

// Install installs an agent, NAME or NAME@VERSION, for images with the C library glibc or musl, and the Node.js that the
// agent needs. The error is ErrNoAgent or ErrNotInstalled.
func Install(ctx context.Context, cache *agentcli.Cache, agent string, musl bool) (all []agentcli.Installed, err error) {
	name, version, _ := strings.Cut(agent, "@")
	cli, err := Named(name)
	if err != nil {
		return nil, err
	}
	pkg, err := cli.Package(goruntime.GOARCH, musl)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoAgent, err)
	}
	exact, err := cache.Resolve(ctx, pkg, cmp.Or(version, agentcli.Latest))
	var in agentcli.Installed
	if err == nil {
		in, err = cache.Install(ctx, pkg, exact)
		all = append(all, in)
	}
	if node, version, ok := cli.Node(goruntime.GOARCH); ok && err == nil {
		in, err = cache.Install(ctx, node, version)
		all = append(all, in)
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrNotInstalled, err)
	}
	return all, err
}

// Uninstall removes an agent's program, or a package by its name, from the cache: one version, as in NAME@VERSION, or all
// of them. It returns what it has removed.
func Uninstall(cache *agentcli.Cache, agent string) ([]agentcli.Installed, error) {
	name, version := agent, ""
	if i := strings.LastIndex(agent, "@"); i > 0 { // packages begin with @
		name, version = agent[:i], agent[i+1:]
	}
	packages := []string{name}
	if cli, ok := CLIOf(name); ok {
		for _, musl := range []bool{false, true} {
			if pkg, err := cli.Package(goruntime.GOARCH, musl); err == nil {
				packages = append(packages, pkg.Name)
			}
		}
	}
	return cache.Remove(func(in agentcli.Installed) bool {
		return slices.Contains(packages, in.Package) && (version == "" || version == in.Version)
	})
}
