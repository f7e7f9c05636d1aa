package main

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"reflect"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

type verifyCmd struct {
	RunDir string            `arg:"" name:"run-dir" help:"Output directory of a run."`
	Key    ed25519.PublicKey `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the records."`
	jsonFlag
}

// errNotVerified means that the records are not what was written.
var errNotVerified = errors.New("the run is not what was written")

// keyMapper reads the value of a flag, a key, with load from the file that the flag names. The key is nil for the name "".
func keyMapper[K any](load func(name string) (K, error)) kong.MapperFunc {
	return func(ctx *kong.DecodeContext, target reflect.Value) error {
		var name string
		if err := ctx.Scan.PopValueInto("file", &name); err != nil || name == "" {
			return err
		}
		key, err := load(name)
		target.Set(reflect.ValueOf(key))
		return err
	}
}

// Run prints the findings. If one of them is not a note, the exit code is 4.
func (cmd *verifyCmd) Run(ctx context.Context, a *app) error {
	v, err := record.Verify(ctx, cmd.RunDir, cmd.Key)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("not the directory of a run: %s: %w", cmd.RunDir, err)
	}
	if err != nil {
		return marked(errUsage, err)
	}
	if err := cmd.print(a, v); err != nil || v.OK() {
		return err
	}
	return errNotVerified
}

func (cmd *verifyCmd) print(a *app, v record.Verification) error {
	if cmd.JSON {
		return a.json(v)
	}
	err := printTable(a, v.Findings, func(f record.Finding) string { return report.Visible(f.String(), report.ShownLine) })
	state := "not sealed"
	switch {
	case v.Signed:
		state = "sealed and signed"
	case v.Sealed && cmd.Key == nil:
		state = "sealed, no signature checked"
	case v.Sealed:
		state = "sealed"
	}
	word := "is what was written"
	switch {
	case !v.OK():
		word = "is NOT what was written"
	case !v.Sealed:
		word = "is what was written, but more may be missing at the end"
	}
	return errors.Join(err, a.printf("%d records, %s: %s\n", v.Records, state, word))
}
