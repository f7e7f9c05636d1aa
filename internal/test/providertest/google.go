package providertest

import (
	"encoding/json"
	"fmt"
	"net/http"
)

// google is generateContent of Google's Gemini API. Requests have the model and the kind of answer in
// the path.
type google struct{ stream bool }

// piece is an answer, or a part of a stream. reason is "" if there is more.
func (google) piece(r reply, parts []m, reason string) m {
	candidate := m{"index": 0, "content": m{"role": "model", "parts": parts}}
	usage := m{"promptTokenCount": r.usage.Input, "totalTokenCount": r.usage.Input}
	if reason != "" {
		candidate["finishReason"] = reason
		usage = m{
			"promptTokenCount": r.usage.Input, "cachedContentTokenCount": r.usage.Cached, "candidatesTokenCount": r.usage.Output - r.usage.Reasoning,
			"thoughtsTokenCount": r.usage.Reasoning, "totalTokenCount": r.usage.Input + r.usage.Output,
		}
	}
	return m{"candidates": []m{candidate}, "usageMetadata": usage, "modelVersion": r.model, "responseId": fmt.Sprintf("sbench_%04d", r.n)}
}

// parts returns the answer's parts, and the same cut as a stream has them.
func (google) parts(r reply) (whole, cut []m) {
	if r.think != "" {
		whole = append(whole, m{"text": r.think, "thought": true})
		for _, p := range pieces(r.think) {
			cut = append(cut, m{"text": p, "thought": true})
		}
	}
	if r.text != "" {
		whole = append(whole, m{"text": r.text})
		for _, p := range pieces(r.text) {
			cut = append(cut, m{"text": p})
		}
	}
	if c := r.call; c != nil {
		part := m{"functionCall": m{"id": c.id, "name": c.name, "args": json.RawMessage(c.input)}, "thoughtSignature": "c2lnbmF0dXJl"}
		whole, cut = append(whole, part), append(cut, part)
	}
	return whole, cut
}

func (d google) answer(r reply) any {
	whole, _ := d.parts(r)
	return d.piece(r, whole, "STOP")
}

func (d google) events(_ turn, r reply) (all []sseEvent) {
	_, cut := d.parts(r)
	for i, part := range cut {
		reason := ""
		if i == len(cut)-1 {
			reason = "STOP"
		}
		all = append(all, sseEvent{"", d.piece(r, []m{part}, reason)})
	}
	return all
}

func (google) failure(kind, message string) any {
	status, code := "INVALID_ARGUMENT", http.StatusBadRequest
	details := []m{}
	switch kind {
	case "rate_limit_error":
		status, code = "RESOURCE_EXHAUSTED", http.StatusTooManyRequests
	case "authentication_error":
		details = []m{{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}}
	case "api_error", "server_error", "overloaded_error":
		status, code = "UNAVAILABLE", http.StatusServiceUnavailable
	}
	return m{"error": m{"code": code, "message": message, "status": status, "details": details}}
}
