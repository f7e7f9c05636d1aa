package main

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/harness/predictions"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

type gradeCmd struct {
	testerFlags `set:"config=Tester file. Its pack, runtime and verification sections are used; its harness does not run. Required."`
	Predictions string   `short:"p" required:"" placeholder:"FILE" help:"Answers: SWE-bench's predictions, HumanEval's samples or other objects with an id and an answer, as JSONL or JSON; or a directory of what agents left, each part named after its task."`
	OutputDir   string   `short:"o" required:"" placeholder:"DIR" help:"Directory for records and workspaces."`
	Task        []string `short:"t" placeholder:"GLOB" help:"Only the tasks whose id matches one of these patterns."`
	Jobs        int      `short:"j" placeholder:"N" help:"How many candidates to verify at a time. Default: the tester file's, else as many as the cores allow."`
	Resume      bool     `help:"Continue in an existing output directory. What is recorded with the same inputs is not judged again."`
	Sign        string   `placeholder:"KEY" help:"Sign the end of the records with this ed25519 key (PKCS #8, PEM)."`
	shardFlags
	progressFlags
	JSON bool `name:"json" help:"Print the summary as JSON."`
}

func (cmd *gradeCmd) Run(ctx context.Context, a *app) error {
	if cmd.Config == "" {
		return fmt.Errorf("%w: name the tester file by --config", errUsage)
	}
	r := &runCmd{
		testerArgs: testerArgs{testerFlags: cmd.testerFlags}, predictions: cmd.Predictions, OutputDir: cmd.OutputDir, Task: cmd.Task,
		Jobs: cmd.Jobs, Resume: cmd.Resume, Sign: cmd.Sign, Retries: 1, shardFlags: cmd.shardFlags, progressFlags: cmd.progressFlags, JSON: cmd.JSON,
	}
	return r.Run(ctx, a)
}

// existing sets up a run of candidates that exist already.
func (cmd *runCmd) existing(ctx context.Context, a *app, cfg *run.Config) error {
	read := func() (*predictions.Set, error) { return predictions.Read(ctx, cmd.predictions, cfg.Pack) }
	if cmd.From != "" {
		read = func() (*predictions.Set, error) { return candidatesOf(ctx, cmd.From, cfg.Trust) }
	}
	set, err := read()
	if err != nil {
		return err
	}
	without := 0
	for task, err := range cfg.Pack.Tasks() {
		if err == nil && len(set.Candidates[task.ID()]) == 0 && (cfg.Select == nil || cfg.Select(task.ID())) {
			without++
		}
	}
	if without > 0 {
		a.say(slog.LevelWarn, fmt.Sprintf("%d of the selected tasks have no candidate, and count as failed (--task selects others)", without))
	}
	cfg.Producer, cfg.Attempts = set, set.Attempts()
	return nil
}

// candidatesOf returns the candidates of a run, of each attempt the last.
func candidatesOf(ctx context.Context, dir string, trust record.Trust) (*predictions.Set, error) {
	type attempt struct {
		task   string
		number int
	}
	last, most := map[attempt]record.Record{}, map[string]int{}
	seal, err := record.Read(dir, trust, func(r record.Record) error {
		last[attempt{r.TaskID, r.Attempt}] = r
		most[r.TaskID] = max(most[r.TaskID], r.Attempt)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, record.RecordsFile), err)
	}
	set := &predictions.Set{Candidates: map[string][]candidate.Candidate{}, Digest: seal.Last}
	for id, n := range most {
		for number := 1; number <= n; number++ {
			rec, ok := last[attempt{id, number}]
			if !ok || rec.CandidateDigest == "" {
				continue
			}
			c, err := run.Stored(ctx, dir, rec)
			if err != nil {
				return nil, fmt.Errorf("%s: attempt %d of %q: %w", dir, number, id, err)
			}
			set.Candidates[id] = append(set.Candidates[id], c)
		}
	}
	return set, nil
}
