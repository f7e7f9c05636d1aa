package main

import (
	"context"
	"errors"
	"fmt"
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
	for _, agent := range cmd.Agents {
		installed, err := harness.Install(ctx, cache, agent, cmd.Musl)
		if err != nil {
			return err
		}
		all = append(all, installed...)
	}
	return a.printTools(all, cmd.JSON)
}

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
	agent, err := harness.Named(cmd.Agent)
	if err != nil {
		return err
	}
	return a.printf("%s", agent.Descriptor)
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
	for _, agent := range cmd.Agents {
		removed, err := harness.Uninstall(cache, agent)
		if err == nil && len(removed) == 0 {
			err = fmt.Errorf("%w: the cache has no %s; sbench harness ls lists what it has", errUsage, agent)
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

func (a *app) tools() (*agentcli.Cache, error) {
	cache, err := agentcli.Open(a.logger())
	return cache, marked(errUsage, err)
}
