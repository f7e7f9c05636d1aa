package relay

import (
	"encoding/json"
	"net/http"
	"strings"
)

// A reason says in the log why a request was not simply answered. The list is
// closed; causes of the provider's side, see [Cause], belong to it.
type reason string

const (
	badPath      reason = "path_not_allowed"
	badHeader    reason = "header_not_allowed"
	badHead      reason = "malformed_head" // net/http answered by itself
	badEncoding  reason = "encoding_not_allowed"
	tooLarge     reason = "body_too_large"
	unreadable   reason = "body_unreadable"
	badJSON      reason = "malformed_json"
	badRequest   reason = "malformed_request"
	badModel     reason = "model_not_allowed"
	externalTool reason = "external_tool"
	keptState    reason = "state_not_allowed"
	overBudget   reason = "budget_exceeded"
	tooMany      reason = "too_many_requests"
	tooMuch      reason = "inspection_limit"
	tooManyInAll reason = "request_limit"
	logFailed    reason = "log_failed"
	agentLeft    reason = "agent_left"
	relayClosed  reason = "relay_closed"
)

// A refusal is an answer of the relay itself. Its message goes to the agent: it
// is made of our own words and of names that passed [cleanName].
type refusal struct {
	status  int // 0: what the provider uses for "not permitted"
	reason  reason
	message string
}

func (r *refusal) Error() string { return r.message }

func refuse(why reason, message string) error {
	return &refusal{reason: why, message: message}
}

// errTooMany is for an agent that shall ask again a little later.
var errTooMany = &refusal{status: http.StatusTooManyRequests, reason: tooMany, message: "too many requests at once"}

// errTooMuch, too: its requests cost the host more than it is allowed.
var errTooMuch = &refusal{status: http.StatusTooManyRequests, reason: tooMuch, message: "too many bytes of requests to look at"}

func malformed(message string) error {
	return &refusal{status: http.StatusBadRequest, reason: badRequest, message: message}
}

// statusFor is the status that ends the run of the provider's own client at
// once instead of being tried again: codex tries a 403 six times, and claude
// tries a 400 again without beta features.
func (r *refusal) statusFor(p Provider) int {
	switch {
	case r.status != 0:
		return r.status
	case p == OpenAI:
		return http.StatusBadRequest
	}
	return http.StatusForbidden
}

// errorType is the provider's word for a status.
func errorType(p Provider, status int) string {
	switch {
	case status == http.StatusTooManyRequests:
		return "rate_limit_error"
	case status >= 500 && p == OpenAI:
		return "server_error"
	case status >= 500:
		return "api_error"
	case status == http.StatusUnauthorized:
		return "authentication_error"
	case status == http.StatusForbidden:
		return "permission_error"
	case status == http.StatusNotFound && p == Anthropic:
		return "not_found_error"
	}
	return "invalid_request_error"
}

// errorBody has the shape of both providers in one.
func errorBody(p Provider, status int, code, message string) []byte {
	var body struct {
		Type  string `json:"type"`
		Error struct {
			Type    string  `json:"type"`
			Code    string  `json:"code"`
			Message string  `json:"message"`
			Param   *string `json:"param"`
		} `json:"error"`
	}
	body.Type = "error"
	body.Error.Type, body.Error.Code = errorType(p, status), code
	body.Error.Message = "sbench: " + message
	b, _ := json.Marshal(body) // of strings: it cannot fail
	return append(b, '\n')
}

// cleanName returns a name of the agent's for logs and messages, or "unknown" if
// it is none.
func cleanName(s string) string {
	const known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@[]"
	if s == "" || len(s) > 64 || strings.Trim(s, known) != "" {
		return "unknown"
	}
	return s
}
