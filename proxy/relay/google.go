package relay

import (
	"encoding/json"
	"net/http"
	"strings"

	"github.com/securebench/sbench/proxy/relay/request"
)

// google reads an answer, or an event of a stream, which has the same form. In a stream, the counts
// are complete in the event with the finish reason.
func (m *meter) google(data []byte) {
	e := object(data)
	var candidates []struct {
		FinishReason string `json:"finishReason"`
	}
	_ = json.Unmarshal(e["candidates"], &candidates) // an error has no candidates
	finished := !absent(object(e["promptFeedback"])["blockReason"])
	for _, c := range candidates {
		finished = finished || c.FinishReason != ""
	}
	m.whole = m.whole || finished
	m.add(e["usageMetadata"], m.whole)
	m.fail(e["error"])
}

// modelOf returns the model that a request to Google's API names in its path; "" if
// there is none.
func modelOf(req *http.Request) string {
	rest, ok := strings.CutPrefix(req.URL.Path, "/v1beta/models/")
	model, call, isCall := strings.Cut(rest, ":")
	if !ok || !isCall || req.Method != http.MethodPost || request.CleanName(call) != call {
		return ""
	}
	return request.CleanName(model)
}
