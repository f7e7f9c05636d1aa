package harness

import (
	"context"

	"github.com/securebench/sbench/proxy/relay"
)

// SessionKey returns the placeholder for a provider's key that a request's harness gets.
func SessionKey(r Request, provider *relay.Config) (string, error) {
	w, err := openSession(r, provider)
	if err != nil {
		return "", err
	}
	_, err = w.close(Result{}, nil)
	return w.key(), err
}

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
