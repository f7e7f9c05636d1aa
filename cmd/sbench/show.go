package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/text"
	"github.com/securebench/sbench/run/record"
)

type showCmd struct {
	RunDir  string `arg:"" name:"run-dir" help:"Output directory of a run."`
	Task    string `arg:"" help:"Id of the task, or a pattern that matches one."`
	Attempt int    `placeholder:"N" help:"Attempt of the task. Default: the first that did not pass, else the first."`
	Key     string `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the end of the records."`
	jsonFlag

	Private        bool `help:"Show what the verifier printed, where the private part of the run is there. It can contain hidden tests."`
	AcceptUnsigned bool `help:"Show records even if they are damaged, or not signed by --key."`
}

// Bytes of an attempt's texts that are shown.
const (
	shownInTerminal = 48 << 10
	shownAsJSON     = 4 << 20
)

func (cmd *showCmd) Run(ctx context.Context, a *app) (err error) {
	sources, err := (&runDirs{RunDirs: []string{cmd.RunDir}, Key: cmd.Key, Private: cmd.Private, AcceptUnsigned: cmd.AcceptUnsigned}).open(ctx)
	defer func() { err = errors.Join(err, closeAll(sources)) }()
	if err = errors.Join(err, notNegative("--attempt", cmd.Attempt)); err != nil {
		return err
	}
	s := sources[0]
	if err := printProblems(a.stderr, s.Dir, s.Problems); err != nil {
		return err
	}
	at, of, err := cmd.find(s.Attempts)
	if err != nil {
		return err
	}
	most := shownInTerminal
	if cmd.JSON {
		most = shownAsJSON
	}
	d, err := s.Detail(ctx, at, most)
	if err != nil {
		return err
	}
	t := s.Attempts[at]
	v := text.Attempt{Task: t.Task, Attempt: t.Number, Of: of, Status: t.Status, Reason: t.Reason, Phase: t.Phase, Detail: d}
	if cmd.JSON {
		return a.json(v)
	}
	return v.Write(a.stdout)
}

// find returns the index of the attempt to show, and the number of its task's attempts.
func (cmd *showCmd) find(all []report.Attempt) (at, of int, err error) {
	var ids []string // of matching tasks
	indices := map[string][]int{}
	for i, a := range all {
		if a.Task != cmd.Task && !compiler.MatchTask(cmd.Task, a.Task) {
			continue
		}
		if indices[a.Task] == nil {
			ids = append(ids, a.Task)
		}
		indices[a.Task] = append(indices[a.Task], i)
	}
	if indices[cmd.Task] != nil {
		ids = []string{cmd.Task}
	}
	switch {
	case len(ids) == 0:
		return 0, 0, fmt.Errorf("%w: no attempt of %q is recorded", errUsage, cmd.Task)
	case len(ids) > 1:
		return 0, 0, fmt.Errorf("%w: %q matches %d tasks: name one, as %s", errUsage, cmd.Task, len(ids), report.Visible(ids[0], shownLine))
	}
	of = len(indices[ids[0]])
	i := slices.IndexFunc(indices[ids[0]], func(i int) bool {
		if cmd.Attempt > 0 {
			return all[i].Number == cmd.Attempt
		}
		return all[i].Status != record.Passed
	})
	if i < 0 && cmd.Attempt > 0 {
		return 0, 0, fmt.Errorf("%w: attempt %d of %q is not recorded", errUsage, cmd.Attempt, cmd.Task)
	}
	return indices[ids[0]][max(i, 0)], of, nil
}
