package families

import (
	"cmp"
	"context"
	"math/big"
	"strconv"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/text"
)

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
