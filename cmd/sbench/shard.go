package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// shardFlags are the flags of commands that can make a shard of a run.
type shardFlags struct {
	Shard string `env:"SBENCH_SHARD" placeholder:"I/N" help:"Run only part I of N of the attempts, in a directory of its own below the output directory. With auto/N, I is the index that Slurm or Kubernetes gave this job."`
}

// deal sets the shard, and the directory of its records.
func (f shardFlags) deal(t *testerfile.File, o *run.Options) error {
	if f.Shard == "" {
		return nil
	}
	shard, err := run.ParseShard(f.Shard, os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: --shard %s: %w", errUsage, f.Shard, err)
	}
	o.Shard, o.Output = &shard, filepath.Join(cmp.Or(o.Output, t.Run.OutputDir), shard.Dir())
	return nil
}

type mergeCmd struct {
	RunDirs   []string          `arg:"" name:"run-dir" help:"Output directories of shards, or the directory that contains them."`
	OutputDir string            `short:"o" required:"" placeholder:"DIR" help:"Directory for the whole run. It may hold an earlier merge, which is brought up to date."`
	Key       ed25519.PublicKey `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed every shard."`
	Sign      *record.Key       `placeholder:"KEY" help:"Sign the records with this ed25519 key (PKCS #8, PEM)."`
	Private   bool              `help:"Also merge what verifiers printed, where the shards have it. It can contain hidden tests."`
	JSON      bool              `name:"json" help:"Print what was merged as JSON."`
}

// Run merges the shards. If attempts are missing, the exit code is 3.
func (cmd *mergeCmd) Run(ctx context.Context, a *app) error {
	var merged record.MergeReport
	dirs, err := run.ShardDirs(cmd.RunDirs)
	if err == nil {
		merged, err = record.Merge(ctx, dirs, cmd.OutputDir, record.MergeOptions{Key: cmd.Key, Sign: cmd.Sign, Private: cmd.Private})
	}
	switch {
	case errors.Is(err, record.ErrDamaged):
		return marked(errNotVerified, err)
	case errors.Is(err, record.ErrShards), errors.Is(err, record.ErrExists):
		return err
	case err != nil:
		return marked(run.ErrInfrastructure, err)
	}
	missing := merged.Planned - merged.Attempts
	if err := cmd.print(a, merged); err != nil || missing <= 0 {
		return err
	}
	return fmt.Errorf("%w: %d of %d attempts are missing", run.ErrInfrastructure, missing, merged.Planned)
}

func (cmd *mergeCmd) print(a *app, m record.MergeReport) error {
	if cmd.JSON {
		return a.json(m)
	}
	sayAll(a, "missing", m.Missing)
	return a.printf("sbench: run_id=%s shards=%d of %d attempts=%d of %d records=%d output=%s\n",
		m.RunID, m.Shards, m.Count, m.Attempts, m.Planned, m.Records, cmd.OutputDir)
}
