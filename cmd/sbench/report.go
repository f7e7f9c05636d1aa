package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
	"github.com/securebench/sbench/run/record"
)

type reportCmd struct {
	RunDirs  []string `arg:"" name:"run-dir" help:"Output directories of runs. Each further one is compared with the first."`
	HTML     string   `name:"html" xor:"format" placeholder:"FILE" help:"Write one self-contained HTML file."`
	JSON     bool     `name:"json" xor:"format" help:"Print JSON."`
	Markdown bool     `xor:"format" help:"Print Markdown, as for a comment on a change."`
	Key      string   `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the end of the records."`

	AcceptUnsigned bool `help:"Sum up records that are damaged, or not signed by --key. The report says so."`
}

// Run sums up the records of runs.
func (cmd *reportCmd) Run(ctx context.Context, a *app) (err error) {
	var sources []*report.Source
	defer func() {
		for _, s := range sources {
			err = errors.Join(err, s.Close())
		}
	}()
	key, err := publicKey(cmd.Key)
	if err != nil {
		return err
	}
	for _, dir := range cmd.RunDirs {
		s, err := report.Open(ctx, dir)
		if errors.Is(err, report.ErrNoRun) {
			return fmt.Errorf("%w: %w", errUsage, err)
		}
		if err != nil {
			return err
		}
		sources = append(sources, s)
		if err := cmd.believe(s, key); err != nil {
			return err
		}
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

// believe refuses records that are damaged or not signed by key, unless --accept-unsigned
// is given: then the report mentions it. Without a key, the report also mentions that
// records have no seal, but they are not refused: a run in progress has none yet.
func (cmd *reportCmd) believe(s *report.Source, key ed25519.PublicKey) error {
	accepted, err := record.Read(s.Dir, record.Trust{Key: key}, func(record.Record) error { return nil })
	switch {
	case err == nil && accepted > 0:
		err = fmt.Errorf("the first %d records were accepted unsigned", accepted)
	case err == nil:
		return nil
	case !cmd.AcceptUnsigned && (key != nil || !errors.Is(err, record.ErrUnsigned)):
		return fmt.Errorf("%w: %s: %w: --accept-unsigned sums them up all the same", errUsage, s.Dir, err)
	}
	s.Problems = append(s.Problems, report.Problem{File: record.RecordsFile, Message: err.Error()})
	return nil
}

// complain prints what could not be read.
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

// page writes the HTML file as a whole or not at all.
func (cmd *reportCmd) page(ctx context.Context, a *app, r report.Report, sources []*report.Source) error {
	f, err := os.CreateTemp(filepath.Dir(cmd.HTML), ".sbench-report-*")
	if err != nil {
		return fmt.Errorf("%w: %w", errUsage, err)
	}
	defer func() { _ = os.Remove(f.Name()) }() // gone already if all went well
	err = errors.Join(page.Write(ctx, f, r, sources), f.Chmod(0o644))
	size, sizeErr := f.Seek(0, io.SeekCurrent)
	if err = errors.Join(err, sizeErr, f.Close()); err != nil {
		return err
	}
	if err := os.Rename(f.Name(), cmd.HTML); err != nil {
		return err
	}
	_, err = fmt.Fprintf(a.stdout, "wrote %s: %s\n", cmd.HTML, report.Bytes(float64(size)))
	return err
}
