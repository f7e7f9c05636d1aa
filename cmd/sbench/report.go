package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"strings"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/export"
	"github.com/securebench/sbench/report/page"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

// runDirs names the directories of runs to sum up.
type runDirs struct {
	RunDirs []string          `arg:"" name:"run-dir" help:"Output directories of runs. Each further one is compared with the first."`
	Key     ed25519.PublicKey `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the records."`

	Private        bool `help:"Show what verifiers printed, where the private part of the run is there. It can contain hidden tests: do not publish the result."`
	AcceptUnsigned bool `help:"Sum up records even if they are damaged, or not signed by --key. The report says so."`
}

// requireFlag is the weakest assurance with which a pass counts.
type requireFlag struct {
	Require verifiers.Assurance `enum:",sealed,contrasted" default:"" placeholder:"ASSURANCE" help:"Count a pass only if it is at least this sure: sealed, or contrasted. The records stay as they are."`
}

type reportCmd struct {
	runDirs
	HTML     string `name:"html" placeholder:"FILE" help:"Write one self-contained HTML file."`
	JUnit    string `name:"junit" placeholder:"FILE" help:"Write JUnit XML, a case for each attempt."`
	CSV      string `name:"csv" placeholder:"FILE" help:"Write a table with a line for each attempt."`
	Harbor   string `name:"harbor" placeholder:"DIR" help:"Make a job directory as Harbor does, for its viewer: a trial for each attempt, with trajectories in ATIF 1.7."`
	Inspect  string `name:"inspect" placeholder:"FILE" help:"Write a log of Inspect, for its viewer: a sample for each attempt. It is about one run."`
	JSON     bool   `name:"json" xor:"format" help:"Print JSON."`
	Markdown bool   `xor:"format" help:"Print Markdown, for example for a comment on a change."`
	requireFlag
	FailUnder *float64 `placeholder:"PERCENT" help:"Exit with code 5 if fewer than PERCENT % of a run's attempts passed. Attempts without a verdict, and planned attempts without a record, count as not passed."`
}

func (cmd *reportCmd) Run(ctx context.Context, a *app) (err error) {
	if under := cmd.FailUnder; under != nil && (math.IsNaN(*under) || *under < 0 || *under > 100) {
		return fmt.Errorf("%w: --fail-under %v is not between 0 and 100", errUsage, *under)
	}
	if cmd.Inspect != "" && len(cmd.RunDirs) > 1 {
		return fmt.Errorf("%w: --inspect: a log of Inspect is about one run: name one", errUsage)
	}
	if cmd.Private && cmd.HTML+cmd.Harbor == "" {
		return fmt.Errorf("%w: --private is for --html and --harbor: no other form has what verifiers printed (sbench show has, too)", errUsage)
	}
	sources, err := cmd.open(ctx)
	defer func() { err = errors.Join(err, report.CloseAll(sources)) }()
	if err != nil {
		return err
	}
	for _, s := range sources {
		s.Require(cmd.Require)
	}
	r := report.Summarize(sources)
	for _, run := range r.Runs {
		sayAll(a, run.Dir, run.Problems)
	}
	if err := cmd.files(ctx, a, r, sources); err != nil {
		return err
	}
	switch {
	case cmd.JSON:
		err = a.json(r)
	case cmd.Markdown:
		err = text.WriteMarkdown(a.stdout, r)
	case cmd.HTML+cmd.JUnit+cmd.CSV+cmd.Harbor+cmd.Inspect == "":
		err = text.Write(a.stdout, r)
	}
	if below := r.Below(cmd.FailUnder); len(below) > 0 {
		err = errors.Join(err, fmt.Errorf("%w %v: %s", errBelow, *cmd.FailUnder, strings.Join(below, "; ")))
	}
	return err
}

// open opens the runs' directories. The caller closes the sources, also after an error.
func (cmd *runDirs) open(ctx context.Context) ([]*report.Source, error) {
	sources, err := report.OpenAll(ctx, cmd.RunDirs, report.OpenOptions{Key: cmd.Key, AcceptUnsigned: cmd.AcceptUnsigned, Private: cmd.Private})
	if errors.Is(err, report.ErrUntrusted) {
		err = fmt.Errorf("%w: --accept-unsigned sums them up all the same", err)
	}
	return sources, err
}

// errBelow means that a run passed less than --fail-under asks for.
var errBelow = errors.New("below --fail-under")

// files writes the requested files, and prints their names where the report itself is not printed.
func (cmd *reportCmd) files(ctx context.Context, a *app, r report.Report, sources []*report.Source) error {
	say := a.stdout
	if cmd.JSON || cmd.Markdown {
		say = a.stderr
	}
	for _, form := range []struct {
		name  string
		write func(io.Writer) error
	}{
		{cmd.HTML, func(w io.Writer) error { return page.Page{Report: r, Sources: sources}.Write(ctx, w) }},
		{cmd.JUnit, func(w io.Writer) error { return export.JUnit(w, r, sources) }},
		{cmd.CSV, func(w io.Writer) error { return export.CSV(w, r, sources) }},
		{cmd.Inspect, func(w io.Writer) error { return export.Inspect(ctx, w, sources[0]) }},
	} {
		if form.name == "" {
			continue
		}
		mode := fs.FileMode(0o644)
		if cmd.Private {
			mode = 0o600
		}
		size, err := workspace.ReplaceFile(form.name, mode, form.write)
		if err != nil {
			return marked(errUsage, err)
		}
		if _, err := fmt.Fprintf(say, "wrote %s: %s\n", form.name, report.Bytes(float64(size))); err != nil {
			return err
		}
	}
	if cmd.Harbor == "" {
		return nil
	}
	if err := export.Harbor(ctx, cmd.Harbor, sources); err != nil {
		return marked(errUsage, err)
	}
	_, err := fmt.Fprintf(say, "wrote %s\n", cmd.Harbor)
	return err
}
