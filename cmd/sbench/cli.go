package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/cmd/sbench/interrupt"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/build"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/progress"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/site"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/workspace"
)

// Exit codes; see exitCodes for their meaning.
const (
	codeMeasured       = 0
	codeBug            = 1
	codeUsage          = 2
	codeInfrastructure = 3
	codeNotVerified    = 4
	codeBelow          = 5
	codeInterrupted    = 130
)

const exitCodes = "Exit codes: 0 measured; 1 a bug in sbench; 2 wrong usage or configuration, and nothing ran; 3 infrastructure errors, or tasks that could not be prepared; 4 records were changed or damaged (verify, merge); 5 fewer attempts passed than report --fail-under asks for; 130 interrupted."

// cli is the command line. A command with the tag daemon talks to a daemon.
type cli struct {
	globals      `group:"Flags of all commands:"`
	PrintVersion kong.VersionFlag `name:"version" group:"Flags of all commands:" help:"Print the version."`

	Run      runCmd      `cmd:"" daemon:"" help:"Run a benchmark and record the verdicts."`
	Grade    gradeCmd    `cmd:"" daemon:"" help:"Verify candidates that exist already: from a run, from predictions, or from agents that ran elsewhere."`
	Job      jobCmd      `cmd:"" help:"Print the job with which a cluster runs the shards of a run."`
	Merge    mergeCmd    `cmd:"" help:"Put the shards of a run together."`
	Report   reportCmd   `cmd:"" help:"Sum up the records of runs, and compare runs."`
	Show     showCmd     `cmd:"" help:"Show one attempt of a run: how it ended, and what the agent wrote and did."`
	Init     initCmd     `cmd:"" help:"Write a tester file and a small pack to start from."`
	View     viewCmd     `cmd:"" help:"Serve the HTML report of runs on loopback, live while they go on."`
	Validate validateCmd `cmd:"" help:"Check tester files and packs, and list everything that is wrong with them."`
	Schema   schemaCmd   `cmd:"" help:"Print the JSON schema of tester files, manifests or rows."`
	Inspect  inspectCmd  `cmd:"" help:"Show which component sees which file and value of a task."`
	Spec     specCmd     `cmd:"" daemon:"" help:"Print the OCI runtime specification that a task's sandbox would get."`
	Harness  harnessCmd  `cmd:"" help:"Fetch, list and remove agent CLIs."`
	Pack     packCmd     `cmd:"" help:"Import packs, and check that they measure something."`
	Image    imageCmd    `cmd:"" daemon:"" help:"List, fetch, import, name and remove images."`
	Doctor   doctorCmd   `cmd:"" daemon:"" help:"Show what this host can enforce, and how to fix what it cannot."`
	GC       gcCmd       `cmd:"" daemon:"" name:"gc" help:"Remove the sandboxes and files that killed runs left behind."`
	Verify   verifyCmd   `cmd:"" help:"Check that a run's records are what was written."`
	Version  versionCmd  `cmd:"" help:"Print the version."`
	Help     helpCmd     `cmd:"" help:"Print the help of a command."`

	Completion completionCmd `cmd:"" help:"Print a script that completes sbench's command lines in a shell."`
	Man        manCmd        `cmd:"" hidden:"" help:"Print the manual page."`
}

// globals are the flags of all commands. Most concern only those that talk to a daemon.
type globals struct {
	host.Flags

	Debug     bool   `help:"Log what is being done, on standard error."`
	LogFormat string `enum:"text,json" default:"text" env:"SBENCH_LOG_FORMAT" help:"Format of the log, and of warnings and the error at the end: text or json, one object a line."`
}

// app is passed to every command.
type app struct {
	flags          globals
	stdout, stderr io.Writer
	interrupts     *interrupt.Interruption
	display        *progress.Display // in front of stderr; nil if no progress is shown
}

func (a *app) logger() *slog.Logger {
	options := &slog.HandlerOptions{Level: slog.LevelWarn}
	if a.flags.Debug {
		options.Level = slog.LevelDebug
	}
	if a.flags.LogFormat == "json" {
		return slog.New(slog.NewJSONHandler(a.stderr, options))
	}
	return slog.New(slog.NewTextHandler(a.stderr, options))
}

// say prints a message for the user: as lines, or as a log record if the log is JSON. It escapes
// control characters, since the message may quote output of an image's program.
func (a *app) say(level slog.Level, text string) {
	if a.flags.LogFormat == "json" {
		a.logger().Log(context.Background(), level, text)
		return
	}
	for line := range strings.Lines("sbench: " + text) {
		_, _ = fmt.Fprintln(a.stderr, report.Visible(strings.TrimSuffix(line, "\n"), len(line)))
	}
}

// maxListed bounds what sayAll says of a list.
const maxListed = 20

// sayAll says the first items of a list, each in one line that begins with what they are.
func sayAll[T any](a *app, what string, list []T) {
	for i, item := range list {
		if i == maxListed {
			a.say(slog.LevelWarn, fmt.Sprintf("%s: … and %d more", what, len(list)-i))
			break
		}
		a.say(slog.LevelWarn, what+": "+report.Visible(fmt.Sprint(item), report.ShownLine))
	}
}

// options returns the runtime's options from the flags, else from the tester file t, which may be nil.
func (a *app) options(t *testerfile.File) host.Options {
	o := host.Options{Flags: a.flags.Flags, Logger: a.logger()}
	if t != nil {
		o.Address, o.Namespace = cmp.Or(o.Address, t.Runtime.Address), cmp.Or(o.Namespace, t.Runtime.Namespace)
		o.OCIRuntime, o.Isolation = cmp.Or(o.OCIRuntime, t.Runtime.OCIRuntime), cmp.Or(o.Isolation, t.Runtime.Isolation)
		o.Snapshotter = t.Runtime.Snapshotter
		o.AllowDegraded = slices.Concat(o.AllowDegraded, t.Runtime.AllowDegraded)
		o.UserNamespace = t.Runtime.UserNamespace
		o.AllowSeccomp, o.AllowNetlink = t.Runtime.AllowSeccomp, t.Runtime.AllowNetlink
	}
	return o
}

// A resultWriter is standard output. Its errors are no bugs of sbench. What nobody reads is no error: the reader, such as
// head, has ended.
type resultWriter struct{ io.Writer }

func (r resultWriter) Write(p []byte) (int, error) {
	n, err := r.Writer.Write(p)
	if errors.Is(err, unix.EPIPE) {
		return len(p), nil
	}
	return n, marked(run.ErrInfrastructure, err)
}

// open connects to the daemon. It sets the umask to 022, so that the other users that sandboxes are can read
// the files made for them; directories of mode 0700 keep out the host's users. From now on, the process does not
// end when nobody reads what it prints: it has to remove its sandboxes.
func (a *app) open(ctx context.Context, t *testerfile.File) (*host.Host, error) {
	unix.Umask(0o022)
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // unlike signal.Ignore, not for the programs that it starts
	return host.Open(ctx, a.options(t))
}

// connect is open, and then removes the sandboxes and files of dead runs. The caller closes the client.
func (a *app) connect(ctx context.Context, t *testerfile.File) (*host.Host, error) {
	c, err := a.open(ctx, t)
	if err != nil {
		return nil, err
	}
	gone, err := c.GC(ctx)
	if err != nil {
		return nil, errors.Join(err, c.Close(ctx))
	}
	if len(gone.Removed) > 0 {
		a.logger().Warn("removed what dead runs left behind", "runs", gone.Removed)
	}
	for _, left := range gone.Left {
		a.logger().Warn("something that a dead run left is still there", "cause", left)
	}
	return c, nil
}

// withClient calls f with a client that connect returns.
func (a *app) withClient(ctx context.Context, t *testerfile.File, f func(*host.Host) error) error {
	c, err := a.connect(ctx, t)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close(ctx))
}

// openSite connects to the daemon, and completes base with what needs one. The caller calls the returned function.
func (a *app) openSite(ctx context.Context, plan run.Plan, base run.Site) (run.Site, func() error, error) {
	c, err := a.connect(ctx, plan.Tester)
	if err != nil {
		return base, nil, err
	}
	base.Version = site.Version(version)
	s, end, err := site.Open(ctx, c, plan, base)
	if err != nil {
		return base, nil, errors.Join(err, c.Close(ctx))
	}
	return s, func() error { return errors.Join(end(ctx), c.Close(ctx)) }, nil
}

// progress returns the function that shows the events of a run on standard error; nil to show none. The caller calls it
// before anything is written to standard error.
func (a *app) progress(format progress.Format, also ...run.Kind) func(run.Event) {
	if format == progress.None {
		return nil
	}
	if a.display == nil {
		a.display = progress.New(a.stderr, format)
		a.stderr = a.display
		a.interrupts.SetOutput(a.display)
	}
	return a.display.Show(also...)
}

// endProgress ends the bar, so that results and errors can be printed.
func (a *app) endProgress() {
	if a.display != nil {
		a.display.Close()
	}
}

func (a *app) printf(format string, args ...any) error {
	_, err := fmt.Fprintf(a.stdout, format, args...)
	return err
}

func (a *app) json(v any) error {
	enc := json.NewEncoder(a.stdout)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

// printTable prints a line for each item and aligns the columns, which end with tabs.
func printTable[T any](a *app, list []T, line func(T) string) error {
	w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	for _, item := range list {
		_, _ = fmt.Fprintln(w, line(item)) // an error comes back from Flush
	}
	return w.Flush()
}

// printList prints a list: as JSON, or as printTable does.
func printList[T any](a *app, asJSON bool, list []T, line func(T) string) error {
	if asJSON {
		return a.json(append([]T{}, list...))
	}
	return printTable(a, list, line)
}

// exitCode is the one place that maps errors to codes.
func exitCode(ctx context.Context, err error) int {
	var problems compiler.Problems
	switch {
	case err == nil:
		return codeMeasured
	case ctx.Err() != nil, errors.Is(err, context.Canceled), errors.Is(err, run.ErrStopped):
		return codeInterrupted
	case errors.Is(err, errNotVerified):
		return codeNotVerified
	case errors.As(err, &problems), errors.Is(err, errUsage), errors.Is(err, report.ErrUntrusted), errors.As(err, new(build.Fault)),
		errors.Is(err, report.ErrNoRun), errors.Is(err, harness.ErrNoAgent), errors.Is(err, workspace.ErrNoTask),
		errors.Is(err, record.ErrShards), errors.Is(err, record.ErrExists):
		return codeUsage
	case errors.Is(err, errBelow):
		return codeBelow
	case errors.Is(err, run.ErrInfrastructure), errors.Is(err, run.ErrLeftOut), errors.Is(err, runtime.ErrUnavailable),
		errors.Is(err, harness.ErrProvider), errors.Is(err, harness.ErrNotInstalled), errors.Is(err, harness.ErrPreparation):
		return codeInfrastructure
	case errors.Is(err, runtime.ErrNotFound), errors.Is(err, runtime.ErrInvalid):
		return codeUsage
	}
	return codeBug
}

// errUsage marks errors that the user can fix in the command line.
var errUsage = errors.New("usage")

// marked puts an error that exitCode knows before err. It returns nil for nil.
func marked(as, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", as, err)
}

// problemsPrinted is a usage error that sums up problems that have been printed already.
type problemsPrinted string

func (s problemsPrinted) Error() string { return string(s) }

func (problemsPrinted) Unwrap() error { return errUsage }
