package families

import (
	"cmp"
	"context"
	"math/big"
	"regexp"
	"slices"
	"strconv"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/text"
)

func multipleChoice() verifiers.Family {
	return verifiers.Family{
		Family: family.MultipleChoice(), Verify: verifiers.By(family.MultipleChoiceOf, verifyChoice),
		Reference: func(t *compiler.Task) (c candidate.Candidate) {
			if answers := family.MultipleChoiceOf(t).Answers.Reveal(); len(answers) > 0 {
				c.Text = answers[0].Text
				if answers[0].Choice >= 0 {
					c.Text = string(rune('A' + answers[0].Choice))
				}
			}
			return c
		},
	}
}

func verifyChoice(_ context.Context, _ verifiers.Engine, in verifiers.Input, eval family.MultipleChoiceEval) (verifiers.Verdict, error) {
	c := text.Choice{Choices: slices.Clone(eval.Choices), Labels: len(eval.Choices), Pattern: pattern(eval.Pattern)}
	for _, a := range eval.Answers.Reveal() {
		if a.Choice < 0 { // a text that is not one of the choices and has no label
			a.Choice = len(c.Choices)
			c.Choices = append(c.Choices, a.Text)
		}
		c.Right = append(c.Right, a.Choice)
	}
	return told(c.Judge(in.Candidate.Text)), nil
}

func shortAnswer() verifiers.Family {
	return verifiers.Family{
		Family: family.ShortAnswer(), Verify: verifiers.By(family.ShortAnswerOf, verifyShort),
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Text: cmp.Or(family.ShortAnswerOf(t).Accepted.Reveal()...)}
		},
	}
}

// verifyShort judges a word, a phrase or a number.
func verifyShort(_ context.Context, _ verifiers.Engine, in verifiers.Input, eval family.ShortAnswerEval) (verifiers.Verdict, error) {
	// The decimal that the author wrote, exactly; nil if it is not finite.
	tolerance, _ := new(big.Rat).SetString(strconv.FormatFloat(eval.Tolerance.Reveal(), 'g', -1, 64))
	return told(text.Short{
		Question: eval.Question, Accepted: eval.Accepted.Reveal(), Tolerance: tolerance, Pattern: pattern(eval.Pattern),
	}.Judge(in.Candidate.Text)), nil
}

// told returns the verdict on a text, with what was read in it.
func told(t text.Verdict) verifiers.Verdict {
	v := verifiers.Pass()
	v.Assurance = verifiers.Sealed
	if t.Reason != "" {
		v = verifiers.Fail(t.Reason, map[string]string{
			text.None: "no answer was found in the text", text.Several: "what was read in the answer leaves open what is meant",
			text.Wrong: "the answer is none of those accepted", text.Rejected: "the answer holds or resembles a rejected one",
		}[t.Reason])
	}
	return v.With(verifiers.Read, t.Read).With(verifiers.Rule, string(t.Rule))
}

// pattern compiles the author's pattern, which the compiler has checked; nil for "".
func pattern(expr string) *regexp.Regexp {
	if expr == "" {
		return nil
	}
	return regexp.MustCompile(expr)
}
