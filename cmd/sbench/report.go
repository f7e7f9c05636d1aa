package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
)

type reportCmd struct {
	RunDirs  []string `arg:"" name:"run-dir" help:"Output folders of runs. Each further one is compared with the first."`
	HTML     string   `name:"html" xor:"format" placeholder:"FILE" help:"Write one self-contained HTML file."`
	JSON     bool     `name:"json" xor:"format" help:"Print JSON."`
	Markdown bool     `xor:"format" help:"Print Markdown, as for a comment on a change."`
}

// Run sums up the records of runs.
func (cmd *reportCmd) Run(ctx context.Context, a *app) (err error) {
	var sources []*report.Source
	defer func() {
		for _, s := range sources {
			err = errors.Join(err, s.Close())
		}
	}()
	for _, dir := range cmd.RunDirs {
		s, err := report.Open(ctx, dir)
		if errors.Is(err, report.ErrNoRun) {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	r := report.Summarize(sources)
	if err := complain(a.stderr, r); err != nil {
		return err
	}
	switch {
	case cmd.JSON:
		return a.json(r)
	case cmd.Markdown:
		return report.WriteMarkdown(a.stdout, r)
	case cmd.HTML != "":
		return cmd.page(ctx, a, r, sources)
	}
	return report.WriteText(a.stdout, r)
}

// complain says on standard error what could not be read.
func complain(w io.Writer, r report.Report) error {
	for _, run := range r.Runs {
		for _, p := range run.Problems {
			if _, err := fmt.Fprintf(w, "sbench: %s: %s\n", report.Visible(run.Dir, 400), report.Visible(p.String(), 400)); err != nil {
				return err
			}
		}
	}
	return nil
}

// page writes the file whole or not at all.
func (cmd *reportCmd) page(ctx context.Context, a *app, r report.Report, sources []*report.Source) error {
	f, err := os.CreateTemp(filepath.Dir(cmd.HTML), ".sbench-report-*")
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	size, err := page.Write(ctx, f, r, sources, page.Options{})
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), cmd.HTML); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "wrote %s: %s\n", cmd.HTML, report.Bytes(float64(size)))
	return err
}
