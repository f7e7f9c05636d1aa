package harness_test

import (
	"testing"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy/relay"
)

// TestOutage: a single failure at the end, after a successful answer, may have been
// provoked from inside the sandbox, and a key that has been accepted is good.
func TestOutage(t *testing.T) {
	tests := []struct {
		name  string
		facts relay.Facts
		want  bool
	}{
		{"nothing happened", relay.Facts{}, false},
		{"all went well", relay.Facts{Sent: 3, Succeeded: 3}, false},
		{"never an answer", relay.Facts{Sent: 1, Outage: 1, LastCause: relay.RateLimited}, true},
		{"never a good key", relay.Facts{Sent: 1, Outage: 1, LastCause: relay.BadKey}, true},
		{"one failure at the end", relay.Facts{Sent: 3, Succeeded: 2, Outage: 1, LastCause: relay.ServerError}, false},
		{"failures at the end", relay.Facts{Sent: 4, Succeeded: 2, Outage: 2, LastCause: relay.ServerError}, true},
		{"a key refused after it was good", relay.Facts{Sent: 9, Succeeded: 2, Outage: 7, LastCause: relay.BadKey}, false},
	}
	for _, tt := range tests {
		if got := harness.Outage(&tt.facts); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}

// TestUnknownModel: a provider that finds nothing, ever, does not know the model.
func TestUnknownModel(t *testing.T) {
	tests := []struct {
		name  string
		facts relay.Facts
		want  bool
	}{
		{"nothing happened", relay.Facts{}, false},
		{"404 alone", relay.Facts{Sent: 2, Statuses: []int{404, 404}}, true},
		{"404 after an answer", relay.Facts{Sent: 2, Succeeded: 1, Statuses: []int{200, 404}}, false},
		{"404 after an answer that is no longer listed", relay.Facts{Sent: 20, Succeeded: 1, Statuses: []int{404, 404}}, false},
		{"another answer to a bad request", relay.Facts{Sent: 2, Statuses: []int{400, 404}}, false},
		{"an answer that the agent did not wait for", relay.Facts{Sent: 2, Left: 1, Statuses: []int{0, 404}}, false},
	}
	for _, tt := range tests {
		if got := harness.UnknownModel(&tt.facts); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
}
