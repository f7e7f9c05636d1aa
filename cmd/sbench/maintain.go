package main

import (
	"context"
	"errors"
	"fmt"
	goruntime "runtime"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/run"
)

type gcCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

func (cmd *gcCmd) Run(ctx context.Context, a *app) error {
	c, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	gone, err := c.GC(ctx)
	err = errors.Join(err, c.Close(ctx))
	if len(gone.Left) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: not all could be removed: %w", run.ErrInfrastructure, errors.Join(gone.Left...)))
	}
	if cmd.JSON {
		return errors.Join(err, a.json(map[string]any{"removed": append([]string{}, gone.Removed...)}))
	}
	return errors.Join(err, printTable(a, gone.Removed, func(id string) string { return "removed what run " + id + " left" }))
}

type versionCmd struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// versionLine is what version and --version print.
func versionLine() string {
	return fmt.Sprintf("sbench %s %s %s/%s", version, goruntime.Version(), goruntime.GOOS, goruntime.GOARCH)
}

// Run prints the version.
func (cmd *versionCmd) Run(a *app) error {
	if cmd.JSON {
		return a.json(map[string]string{"version": version, "go": goruntime.Version(), "platform": goruntime.GOOS + "/" + goruntime.GOARCH})
	}
	return a.printf("%s\n", versionLine())
}

type helpCmd struct {
	Command []string `arg:"" optional:"" help:"Command, such as run or pack check."`
}

// Run prints the help of a command, or of all.
func (cmd *helpCmd) Run(c *kong.Context) error {
	node := c.Model.Node
	for _, name := range cmd.Command {
		i := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == name })
		if i < 0 {
			return fmt.Errorf("%w: no command %q; there are %s", errUsage, strings.Join(cmd.Command, " "), joined(node.Children, ", ", func(n *kong.Node) string { return n.Name }))
		}
		node = node.Children[i]
	}
	_, _ = c.Kong.Parse(append(cmd.Command, "--help")) // which arguments are missing does not matter
	return nil
}
