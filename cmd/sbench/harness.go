package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/agentcli"
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
		exact, err := cache.Resolve(ctx, pkg, cmp.Or(version, agentcli.Latest))
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
	registry := cmp.Or(os.Getenv("npm_config_registry"), os.Getenv("NPM_CONFIG_REGISTRY"), agentcli.DefaultRegistry) // as npm does
	return &agentcli.Cache{Dir: filepath.Join(dir, "tools"), Registry: registry, Logger: a.logger()}, nil
}
