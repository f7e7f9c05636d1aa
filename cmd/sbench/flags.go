package main

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/report/progress"
	"github.com/securebench/sbench/run/record"
)

// testerFlags name a tester file and override some of its keys. The help of --config is the command's.
type testerFlags struct {
	Config string `short:"c" placeholder:"FILE" help:"${config}"`
	setFlag
}

type setFlag struct {
	Set []string `sep:"none" placeholder:"KEY=VALUE" help:"Set a key of the tester file, as in --set runtime.limits.memory=2g. The value is text, or JSON where text is not allowed. Can be repeated."`
}

// testerArgs are testerFlags for commands that also take the file as an argument. A command can replace the help of the
// argument.
type testerArgs struct {
	File        string `arg:"" optional:"" name:"file" help:"${file}"`
	testerFlags `set:"config=Tester file, instead of the argument."`
	Model       string `short:"m" placeholder:"NAME" help:"The same as --set harness.config.model=NAME."`
}

// A testerSource says what a tester file is loaded from.
type testerSource struct {
	path     string // "" for none
	settings []testerfile.Setting
	variant  *testerfile.Variant // nil for the tester file itself
}

func (s testerSource) load() (*testerfile.File, compiler.Problems, error) {
	if s.variant != nil {
		return testerfile.LoadVariant(s.path, harness.AgentTypes(), *s.variant, s.settings...)
	}
	return testerfile.Load(s.path, harness.AgentTypes(), s.settings...)
}

// unlessReplaced returns an error for settings that another flag replaces.
func (s testerSource) unlessReplaced(by map[string]bool) (err error) {
	for _, set := range s.settings {
		if by[set.Key] {
			err = errors.Join(err, fmt.Errorf("%w: another flag replaces --set %s: give one of them", errUsage, set.Key))
		}
	}
	return err
}

func (f testerFlags) source() (testerSource, error) {
	s := testerSource{path: f.Config}
	for _, text := range f.Set {
		key, value, ok := strings.Cut(text, "=")
		switch {
		case !ok:
			return s, fmt.Errorf("%w: --set %s: write KEY=VALUE, as run.attempts=3", errUsage, text)
		case s.path == "":
			return s, fmt.Errorf("%w: --set %s needs a tester file, by --config", errUsage, text)
		}
		s.settings = append(s.settings, testerfile.Setting{Key: key, Value: value})
	}
	return s, nil
}

func (f testerArgs) source() (testerSource, error) {
	if (f.File == "") == (f.Config == "") {
		return testerSource{}, fmt.Errorf("%w: name one tester file, as an argument or by --config", errUsage)
	}
	f.Config = cmp.Or(f.File, f.Config)
	s, err := f.testerFlags.source()
	if f.Model != "" {
		s.settings = append(s.settings, testerfile.Setting{Key: "harness.config.model", Value: f.Model})
	}
	return s, err
}

type jsonFlag struct {
	JSON bool `name:"json" help:"Print JSON."`
}

// progressFlags say how the progress of attempts is shown.
type progressFlags struct {
	Progress progress.Format `enum:"auto,plain,json,none" default:"auto" help:"Progress on standard error. plain: lines. json: an object for each event. none: nothing. auto: plain, and on a terminal a bar below the lines."`
}

// attemptFlags are the flags of commands that make attempts.
type attemptFlags struct {
	Task   []string    `short:"t" placeholder:"GLOB" help:"Of the tasks that the tester file selects, only those whose id matches one of these patterns."`
	Jobs   int         `short:"j" placeholder:"N" help:"How many attempts to make at a time. Default: the tester file's, else as many as the cores allow. Fewer are made if memory, processes or disk space do not suffice."`
	Resume bool        `help:"Continue in an existing output directory. Attempts that are recorded with the same inputs are not made again."`
	Sign   *record.Key `placeholder:"KEY" help:"Sign the records with this ed25519 key (PKCS #8, PEM). With --resume, the same key must have signed the existing records."`
	shardFlags
	progressFlags
	JSON bool `name:"json" help:"Print the summary as JSON, or the plan."`

	AcceptUnsigned bool `help:"Accept the records that the command continues or grades even if they are incomplete, or not signed with the key. The new records say so."`
}

func notNegative(flag string, n int) error {
	if n < 0 {
		return fmt.Errorf("%w: %s %d is negative", errUsage, flag, n)
	}
	return nil
}
