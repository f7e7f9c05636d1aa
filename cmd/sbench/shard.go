package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

// shardFlags are the flags of commands that can make a shard of a run.
type shardFlags struct {
	Shard string `env:"SBENCH_SHARD" placeholder:"I/N" help:"Run only part I of N of the attempts, in a directory of its own below the output directory. With auto, or auto/N, I is the index that Slurm or Kubernetes gave this job."`
}

// deal sets the shard, and the directory of its records.
func (f shardFlags) deal(t *testerfile.File, o *run.Options) error {
	if f.Shard == "" {
		return nil
	}
	index, count, err := parseShard(f.Shard, os.Getenv)
	if err != nil {
		return fmt.Errorf("%w: --shard %s: %w", errUsage, f.Shard, err)
	}
	o.Shard = &run.Shard{Index: index, Count: count}
	o.Output = filepath.Join(cmp.Or(o.Output, t.Run.OutputDir), shardDir(index, count))
	return nil
}

// shardDir returns the name of a shard's directory. Names sort as the shards do.
func shardDir(index, count int) string {
	return fmt.Sprintf("shard-%0*d-of-%d", len(strconv.Itoa(count)), index, count)
}

func parseShard(text string, getenv func(string) string) (index, count int, err error) {
	first, last, whole := strings.Cut(text, "/")
	if first != "auto" {
		index, err = strconv.Atoi(first)
	} else if index, err = jobIndex(getenv); err == nil && !whole {
		last, whole = getenv("SLURM_ARRAY_TASK_MAX"), getenv("SLURM_ARRAY_TASK_MIN") == "1"
		if !whole || getenv("SLURM_ARRAY_TASK_COUNT") != last {
			return 0, 0, errors.New("the number of parts is unknown: write auto/N, or use an array that begins with 1 and has no gaps")
		}
	}
	if err == nil {
		count, err = strconv.Atoi(last)
	}
	switch {
	case err != nil && first == "auto":
		return 0, 0, err
	case err != nil || !whole:
		return 0, 0, errors.New("expected I/N, such as 1/4, or auto")
	case count < 1 || index < 1 || index > count:
		return 0, 0, fmt.Errorf("there is no part %d of %d: parts are counted from 1", index, count)
	}
	return index, count, nil
}

// jobIndex returns this job's number, from 1, in an array of Slurm's or an Indexed Job of Kubernetes.
func jobIndex(getenv func(string) string) (int, error) {
	if text := getenv("SLURM_ARRAY_TASK_ID"); text != "" {
		return strconv.Atoi(text)
	}
	if text := getenv("JOB_COMPLETION_INDEX"); text != "" {
		n, err := strconv.Atoi(text)
		return n + 1, err
	}
	return 0, errors.New("neither SLURM_ARRAY_TASK_ID nor JOB_COMPLETION_INDEX is set")
}

type mergeCmd struct {
	RunDirs   []string `arg:"" name:"run-dir" help:"Output directories of shards, or the directory that contains them."`
	OutputDir string   `short:"o" required:"" placeholder:"DIR" help:"Directory for the whole run. It may hold an earlier merge, which is brought up to date."`
	Key       string   `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed every shard."`
	Sign      string   `placeholder:"KEY" help:"Sign the end of the records with this ed25519 key (PKCS #8, PEM)."`
	Private   bool     `help:"Also merge what verifiers printed, where the shards have it. It can contain hidden tests."`
	JSON      bool     `name:"json" help:"Print what was merged as JSON."`
}

// Run merges the shards. If attempts are missing, the exit code is 3.
func (cmd *mergeCmd) Run(ctx context.Context, a *app) error {
	key, err := keyFrom("--key", cmd.Key, record.LoadPublicKey)
	if err != nil {
		return err
	}
	sign, err := keyFrom("--sign", cmd.Sign, record.LoadKey)
	if err != nil {
		return err
	}
	dirs, err := shardsIn(cmd.RunDirs)
	if err != nil {
		return err
	}
	merged, err := record.Merge(ctx, dirs, cmd.OutputDir, record.MergeOptions{Key: key, Sign: sign, Private: cmd.Private})
	switch {
	case errors.Is(err, record.ErrDamaged):
		return marked(errNotVerified, err)
	case errors.Is(err, record.ErrShards), errors.Is(err, record.ErrExists):
		return marked(errUsage, err)
	case err != nil:
		return marked(run.ErrInfrastructure, err)
	}
	missing := merged.Planned - merged.Attempts
	if err := cmd.print(a, merged); err != nil || missing <= 0 {
		return err
	}
	return fmt.Errorf("%w: %d of %d attempts are missing", run.ErrInfrastructure, missing, merged.Planned)
}

// maxMissing bounds the list of what is missing.
const maxMissing = 20

func (cmd *mergeCmd) print(a *app, m record.MergeReport) error {
	if cmd.JSON {
		return a.json(m)
	}
	for i, what := range m.Missing {
		if i == maxMissing {
			a.say(slog.LevelWarn, fmt.Sprintf("missing: %d more", len(m.Missing)-i))
			break
		}
		a.say(slog.LevelWarn, "missing: "+what)
	}
	return a.printf("sbench: run_id=%s shards=%d of %d attempts=%d of %d records=%d output=%s\n",
		m.RunID, m.Shards, m.Count, m.Attempts, m.Planned, m.Records, cmd.OutputDir)
}

// shardsIn returns the directories of shards: each of dirs, or its subdirectories.
func shardsIn(dirs []string) ([]string, error) {
	var all []string
	for _, dir := range dirs {
		_, err := os.Stat(filepath.Join(dir, record.ManifestFile))
		if err == nil {
			all = append(all, dir)
			continue
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		found, err := fs.Glob(os.DirFS(dir), "shard-*-of-*/"+record.ManifestFile)
		if err != nil || len(found) == 0 {
			return nil, errors.Join(err, fmt.Errorf("%w: %s is neither a run nor a directory with shards of one", errUsage, dir))
		}
		for _, name := range found {
			all = append(all, filepath.Join(dir, filepath.Dir(name)))
		}
	}
	return all, nil
}
