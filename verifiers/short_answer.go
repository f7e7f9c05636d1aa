package verifiers

import (
	"context"
	"math/big"
	"strconv"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/verifiers/text"
)

func shortAnswer() Family {
	return Family{
		Family: compiler.ShortAnswer(), Verify: by(compiler.ShortAnswerOf, verifyShort),
		Reference: func(t *compiler.Task) candidate.Candidate {
			return candidate.Candidate{Text: first(compiler.ShortAnswerOf(t).Accepted.Reveal())}
		},
	}
}

// verifyShort judges a word, a phrase or a number.
func verifyShort(_ context.Context, _ Engine, in Input, eval compiler.ShortAnswerEval) (Verdict, error) {
	// The decimal that the author wrote, exactly; nil if it is not finite.
	tolerance, _ := new(big.Rat).SetString(strconv.FormatFloat(eval.Tolerance.Reveal(), 'g', -1, 64))
	return told(text.Short{
		Question: eval.Question, Accepted: eval.Accepted.Reveal(), Tolerance: tolerance, Pattern: pattern(eval.Pattern),
	}.Judge(in.Candidate.Text)), nil
}
