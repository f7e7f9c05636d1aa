package main

import (
	"cmp"
	"context"
	"os"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/runtime/rootless"
)

// enter runs the program again, as root in a user namespace, if an ordinary user started a command with the tag
// daemon. The command's tester file may name the daemon.
func (a *app) enter(ctx context.Context, command *kong.Node) error {
	if os.Geteuid() == 0 || !command.Tag.Has("daemon") && !command.Parent.Tag.Has("daemon") {
		return nil
	}
	var tester *compiler.Tester
	if c, ok := command.Target.Addr().Interface().(interface{ source() (testerSource, error) }); ok {
		s, err := c.source()
		if err == nil && s.path != "" {
			tester, _, err = s.load()
		}
		if err != nil {
			return nil // the command reports everything that is wrong with it
		}
	}
	o := a.options(tester)
	root, state := containerd.DefaultDirectories()
	err := rootless.Enter(ctx, rootless.Options{Root: cmp.Or(o.Root, root), State: cmp.Or(o.State, state), Address: o.Address, Private: o.Address == containerd.NoAddress, Logger: o.Logger})
	return marked(runtime.ErrUnavailable, err)
}
