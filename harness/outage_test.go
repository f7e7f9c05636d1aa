package harness_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy/relay"
)

// TestAssignFault: the provider is at fault if it failed at everything and serves the first request now, or if it
// does not serve a request of sbench's own either. Nothing else is an error.
func TestAssignFault(t *testing.T) {
	up := relay.Facts{Sent: 1, Succeeded: 1, Statuses: []int{200}}
	down := relay.Facts{Sent: 4, Outage: 4, LastCause: relay.ServerError, Statuses: []int{500, 500, 500, 500}}
	unknown := relay.Facts{Sent: 1, Statuses: []int{404}}
	limited := relay.Facts{Sent: 4, Failed: map[relay.Cause]int64{relay.RateLimited: 4}, Outage: 4, LastCause: relay.RateLimited, Statuses: []int{429, 429, 429, 429}}
	garbage := relay.Facts{Sent: 3, Failed: map[relay.Cause]int64{relay.ServerError: 3}, Outage: 3, LastCause: relay.ServerError, Statuses: []int{500, 500, 500}}
	flooded := relay.Facts{Sent: 99, Succeeded: 2, Failed: map[relay.Cause]int64{relay.RateLimited: 97}, Outage: 97, LastCause: relay.RateLimited, Statuses: []int{429}}
	left := relay.Facts{Sent: 1, Left: 1, Statuses: []int{0}}
	tests := []struct {
		name        string
		facts       relay.Facts
		bad, silent bool
		probed      relay.Facts
		asked       int
		err         string // a part of it
	}{
		{"nothing happened", relay.Facts{}, false, false, relay.Facts{}, 0, ""},
		{"nothing happened, badly", relay.Facts{}, true, false, relay.Facts{}, 0, ""},
		{"all went well", up, true, false, relay.Facts{}, 0, ""},
		{"limited, and still so", limited, false, false, limited, 1, "(openai, api.openai.com): rate_limited, for the agent and for a request of sbench's own"},
		{"limited, by a request that exceeds the rate limit", limited, true, false, up, 2, ""},
		{"500 alone, provoked", garbage, true, false, up, 2, ""},
		{"500 alone, of a provider that is down", garbage, false, false, down, 1, "server_error, for the agent and for a request of sbench's own"},
		{"limited after answers, ended well", flooded, false, false, relay.Facts{}, 0, ""},
		{"limited after answers, provoked", flooded, true, false, up, 1, ""},
		{"limited after answers, still so", flooded, true, false, limited, 1, "rate_limited"},
		{"a refused key", relay.Facts{Sent: 1, Outage: 1, LastCause: relay.BadKey, Statuses: []int{401}}, false, false, relay.Facts{Sent: 1, Outage: 1, LastCause: relay.BadKey, Statuses: []int{401}}, 1, "bad_key"},
		{"a firewall that the agent provoked", relay.Facts{Sent: 1, Outage: 1, LastCause: relay.BadKey, Statuses: []int{403}}, true, false, up, 1, ""},
		{"an unknown model", unknown, true, false, unknown, 1, `does not know the model "m"`},
		{"a file that the provider does not know", unknown, true, false, up, 1, ""},
		{"bad requests", relay.Facts{Sent: 2, Statuses: []int{400, 413}}, true, false, relay.Facts{}, 0, ""},
		{"out of time before an answer", left, true, false, up, 1, ""},
		{"out of time, of a provider that is silent", left, true, false, left, 1, "no answer"},
		{"ended at once", relay.Facts{}, true, true, up, 1, ""},
		{"ended at once, with another API", relay.Facts{}, true, true, unknown, 1, ""},
		{"ended at once, of a provider that is down", relay.Facts{}, true, true, down, 1, "server_error"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ask := &harness.Prober{Probed: tt.probed, Repeated: tt.facts}
			_, err := harness.AssignFault(t.Context(), tt.facts, tt.bad, tt.silent, ask)
			if ask.Asked != tt.asked || errors.Is(err, harness.ErrProvider) != (tt.err != "") || err != nil && !strings.Contains(err.Error(), tt.err) {
				t.Errorf("asked %d times; %v", ask.Asked, err)
			}
		})
	}
	for name, tt := range map[string]struct {
		facts relay.Facts
		want  bool
	}{
		"failed at all, and serves the first now": {garbage, true},
		"limited, and serves the first now":       {limited, true},
		"provoked with what was left":             {relay.Facts{Sent: 9, Left: 8, Failed: map[relay.Cause]int64{relay.RateLimited: 1}, Outage: 1, Statuses: []int{0, 429}}, false},
	} {
		if _, err := harness.AssignFault(t.Context(), tt.facts, true, false, &harness.Prober{Probed: up, Repeated: up}); (err != nil) != tt.want {
			t.Errorf("%s: %v", name, err)
		}
	}
	exceeded := up
	exceeded.Exceeded = relay.TokenBudget
	if result, err := harness.AssignFault(t.Context(), exceeded, false, false, &harness.Prober{}); err != nil || result.Ended == nil || result.Ended.Reason != "max_total_tokens_exceeded" {
		t.Errorf("%+v, %v", result, err)
	}
}
