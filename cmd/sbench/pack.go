package main

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/pack"
)

type packCmd struct {
	Import packImportCmd `cmd:"" help:"Make a pack from the files of a public benchmark."`
	Check  packCheckCmd  `cmd:"" daemon:"" help:"Run each task with its reference solution, which must pass, and without any solution, which must fail."`
}

type packImportCmd struct {
	Format string `arg:"" help:"Format of the source: ${formats}."`
	pack.Options
	jsonFlag

	formats      []pack.Format
	kong.Plugins                  // the formats' options
	owners       map[any][]string // names of the formats that have an option, by the pointer to its field
}

// newPackImport returns the command with the options of all formats as flags.
func newPackImport(formats []pack.Format) packImportCmd {
	cmd := packImportCmd{formats: formats, owners: map[any][]string{}}
	for _, f := range formats {
		if f.Options == nil {
			continue
		}
		if !slices.Contains(cmd.Plugins, f.Options) {
			cmd.Plugins = append(cmd.Plugins, f.Options)
		}
		options := reflect.ValueOf(f.Options).Elem()
		for i := range options.NumField() {
			field := options.Field(i).Addr().Interface()
			cmd.owners[field] = append(cmd.owners[field], f.Name)
		}
	}
	return cmd
}

// checkFlags refuses a flag that only other formats have.
func (cmd *packImportCmd) checkFlags(given []*kong.Path) error {
	for _, path := range given {
		if path.Flag == nil {
			continue
		}
		owners := cmd.owners[path.Flag.Target.Addr().Interface()]
		if len(owners) > 0 && !slices.Contains(owners, cmd.Format) {
			return fmt.Errorf("%w: --%s is for %s, not for %s", errUsage, path.Flag.Name, strings.Join(owners, " and "), cmd.Format)
		}
	}
	return nil
}

// Run makes the pack, and prints on standard error what was left out and what to note.
func (cmd *packImportCmd) Run(ctx context.Context, a *app, line *kong.Context) error {
	format, err := pack.Named(cmd.formats, cmd.Format)
	if err != nil {
		return marked(errUsage, err)
	}
	if err := cmd.checkFlags(line.Path); err != nil {
		return err
	}
	if err := notNegative("--limit", cmd.Limit); err != nil {
		return err
	}
	cmd.Agents = harness.AgentTypes()
	report, err := pack.Import(ctx, format, cmd.Options)
	if err != nil {
		return err
	}
	return cmd.print(a, report)
}

func (cmd *packImportCmd) print(a *app, r pack.Report) error {
	if cmd.JSON {
		return a.json(r)
	}
	sayAll(a, "left out", r.Left)
	sayAll(a, "note", r.Notes)
	err := a.printf("imported %d task(s) into %s; left out %d\n", r.Tasks, r.Out, len(r.Left))
	if len(r.Images) > 0 {
		err = errors.Join(err, a.printf("%d image(s) to build: sbench image build --pack %s\n", len(r.Images), r.Out))
	}
	return err
}
