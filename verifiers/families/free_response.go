package families

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/judge"
	"github.com/securebench/sbench/verifiers/text"
)

func freeResponse() verifiers.Family {
	return verifiers.Family{
		Family: family.FreeResponse(), Verify: verifiers.By(family.FreeResponseOf, verifyFree),
		Reference: func(t *compiler.Task) candidate.Candidate {
			eval := family.FreeResponseOf(t)
			return candidate.Candidate{Text: cmp.Or(eval.ReferenceAnswer.Reveal(), cmp.Or(eval.Rubric.Reveal().AcceptedAnswers...))}
		},
	}
}

// verifyFree judges by a structured rubric, or by a model if task and operator allow it; else it is Pending.
func verifyFree(ctx context.Context, _ verifiers.Engine, in verifiers.Input, eval family.FreeResponseEval) (verifiers.Verdict, error) {
	switch {
	case eval.Reason == "":
	case len(eval.Wrong.Reveal()) > 0 && in.Judge != nil:
		return judged(ctx, in, eval)
	default:
		return verifiers.Verdict{Status: verifiers.Pending, Reason: "no_structured_rubric", Message: eval.Reason}, nil
	}
	rubric := eval.Rubric.Reveal()
	return told(text.Free{
		Accepted: rubric.AcceptedAnswers, Rejected: rubric.RejectedAnswers, MinF1: rubric.MinTokenF1, Pattern: pattern(eval.Pattern),
	}.Judge(in.Candidate.Text)), nil
}

// judged returns a model's verdict. What the model was asked and answered is the verdict's output.
func judged(ctx context.Context, in verifiers.Input, eval family.FreeResponseEval) (verifiers.Verdict, error) {
	if strings.TrimSpace(in.Candidate.Text) == "" {
		return verifiers.Fail(text.None, "the answer is empty"), nil
	}
	result, err := in.Judge.Grade(ctx, in.Model, judge.Question{
		Prompt: eval.Prompt, Rubric: eval.Prose.Reveal(), Reference: eval.ReferenceAnswer.Reveal(), Wrong: eval.Wrong.Reveal(),
	}, in.Candidate.Text)
	var v verifiers.Verdict
	switch {
	case errors.Is(err, judge.ErrTooLong):
		return verifiers.Fail(text.Wrong, err.Error()), nil
	case err != nil:
		return verifiers.Verdict{}, err
	case result.Miscalibrated != "":
		v = verifiers.Fault("judge_miscalibrated", result.Miscalibrated+": another model, or a clearer rubric, may help")
	case result.Swayed:
		v = verifiers.Fail("judge_swayed", "the judge also passes the same text with a wrong answer in it, so it does not judge the answer")
	case result.Pass:
		v = verifiers.Pass()
		v.Assurance = verifiers.Sealed
	default:
		v = verifiers.Fail(text.Wrong, "the judge does not pass the answer")
	}
	var transcript bytes.Buffer
	counts := map[string]int{}
	for _, vote := range result.Votes {
		if err := json.NewEncoder(&transcript).Encode(vote); err != nil {
			return verifiers.Verdict{}, err
		}
		if vote.Pass {
			counts[vote.About+"_passed"]++
		} else {
			counts[vote.About+"_failed"]++
		}
	}
	v.Stdout = runtime.Output{Head: transcript.Bytes(), Total: int64(transcript.Len())}
	return v.With("judge", counts), nil
}
