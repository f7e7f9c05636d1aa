// Package slurm runs the shards of a run as an array job of Slurm. It writes the job's script, submits
// it, and follows and ends its tasks. For that it runs Slurm's programs sbatch, squeue and scancel, as
// the user who runs sbench.
package slurm

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"
	"time"
)

// A Job is an array job with a task for each shard of a run.
type Job struct {
	Name      string // letters, digits and - _ .
	Shards    int
	Dir       string // of the job's script and logs, absolute, on a file system that all nodes share
	Command   []string
	CPUs      int           // cores of a task
	Memory    int64         // of a task, in bytes
	Time      time.Duration // of a task; 0 is the partition's own limit
	Grace     time.Duration // how long before the end of Time a task is told to end
	Partition string        // "" is the cluster's default
	Account   string        // "" is the user's default
	Prepare   [][]string    // commands before Command, on a node each time that it gets a task
	Export    []string      // names of the only environment variables that tasks get
	// NodeDir is a directory on each node's own disk, which the shards on the node share; "" is sbench's
	// default. A shell expands variables in it.
	NodeDir string
}

// Cancelled is the name of a file. If it is in Job.Dir, no task is queued again.
const Cancelled = "cancelled"

//go:embed job.sh
var jobText string

var jobScript = template.Must(template.New("job").Funcs(template.FuncMap{
	"quote": quote,
	"words": func(args []string) string {
		quoted := make([]string, len(args))
		for i, a := range args {
			quoted[i] = quote(a)
		}
		return strings.Join(quoted, " ")
	},
	"join":     strings.Join,
	"seconds":  func(d time.Duration) int { return int(d.Round(time.Second) / time.Second) },
	"minutes":  func(d time.Duration) int { return int((d + time.Minute - 1) / time.Minute) },
	"megabyte": func(bytes int64) int64 { return (bytes + 1<<20 - 1) >> 20 },
}).Parse(jobText))

// Script returns the script of the job, for sbatch.
func (j Job) Script() (string, error) {
	const never = "\n\"'\\%`" // would end or change what sbatch or a shell reads in quotes
	for _, text := range []string{j.Dir, j.NodeDir, j.Name, j.Partition, j.Account, strings.Join(j.Export, "")} {
		if strings.ContainsAny(text, never) || strings.ContainsAny(text, " \t,") && text != j.Dir && text != j.NodeDir {
			return "", fmt.Errorf("%q cannot stand in a job's script", text)
		}
	}
	var b bytes.Buffer
	err := jobScript.Execute(&b, j)
	return b.String(), err
}

// quote returns text as one word of a shell.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// Submit submits the script in the file name, and returns the job's id. tasks are the indexes of the
// tasks to run; all run if there are none.
func Submit(ctx context.Context, name string, tasks ...int) (id string, err error) {
	args := []string{"--parsable"}
	if len(tasks) > 0 {
		texts := make([]string, len(tasks))
		for i, n := range tasks {
			texts[i] = strconv.Itoa(n)
		}
		args = append(args, "--array="+strings.Join(texts, ","))
	}
	out, err := program(ctx, "sbatch", append(args, name)...)
	id, _, _ = strings.Cut(strings.TrimSpace(out), ";") // the cluster's name follows
	return id, err
}

// Queue returns the states, such as PENDING, of tasks that have not ended, by their indexes.
func Queue(ctx context.Context, jobs ...string) (map[int]string, error) {
	states := map[int]string{}
	out, err := program(ctx, "squeue", "--noheader", "--array", "--format=%K %T", "--jobs="+strings.Join(jobs, ","))
	if err != nil && strings.Contains(err.Error(), "Invalid job id") { // Slurm has forgotten it
		return states, nil
	}
	for line := range strings.Lines(out) {
		index, state, _ := strings.Cut(strings.TrimSpace(line), " ")
		n, convErr := strconv.Atoi(index)
		if convErr != nil {
			return nil, fmt.Errorf("squeue: %q: %w", line, convErr)
		}
		states[n] = state
	}
	return states, err
}

// Cancel removes tasks that have not begun, and signals the running ones to end cleanly. The caller has
// already made the file Cancelled.
func Cancel(ctx context.Context, jobs ...string) error {
	_, err := program(ctx, "scancel", append([]string{"--state=PENDING"}, jobs...)...)
	_, also := program(ctx, "scancel", append([]string{"--batch", "--signal=TERM"}, jobs...)...)
	return errors.Join(err, also)
}

// ScriptFile returns the name of the script in a Job.Dir.
func ScriptFile(dir string) string { return filepath.Join(dir, "job.sh") }

func program(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(stderr.String()))
	}
	return string(out), err
}
