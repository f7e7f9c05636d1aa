package relay

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/securebench/sbench/proxy"
)

// A Cause says how a request failed on the provider's side.
type Cause string

// The causes. They do not include bad requests by the agent (400, 404, 413 and so on).
const (
	Unreachable  Cause = "unreachable"   // no connection, or it ended before the answer
	RateLimited  Cause = "rate_limited"  // 429
	ServerError  Cause = "server_error"  // 5xx, 408, or an error event of that kind
	AnswerCut    Cause = "answer_cut"    // the answer is incomplete
	BadKey       Cause = "bad_key"       // 401, 402 or 403
	BrokenAnswer Cause = "broken_answer" // a redirect, another protocol, an encoding that was not requested
)

// A Budget names one of the budgets in a [Config].
type Budget string

// The budgets.
const (
	TokenBudget   Budget = "max_total_tokens"
	RequestBudget Budget = "max_requests"
	CostBudget    Budget = "max_cost_usd"
)

// Facts are what a [Relay] observed. From them the caller decides how an attempt ended.
// Nothing in them comes from text that the agent or a model wrote.
//
// A generation is a request that makes a model write: Messages, Responses, Chat Completions
// and compaction, but not counting tokens or listing models.
type Facts struct {
	Seen    int64 `json:"seen"`    // all requests of the agent; 0 if it sent none
	Refused int64 `json:"refused"` // of Seen, answered by the relay alone
	// Unlogged counts the refused requests beyond Limits.Requests, which have no log entry.
	Unlogged int64 `json:"unlogged,omitempty"`
	Other    int64 `json:"other,omitempty"` // other requests sent to the provider, for lists of models and counts of tokens
	Sent     int64 `json:"sent"`            // generations sent to the provider, including retries; 0 if no model was asked

	Succeeded int64           `json:"succeeded"`          // of Sent, answered with 2xx and to the end
	Failed    map[Cause]int64 `json:"failed,omitempty"`   // of Sent, failed on the provider's side
	Left      int64           `json:"left,omitempty"`     // of Sent, ended early by the agent or by Close
	Statuses  []int           `json:"statuses,omitempty"` // of the last generations, at most 16, in the order of their ends; 0: no answer

	// Outage is how many of the latest generations failed in a row on the provider's side. Any
	// other answer resets it. A request that the agent ended early does not change it. LastCause is
	// the cause of the last failure and is never reset.
	Outage    int64 `json:"outage,omitempty"`
	LastCause Cause `json:"last_cause,omitempty"`

	// ProviderWait is for how many seconds the provider's load made the agent wait: because it asked for this, or
	// allowed fewer requests at once. Waits at the same time count once.
	ProviderWait float64 `json:"provider_wait,omitempty"`

	Exceeded Budget      `json:"exceeded,omitempty"` // the first budget that refused a request; empty if none did
	Usage    proxy.Usage `json:"usage"`              // of all requests
	CostUSD  float64     `json:"cost_usd,omitempty"` // of Usage, if the prices are known

	Stripped map[string]int64 `json:"stripped,omitempty"` // what the relay removed from requests, and how often
	External map[string]int64 `json:"external,omitempty"` // why requests were refused under RefuseExternalTools, and how often
}

// Plus returns the facts about two relays together. The relay of g was opened after the relay of f.
func (f Facts) Plus(g Facts) Facts {
	if g.Outage == g.Sent-g.Left { // nothing has ended the outage of f
		g.Outage += f.Outage
	}
	g.Seen, g.Refused, g.Unlogged, g.Sent = f.Seen+g.Seen, f.Refused+g.Refused, f.Unlogged+g.Unlogged, f.Sent+g.Sent
	g.Other, g.ProviderWait = f.Other+g.Other, f.ProviderWait+g.ProviderWait
	g.Succeeded, g.Left = f.Succeeded+g.Succeeded, f.Left+g.Left
	g.Failed, g.Stripped, g.External = added(f.Failed, g.Failed), added(f.Stripped, g.Stripped), added(f.External, g.External)
	g.Statuses = slices.Concat(f.Statuses, g.Statuses)
	g.Statuses = g.Statuses[max(0, len(g.Statuses)-maxStatuses):]
	g.LastCause, g.Exceeded = cmp.Or(g.LastCause, f.LastCause), cmp.Or(f.Exceeded, g.Exceeded)
	g.Usage = f.Usage.Add(g.Usage)
	g.CostUSD += f.CostUSD
	return g
}

func added[K comparable](a, b map[K]int64) map[K]int64 {
	sum := maps.Clone(a)
	for key, n := range b {
		if sum == nil {
			sum = map[K]int64{}
		}
		sum[key] += n
	}
	return sum
}

// Unserved reports whether the provider served no request although requests were sent: the last one
// failed on the provider's side, or all were answered by 404 or not at all. The agent cannot provoke a
// 404, since the relay passes only the configured model and a few paths.
func (f Facts) Unserved() bool {
	return f.Sent > 0 && f.Succeeded == 0 && (f.ProviderFailed() || f.Unknown() || f.Left == f.Sent)
}

// AllFailed reports whether the provider failed at each of one or more requests.
func (f Facts) AllFailed() bool {
	failed := int64(0)
	for _, n := range f.Failed {
		failed += n
	}
	return f.Sent > 0 && failed == f.Sent
}

// Unknown reports whether each answer was 404.
func (f Facts) Unknown() bool {
	return f.Succeeded == 0 && len(f.Statuses) > 0 && !slices.ContainsFunc(f.Statuses, func(status int) bool { return status != http.StatusNotFound })
}

// ProviderFailed reports whether the last generation that the agent waited for failed on the
// provider's side.
func (f Facts) ProviderFailed() bool { return f.Outage > 0 }
