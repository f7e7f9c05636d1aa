package run

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

// beforeDir holds what a step left while the next one begins with it.
const beforeDir = unjudgedDir + "/before"

// steps makes the steps of a task one after the other, each on the machine that the step before left,
// until one of them does not earn what the next one requires. It returns what the last one left.
func (s *session) steps(ctx, producing context.Context, a attempt, rec *record.Record) (left candidate.Candidate, err error) {
	defer func() { err = errors.Join(err, s.removeWorkspace(beforeDir, a)) }()
	missed := ""
	var rewards []map[string]float64 // of the steps that were made
	for i, step := range a.task.Steps() {
		if i > 0 {
			if err := s.setAside(a, &left); err != nil {
				return left, err
			}
			a.before = new(left)
		}
		a.part, a.log.step = step, fmt.Sprintf("%s%d", record.StepPrefix, i+1)
		part := *rec
		part.Steps, part.VerificationStatus = nil, ""
		left, err = s.solve(ctx, producing, a, &part)
		rewards = append(rewards, addStep(rec, step, part))
		if err != nil {
			return left, err
		}
		if missed = unearned(step, part); missed != "" {
			break
		}
	}
	a.log.step = ""
	sumSteps(rec, a.task.Steps(), rewards, missed)
	return left, nil
}

// setAside moves what a step left to beforeDir.
func (s *session) setAside(a attempt, left *candidate.Candidate) error {
	err := errors.Join(s.removeWorkspace(beforeDir, a), s.out.MkdirAll(beforeDir, 0o755))
	from, to := path.Join(unjudgedDir, a.workspaceName()), path.Join(beforeDir, a.workspaceName())
	for suffix, digest := range map[string]string{"": left.Digest, workspace.AttributesSuffix: left.Attributes, layer.Suffix: left.Layer} {
		if digest != "" {
			err = errors.Join(err, s.out.Rename(from+suffix, to+suffix))
		}
	}
	left.Workspace = filepath.Join(s.cfg.Output, to)
	return err
}

// addStep adds the record of a step to that of its task. It returns all rewards that the checker left, or
// the score alone if it leaves none.
func addStep(rec *record.Record, step *compiler.Task, part record.Record) (rewards map[string]float64) {
	r := record.Step{
		Name: step.Step().Name, Status: part.VerificationStatus, Assurance: part.PassAssurance(), Contrast: part.Contrast, ProducerFailure: part.ProducerFailure,
		FailureReason: part.FailureReason, FailurePhase: part.FailurePhase, FailureMessage: part.FailureMessage, Times: part.Times, Agent: part.Agent, Egress: part.Egress,
	}
	if part.Score != nil {
		r.Score, rewards = *part.Score, map[string]float64{"reward": *part.Score}
	}
	if left, ok := part.VerifierMetadata[record.MetadataReward].(map[string]float64); ok {
		rewards = left
	}
	if part.Doubtful() {
		rec.VerifierMetadata = record.Metadata{"doubtful": true}
	}
	rec.Steps = append(rec.Steps, r)
	rec.Times.Producer, rec.Times.Verifier = rec.Times.Producer+part.Times.Producer, rec.Times.Verifier+part.Times.Verifier
	rec.Times.ProviderWait += part.Times.ProviderWait
	rec.Agent, rec.Egress = part.Agent, rec.Egress.Plus(part.Egress)
	rec.FailurePhase, rec.ProducerMetadata = part.FailurePhase, part.ProducerMetadata
	if rec.ProducerFailure == nil {
		rec.ProducerFailure = part.ProducerFailure
	}
	rec.ProducerStdout += underStep(r.Name, part.ProducerStdout)
	rec.ProducerStderr += underStep(r.Name, part.ProducerStderr)
	return rewards
}

// underStep returns an output below a line that names its step. It changes no empty output, and no output of a
// task without steps, where step is "".
func underStep(step, text string) string {
	if step == "" || text == "" {
		return text
	}
	return fmt.Sprintf("--- step %s\n%s\n", step, strings.TrimSuffix(text, "\n"))
}

// unearned returns why the steps after this one are not made; "" if they are made.
func unearned(step *compiler.Task, part record.Record) string {
	rewards, left := part.VerifierMetadata[record.MetadataReward].(map[string]float64)
	if part.Score != nil && !step.Checker().Reward {
		rewards, left = map[string]float64{"reward": *part.Score}, true
	}
	if !left { // there is no result
		return part.FailureMessage
	}
	if name := step.Step().Missed(rewards); name != "" {
		return fmt.Sprintf("%s is %v, and the next step requires %v", name, verifiers.Rounded(rewards[name]), step.Step().MinReward[name])
	}
	return ""
}

// sumSteps gives a task's record the verdict on its steps. missed is what the last step that was made did not
// earn; "" if it earned everything.
func sumSteps(rec *record.Record, all []*compiler.Task, rewards []map[string]float64, missed string) {
	made := rec.Steps
	last := made[len(made)-1]
	counted := made
	if all[0].Step().Final {
		counted, rewards = made[len(made)-1:], rewards[len(made)-1:]
	}
	total := map[string]float64{}
	for _, left := range rewards {
		for name, n := range left {
			total[name] += n
		}
	}
	for name := range total {
		total[name] /= float64(len(counted))
	}
	if rec.VerifierMetadata == nil {
		rec.VerifierMetadata = record.Metadata{}
	}
	rec.VerifierMetadata[record.MetadataReward] = total
	if !last.Status.Scored() {
		rec.VerificationStatus, rec.FailureReason, rec.FailureMessage = last.Status, last.FailureReason, "step "+last.Name+": "+last.FailureMessage
		return
	}
	reward := rewardOf(total)
	complete := len(made) == len(all) && (missed == "" || last.Status == record.Passed)
	failed := slices.IndexFunc(counted, func(s record.Step) bool { return s.Status != record.Passed })
	passed, score := complete && failed < 0 && reward >= 1, min(max(reward, 0), 1)
	rec.Passed, rec.Score = &passed, &score
	if passed {
		rec.VerificationStatus, rec.FailurePhase = record.Passed, ""
		for _, step := range counted { // the weakest
			if rec.Assurance == "" || !record.Suffices(step.Assurance, rec.Assurance) {
				rec.Assurance = step.Assurance
			}
		}
		return
	}
	rec.VerificationStatus = record.Failed
	worst := last
	if complete && failed >= 0 {
		worst = counted[failed]
	}
	rec.FailureReason, rec.FailurePhase, rec.FailureMessage = cmp.Or(worst.FailureReason, "step_reward"), cmp.Or(worst.FailurePhase, "verifier"), "step "+worst.Name+": "+cmp.Or(worst.FailureMessage, missed)
	if missed != "" && worst.FailureMessage != missed {
		rec.FailureMessage += "; " + missed
	}
}

// rewardOf returns the reward that counts: the one called reward or, without it, the mean of all.
func rewardOf(all map[string]float64) (reward float64) {
	if reward, ok := all["reward"]; ok {
		return reward
	}
	for _, n := range all {
		reward += min(max(n, 0), 1)
	}
	return reward / float64(max(len(all), 1))
}
