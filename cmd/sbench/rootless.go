package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/runtime/rootless"
)

// onDaemon marks a command that talks to a daemon and has no tester file.
type onDaemon struct{}

func (onDaemon) testerFile() string { return "" }

func (cmd *runCmd) testerFile() string       { return cmd.Config }
func (cmd *regradeCmd) testerFile() string   { return cmd.Config }
func (cmd *specCmd) testerFile() string      { return cmd.Config }
func (cmd *packCheckCmd) testerFile() string { return cmd.Config }

// daemonCommand is a command that talks to a daemon. Its tester file, "" for none, may
// name which one.
type daemonCommand interface{ testerFile() string }

// enter runs the program again, as root in a user namespace, if an ordinary user started
// it with a command that needs that.
func (a *app) enter(ctx context.Context, command any) error {
	cmd, ok := command.(daemonCommand)
	if !ok || os.Geteuid() == 0 {
		return nil
	}
	var tester *compiler.Tester
	if name := cmd.testerFile(); name != "" {
		var err error
		if tester, _, err = compiler.LoadTester(name); err != nil {
			return nil // the command reports everything that is wrong with it
		}
	}
	o := a.options(tester)
	root, state := containerd.DefaultFolders()
	err := rootless.Enter(ctx, rootless.Options{Root: cmp.Or(o.Root, root), State: cmp.Or(o.State, state), Address: o.Address, Private: o.Address == containerd.NoAddress, Logger: o.Logger})
	if err != nil {
		return fmt.Errorf("%w: %w", runtime.ErrUnavailable, err)
	}
	return nil
}
