// Package steps puts the records of a task's steps together: their rewards, and the verdict on all of them.
package steps

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/run/logs"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// Add adds the record of a step to the record of its task. It returns all rewards that the checker left, or
// the score as the only reward if the checker left none.
func Add(rec *record.Record, step *compiler.Task, part record.Record) (rewards map[string]float64) {
	r := record.Step{
		Name: step.Step().Name, Status: part.VerificationStatus, Assurance: part.PassAssurance(), Contrast: part.Contrast, ProducerFailure: part.ProducerFailure,
		FailureReason: part.FailureReason, FailurePhase: part.FailurePhase, FailureMessage: part.FailureMessage, Times: part.Times, Agent: part.Agent, Egress: part.Egress,
	}
	if part.Score != nil {
		r.Score, rewards = *part.Score, map[string]float64{"reward": *part.Score}
	}
	if left, ok := part.VerifierMetadata[verifiers.Reward].(map[string]float64); ok {
		rewards = left
	}
	if part.Doubtful() {
		rec.VerifierMetadata = record.Metadata{verifiers.Doubtful: true}
	}
	rec.Steps = append(rec.Steps, r)
	rec.Times.Producer, rec.Times.Verifier = rec.Times.Producer+part.Times.Producer, rec.Times.Verifier+part.Times.Verifier
	rec.Times.ProviderWait += part.Times.ProviderWait
	rec.Agent, rec.Egress = part.Agent, rec.Egress.Plus(part.Egress)
	rec.FailurePhase, rec.ProducerMetadata = part.FailurePhase, part.ProducerMetadata
	if rec.ProducerFailure == nil {
		rec.ProducerFailure = part.ProducerFailure
	}
	rec.ProducerStdout += logs.UnderStep(r.Name, part.ProducerStdout)
	rec.ProducerStderr += logs.UnderStep(r.Name, part.ProducerStderr)
	return rewards
}

// Unearned returns why the steps after this one are not made; "" if they are made.
func Unearned(step *compiler.Task, part record.Record) string {
	rewards, left := part.VerifierMetadata[verifiers.Reward].(map[string]float64)
	if part.Judged() && !step.Checker().Reward {
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

// Sum gives a task's record the verdict on its steps. missed is what the last step that was made did not
// earn; "" if it earned everything.
func Sum(rec *record.Record, all []*compiler.Task, rewards []map[string]float64, missed string) {
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
	rec.VerifierMetadata[verifiers.Reward] = total
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

// Round keeps only the reward that counts, and four decimal digits of each score: a checker chooses the names of
// its rewards, and all digits, so they could spell a hidden value.
func Round(rec *record.Record) {
	if all, ok := rec.VerifierMetadata[verifiers.Reward].(map[string]float64); ok {
		rec.VerifierMetadata[verifiers.Reward] = verifiers.Rounded(rewardOf(all))
	}
	if rec.Score != nil {
		rec.Score = new(verifiers.Rounded(*rec.Score))
	}
	for i := range rec.Steps {
		rec.Steps[i].Score = verifiers.Rounded(rec.Steps[i].Score)
	}
}
