package providertest

import (
	"encoding/json"
	"fmt"
)

// responses is OpenAI's Responses API.
type responses struct{}

func (responses) idPrefix() string { return "call_sbench_" }

// A responsesTool is a tool, or a namespace of tools.
type responsesTool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []responsesTool `json:"tools"`
}

func (t responsesTool) offers(namespace string) (all []offer) {
	switch t.Type {
	case "namespace":
		for _, inner := range t.Tools {
			all = append(all, inner.offers(t.Name)...)
		}
	case "function", "custom":
		o := offer{name: t.Name, namespace: namespace, description: t.Description, freeText: t.Type == "custom"}
		_ = json.Unmarshal(t.Parameters, &o.schema) // a schema of another form has no properties
		all = append(all, o)
	}
	return all
}

func (d responses) parse(body []byte) (turn, error) {
	var req struct {
		Model  string          `json:"model"`
		Stream bool            `json:"stream"`
		Input  json.RawMessage `json:"input"`
		Tools  []responsesTool `json:"tools"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return turn{}, fmt.Errorf("responses: %w", err)
	}
	t := turn{model: req.Model, stream: req.Stream}
	for _, tool := range req.Tools {
		t.offers = append(t.offers, tool.offers("")...)
	}
	var items []struct {
		Type   string          `json:"type"`
		Role   string          `json:"role"`
		CallID string          `json:"call_id"`
		Tools  []responsesTool `json:"tools"`
	}
	_ = json.Unmarshal(req.Input, &items) // a string has no items
	for _, item := range items {
		for _, tool := range item.Tools {
			t.offers = append(t.offers, tool.offers("")...)
		}
		if n, ok := stepOf(item.CallID, d.idPrefix()); ok {
			t.next = n + 1
		} else if item.Role == "assistant" {
			t.next++
		}
	}
	return t, nil
}

func (responses) usage(u Usage) m {
	return m{
		"input_tokens": u.Input, "input_tokens_details": m{"cached_tokens": u.Cached},
		"output_tokens": u.Output, "output_tokens_details": m{"reasoning_tokens": u.Reasoning},
		"total_tokens": u.Input + u.Output,
	}
}

func (responses) items(r reply) (items []m) {
	if r.think != "" {
		items = append(items, m{
			"type": "reasoning", "id": fmt.Sprintf("rs_sbench_%04d", r.n), "summary": []m{{"type": "summary_text", "text": r.think}},
		})
	}
	if r.text != "" {
		items = append(items, m{
			"type": "message", "id": fmt.Sprintf("msg_sbench_%04d", r.n), "role": "assistant", "status": "completed",
			"content": []m{{"type": "output_text", "text": r.text, "annotations": []m{}}},
		})
	}
	if c := r.call; c != nil {
		item := m{"type": "function_call", "id": fmt.Sprintf("fc_sbench_%04d", r.n), "call_id": c.id, "name": c.name, "arguments": c.input, "status": "completed"}
		if c.freeText {
			item = m{"type": "custom_tool_call", "id": fmt.Sprintf("ctc_sbench_%04d", r.n), "call_id": c.id, "name": c.name, "input": c.input, "status": "completed"}
		}
		if c.namespace != "" {
			item["namespace"] = c.namespace
		}
		items = append(items, item)
	}
	return items
}

func (d responses) response(r reply, status string, items []m, usage any) m {
	return m{
		"id": fmt.Sprintf("resp_sbench_%04d", r.n), "object": "response", "created_at": 1700000000, "status": status, "model": r.model,
		"output": items, "usage": usage, "error": nil, "incomplete_details": nil, "tools": []m{}, "parallel_tool_calls": false,
	}
}

func (d responses) answer(r reply) any {
	return d.response(r, "completed", d.items(r), d.usage(r.usage))
}

func (d responses) events(_ turn, r reply) []sseEvent {
	var all []sseEvent
	add := func(kind string, v m) {
		v["type"], v["sequence_number"] = kind, len(all)
		all = append(all, sseEvent{kind, v})
	}
	add("response.created", m{"response": d.response(r, "in_progress", []m{}, nil)})
	items := d.items(r)
	for i, item := range items {
		at := func(v m) m { v["output_index"], v["item_id"] = i, item["id"]; return v }
		add("response.output_item.added", m{"output_index": i, "item": begun(item)})
		switch item["type"] {
		case "message":
			add("response.content_part.added", at(m{"content_index": 0, "part": m{"type": "output_text", "text": "", "annotations": []m{}}}))
			for _, p := range pieces(r.text) {
				add("response.output_text.delta", at(m{"content_index": 0, "delta": p}))
			}
			add("response.output_text.done", at(m{"content_index": 0, "text": r.text}))
		case "reasoning":
			add("response.reasoning_summary_part.added", at(m{"summary_index": 0, "part": m{"type": "summary_text", "text": ""}}))
			for _, p := range pieces(r.think) {
				add("response.reasoning_summary_text.delta", at(m{"summary_index": 0, "delta": p}))
			}
		case "function_call":
			for _, p := range pieces(r.call.input) {
				add("response.function_call_arguments.delta", at(m{"delta": p}))
			}
			add("response.function_call_arguments.done", at(m{"arguments": r.call.input}))
		case "custom_tool_call":
			for _, p := range pieces(r.call.input) {
				add("response.custom_tool_call_input.delta", at(m{"delta": p}))
			}
			add("response.custom_tool_call_input.done", at(m{"input": r.call.input}))
		}
		add("response.output_item.done", m{"output_index": i, "item": item})
	}
	add("response.completed", m{"response": d.response(r, "completed", items, d.usage(r.usage))})
	return all
}

// begun returns an item as it is at its beginning in a stream.
func begun(item m) m {
	b := m{}
	for k, v := range item {
		switch k {
		case "content", "summary":
			b[k] = []m{}
		case "arguments", "input":
			b[k] = ""
		case "status":
			b[k] = "in_progress"
		default:
			b[k] = v
		}
	}
	return b
}

func (responses) failure(kind, message string) any {
	return m{"error": m{"message": message, "type": kind, "param": nil, "code": nil}}
}

func (d responses) streamFailure(r reply, kind string) sseEvent {
	resp := d.response(r, "failed", []m{}, nil)
	resp["error"] = m{"code": kind, "message": "scripted failure"}
	return sseEvent{"response.failed", m{"type": "response.failed", "sequence_number": 1, "response": resp}}
}
