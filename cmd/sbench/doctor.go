package main

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime/containerd"
)

type doctorCmd struct {
	onDaemon `kong:"-"`

	JSON bool `name:"json" help:"Print JSON."`
}

// Run prints a line for each finding; any error among them is exit code 3.
func (cmd *doctorCmd) Run(ctx context.Context, a *app) error {
	findings := containerd.Diagnose(ctx, a.options(nil))
	bad := 0
	for _, f := range findings {
		if f.Severity == containerd.Error {
			bad++
		}
	}
	if cmd.JSON {
		if err := a.json(findings); err != nil {
			return err
		}
	} else if err := printFindings(a, findings); err != nil {
		return err
	}
	if bad > 0 {
		return fmt.Errorf("%w: %d findings keep sandboxes from running", run.ErrInfrastructure, bad)
	}
	return nil
}

func printFindings(a *app, findings []containerd.Finding) error {
	w := tabwriter.NewWriter(a.stdout, 0, 4, 2, ' ', 0)
	for _, f := range findings {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%s\n", f.Severity, f.Check, f.Detail)
		if f.Cure != "" {
			_, _ = fmt.Fprintf(w, "\t\tcure: %s\n", f.Cure)
		}
	}
	return w.Flush()
}
