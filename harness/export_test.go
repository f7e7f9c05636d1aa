package harness

import (
	"context"

	"github.com/securebench/sbench/proxy/relay"
)

// Unexported functions for tests.
var IsCredential = isCredential

// A Prober answers with facts that a test gives, and counts its questions.
type Prober struct {
	Probed, Repeated relay.Facts
	Asked            int
}

func (p *Prober) Probe(context.Context) relay.Facts  { p.Asked++; return p.Probed }
func (p *Prober) Repeat(context.Context) relay.Facts { p.Asked++; return p.Repeated }

// AssignFault judges an attempt whose relay saw facts.
func AssignFault(ctx context.Context, facts relay.Facts, bad, silent bool, ask *Prober) (Result, error) {
	return assignFault(ctx, Result{Egress: &EgressTotals{Relay: &facts}}, ending{bad, silent}, relay.Config{Provider: relay.OpenAI, Model: "m"}, ask)
}
