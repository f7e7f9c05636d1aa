package harness

import (
	"context"

	"github.com/securebench/sbench/proxy/relay"
)

// Unexported functions for tests.
var IsCredential = isCredential

// Settle settles an attempt whose relay saw facts, with a probe that sees own.
func Settle(ctx context.Context, facts relay.Facts, bad, stillborn bool, own relay.Facts) (result Result, probed bool, err error) {
	probe := func(context.Context) relay.Facts { probed = true; return own }
	result, err = settle(ctx, Result{Egress: &EgressTotals{Relay: &facts}}, end{bad, stillborn}, relay.Config{Provider: relay.OpenAI, Model: "m"}, probe)
	return result, probed, err
}
