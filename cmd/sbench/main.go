// Command sbench runs untrusted agents on benchmark tasks in hardened sandboxes on containerd, verifies
// their candidates, and records the verdicts.
//
// cli.go lists the commands and maps errors to exit codes. Each command has a file of its name: a struct
// of flags with a method Run. The package parses, prints and connects the other packages; what a run
// does is in package run.
package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"

	"github.com/alecthomas/kong"
	containerdlog "github.com/containerd/log"
	kongcompletion "github.com/jotaen/kong-completion"

	"github.com/securebench/sbench/cmd/sbench/interrupt"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/pack/harbor"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/runtime/shim"
)

// version is set by the linker.
var version = "devel"

func main() {
	if filepath.Base(os.Args[0]) == shim.Program {
		os.Exit(shim.Main(version))
	}
	service.Inside()
	if err := rootless.Init(); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "sbench:", err)
		os.Exit(codeInfrastructure)
	}
	interrupts := interrupt.Watch(codeInterrupted)
	os.Exit(execute(interrupts, os.Args[1:], os.Stdout, os.Stderr))
}

// execute runs one command line and returns its exit code.
func execute(interrupts *interrupt.Interruption, args []string, stdout, stderr io.Writer) int {
	formats := append(pack.Formats(), harbor.Formats()...)
	c := cli{Pack: packCmd{Import: newPackImport(formats)}}
	ctx := interrupts.Context()
	app := &app{stdout: resultWriter{stdout}, stderr: stderr, interrupts: interrupts}
	exited := -1
	exit := func(code int) { exited = code }
	parser, err := kong.New(&c,
		kong.Name("sbench"),
		kong.Description("Run untrusted agents on benchmark tasks in hardened sandboxes on containerd.\n\n"+exitCodes),
		kong.Writers(stdout, stderr),
		kong.Exit(exit),
		helpVars(formats),
		kong.BindTo(ctx, (*context.Context)(nil)),
		kong.Bind(app),
		kong.BindToProvider(app.tools),
		kong.TypeMapper(reflect.TypeFor[ed25519.PublicKey](), keyMapper(record.LoadPublicKey)),
		kong.TypeMapper(reflect.TypeFor[*record.Key](), keyMapper(record.LoadKey)),
		kong.UsageOnError(),
	)
	if err != nil {
		_, _ = fmt.Fprintln(stderr, "sbench:", err)
		return codeBug
	}
	if os.Getenv("COMP_LINE") != "" { // a shell asks how that command line goes on
		if kongcompletion.Register(parser, kongcompletion.WithExitFunc(exit)); exited >= 0 {
			return exited
		}
	}
	if len(args) == 0 {
		_, _ = fmt.Fprint(stderr, firstSteps(parser.Model))
		return codeUsage
	}
	parsed, err := parser.Parse(args)
	if exited >= 0 { // --help or --version
		return exited
	}
	if err != nil {
		_, _ = fmt.Fprintf(stderr, "sbench: %v (see %s --help)\n", err, commandIn(err))
		return codeUsage
	}
	app.flags = c.globals
	// Libraries must not write to the operator's terminal: a message about a connection may contain data
	// from it (net/http, "Unsolicited response").
	log.SetOutput(io.Discard)
	// The containerd client logs each failed request of a pull, and each answer that comes after its call
	// was canceled. The returned errors say the same.
	if err = containerdlog.SetLevel("fatal"); err == nil {
		err = app.enter(ctx, parsed.Selected())
	}
	if err == nil {
		err = parsed.Run()
	}
	app.endProgress()
	if err != nil {
		app.say(slog.LevelError, err.Error())
	}
	return exitCode(ctx, err)
}

// commandIn returns the command that the user wrote, if kong found an error in its arguments.
func commandIn(err error) string {
	if parse := new(kong.ParseError); errors.As(err, &parse) {
		if node := parse.Context.Selected(); node != nil {
			return node.FullPath()
		}
	}
	return "sbench"
}

func helpVars(formats []pack.Format) kong.Vars {
	return kong.Vars{
		"version": versionLine(),
		"file":    "Tester file.",
		"agents":  joined(harness.CLIs(), " or ", func(c harness.CLI) string { return c.Name }),
		"formats": joined(formats, ", ", func(f pack.Format) string { return f.Name }),
	}
}

// enter runs the program again, as root in a user namespace, if an ordinary user started a command with the tag
// daemon. The command's tester file may name the daemon.
func (a *app) enter(ctx context.Context, command *kong.Node) error {
	if os.Geteuid() == 0 || !command.Tag.Has("daemon") && !command.Parent.Tag.Has("daemon") {
		return nil
	}
	var tester *testerfile.File
	if c, ok := command.Target.Addr().Interface().(interface{ source() (testerSource, error) }); ok {
		s, err := c.source()
		if err == nil && s.path != "" && !isDirectory(s.path) {
			tester, _, err = s.load()
		}
		if err != nil {
			return nil // the command reports everything that is wrong with it
		}
	}
	o := a.options(tester)
	root, state := host.DefaultDirectories()
	err := rootless.Enter(ctx, rootless.Options{
		Root: cmp.Or(o.Root, root), State: cmp.Or(o.State, state), Address: o.Address, Private: o.Address == host.NoAddress, Logger: o.Logger,
	})
	return marked(runtime.ErrUnavailable, err)
}
