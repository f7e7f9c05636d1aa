package run

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/steps"
)

// beforeDir holds what a step left while the next one begins with it.
const beforeDir = unjudgedDir + "/before"

// steps makes the steps of a task one after the other, each on the machine that the step before left,
// until one of them does not earn what the next one requires. It returns what the last one left.
func (a attempt) steps(ctx, producing context.Context, rec *record.Record) (left candidate.Candidate, err error) {
	defer func() {
		a.log.Step = ""
		err = errors.Join(err, a.removeWorkspace(beforeDir))
	}()
	missed := ""
	var rewards []map[string]float64 // of the steps that were made
	fresh := *rec                    // with which the record of each step begins
	for i, step := range a.task.Steps() {
		if i > 0 {
			aside, err := a.moveWorkspace(left, beforeDir)
			if err != nil {
				return left, err
			}
			left.Workspace = filepath.Join(a.cfg.Output, aside)
			a.before = new(left)
		}
		a.part, a.log.Step = step, fmt.Sprintf("%s%d", record.StepPrefix, i+1)
		part := fresh
		left, err = a.solve(ctx, producing, &part)
		rewards = append(rewards, steps.Add(rec, step, part))
		if err != nil {
			return left, err
		}
		if missed = steps.Unearned(step, part); missed != "" {
			break
		}
	}
	steps.Sum(rec, a.task.Steps(), rewards, missed)
	return left, nil
}
