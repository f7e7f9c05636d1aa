package main

import (
	"context"
	"crypto/ed25519"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/predictions"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

type gradeCmd struct {
	Source      string `arg:"" name:"source" help:"What to verify: the output directory of a run; a file of predictions in JSONL or JSON (of SWE-bench, HumanEval or SecureBench, or other objects with an id and an answer); or a directory with a file or directory for each task, named after the task."`
	testerFlags `set:"config=Tester file. Its pack, runtime and verification sections are used; its harness does not run. Required."`
	OutputDir   string            `short:"o" required:"" placeholder:"DIR" help:"Directory for the new records."`
	Extract     string            `enum:"none,fenced" default:"none" help:"How code is found in predictions. none: the whole text is code, unless the task says otherwise. fenced: the code is in Markdown fences, or is the body of the last function of the starter code."`
	Key         ed25519.PublicKey `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the records of the run."`
	attemptFlags
}

func (cmd *gradeCmd) Run(ctx context.Context, a *app) error {
	if cmd.Config == "" {
		return fmt.Errorf("%w: name the tester file by --config", errUsage)
	}
	r := &runCmd{testerArgs: testerArgs{testerFlags: cmd.testerFlags}, attemptFlags: cmd.attemptFlags, OutputDir: cmd.OutputDir, Retries: 1, graded: cmd}
	return r.Run(ctx, a)
}

// read sets the options for a run of the candidates, and returns the producer of predictions; nil for a run's.
func (cmd *gradeCmd) read(ctx context.Context, a *app, pack *compiler.Pack, o *run.Options) (harness.Producer, error) {
	isRun, err := record.IsRun(cmd.Source)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUsage, err)
	}
	if isRun && cmd.Extract == family.Fenced {
		return nil, fmt.Errorf("%w: --extract is for predictions, and %q is a run", errUsage, cmd.Source)
	}
	if isRun {
		original, err := run.ReadOriginal(cmd.Source, record.Trust{Key: cmd.Key, AcceptUnsigned: cmd.AcceptUnsigned})
		if err == nil {
			o.Rejudge(original)
		}
		return nil, err
	}
	if cmd.Key != nil || cmd.AcceptUnsigned && !cmd.Resume {
		return nil, fmt.Errorf("%w: --key and --accept-unsigned are for a run's directory, and %q is none", errUsage, cmd.Source)
	}
	source := cmd.Source
	if records := filepath.Join(source, record.RecordsFile); exists(records) {
		source = records
	}
	set, err := predictions.Read(ctx, source, pack, cmd.Extract == family.Fenced)
	if err != nil {
		return nil, err
	}
	without := 0
	for task, err := range pack.Tasks() {
		if err == nil && len(set.Candidates[task.ID()]) == 0 && (o.Select == nil || o.Select(task.ID())) {
			without++
		}
	}
	if without > 0 {
		a.say(slog.LevelWarn, fmt.Sprintf("%d of the selected tasks have no candidate, and count as failed (--task selects other tasks)", without))
	}
	o.Attempts, o.CandidatesExist = set.Attempts(), true
	return set, nil
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
