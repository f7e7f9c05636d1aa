package relay

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/securebench/sbench/proxy/relay/request"
)

// A reason says in the log why a request was refused or not answered. Failures on the
// provider's side have a [Cause] instead. A [request.Reason] is a reason, too.
type reason string

const (
	badPath      reason = "path_not_allowed"
	noToken      reason = "not_the_agent"
	badHeader    reason = "header_not_allowed"
	badHead      reason = "malformed_head" // net/http answered by itself
	badEncoding  reason = "encoding_not_allowed"
	tooLarge     reason = "body_too_large"
	unreadable   reason = "body_unreadable"
	badRequest   reason = reason(request.Bad)
	badModel     reason = reason(request.BadModel)
	externalTool reason = reason(request.External)
	overBudget   reason = "budget_exceeded"
	tooMany      reason = "too_many_requests"
	tooMuch      reason = "inspection_limit"
	tooManyInAll reason = "request_limit"
	logFailed    reason = "log_failed"
	agentLeft    reason = "agent_left"
	relayClosed  reason = "relay_closed"
)

// A refusal is the relay's own answer. The agent sees its message, which consists of fixed texts, the
// configured model and names that passed [request.CleanName]. The usual status depends on the
// provider, so that its own client does not retry: codex retries after a 403, and claude after a 400.
type refusal struct {
	status  int
	reason  reason
	message string
}

// notPermitted is the status of a refusal that is answered with api.forbidden.
const notPermitted = 0

func (r *refusal) Error() string { return r.message }

// errTooMany tells the agent to retry a little later.
var errTooMany = &refusal{http.StatusTooManyRequests, tooMany, "too many requests at once"}

// errTooMuch also tells the agent to retry: inspecting its requests costs the host more than allowed.
var errTooMuch = &refusal{http.StatusTooManyRequests, tooMuch, "too many bytes of requests to inspect"}

// refusalOf returns the refusal of a body, or of anything else.
func refusalOf(err error) *refusal {
	ref := &refusal{http.StatusInternalServerError, badRequest, "internal error"}
	if bad := (*request.Error)(nil); errors.As(err, &bad) {
		ref = &refusal{notPermitted, reason(bad.Reason), bad.Message}
		if bad.Reason == request.Bad || bad.Reason == request.BadJSON {
			ref.status = http.StatusBadRequest
		}
	}
	_ = errors.As(err, &ref)
	return ref
}

// errorBody returns an error with the fields of all providers.
func errorBody(p Provider, status int, code, message string) []byte {
	name := apis()[p].errorName(status)
	body := map[string]any{
		"type":  "error",
		"error": map[string]any{"type": name, "code": code, "message": "sbench: " + message, "param": nil},
	}
	if p == Google {
		body = map[string]any{
			"error": map[string]any{"code": status, "status": name, "message": "sbench: " + code + ": " + message},
		}
	}
	b, _ := json.Marshal(body) // cannot fail: strings and a number
	return append(b, '\n')
}
