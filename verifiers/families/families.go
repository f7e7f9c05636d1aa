// Package families finds what judges a task's candidates; [For] is its door. It has the verifiers of
// answers in words itself, which need no sandbox. The verifiers of code, repositories and machines are
// packages beside it.
package families

import (
	"context"
	"sync"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/code"
	"github.com/securebench/sbench/verifiers/repo"
	"github.com/securebench/sbench/verifiers/split"
	"github.com/securebench/sbench/verifiers/terminal"
)

// registry returns the families that have a verifier.
var registry = sync.OnceValue(func() []verifiers.Family {
	return []verifiers.Family{multipleChoice(), shortAnswer(), freeResponse(), code.Family(), repo.Family(), terminal.Family()}
})

// For returns the family of a task. A family that has no verifier judges everything as [verifiers.Pending].
func For(t *compiler.Task) verifiers.Family {
	for _, f := range registry() {
		if f.Name == t.Family().Name {
			if t.Split() != nil || t.Verification() != nil {
				f.Verify, f.Sandboxed = split.Verify, true
			}
			return f
		}
	}
	return verifiers.Family{Family: t.Family(), Verify: pending}
}

func pending(_ context.Context, _ verifiers.Engine, in verifiers.Input) (verifiers.Verdict, error) {
	return verifiers.Verdict{Status: verifiers.Pending, Reason: "no_verifier", Message: "no verifier for the family " + in.Task.Family().Name}, nil
}
