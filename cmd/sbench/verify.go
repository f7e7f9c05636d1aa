package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

type verifyCmd struct {
	RunDir string `arg:"" name:"run-dir" help:"Output directory of a run."`
	Key    string `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the records."`
	jsonFlag
}

// errNotVerified means that the records are not what was written.
var errNotVerified = errors.New("the run is not what was written")

// keyFrom loads a key from the file that a flag names; the key is nil if name is "".
func keyFrom[K any](flag, name string, load func(name string) (K, error)) (key K, err error) {
	if name == "" {
		return key, nil
	}
	if key, err = load(name); err != nil {
		err = fmt.Errorf("%w: %s: %w", errUsage, flag, err)
	}
	return key, err
}

// Run prints the findings. If one of them is not a note, the exit code is 4.
func (cmd *verifyCmd) Run(ctx context.Context, a *app) error {
	key, err := keyFrom("--key", cmd.Key, record.LoadPublicKey)
	if err != nil {
		return err
	}
	v, err := record.Verify(ctx, cmd.RunDir, key)
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
	case v.Sealed && cmd.Key == "":
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
