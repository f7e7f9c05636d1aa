package providertest

import (
	"encoding/json"
	"fmt"
)

// chat is OpenAI's Chat Completions API.
type chat struct{}

func (chat) idPrefix() string { return "call_sbench_" }

func (d chat) parse(body []byte) (turn, error) {
	var req struct {
		Model         string `json:"model"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Messages []struct {
			Role      string `json:"role"`
			ToolCalls []struct {
				ID string `json:"id"`
			} `json:"tool_calls"`
		} `json:"messages"`
		Tools []struct {
			Function struct {
				Name        string          `json:"name"`
				Description string          `json:"description"`
				Parameters  json.RawMessage `json:"parameters"`
			} `json:"function"`
		} `json:"tools"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return turn{}, fmt.Errorf("chat completions: %w", err)
	}
	t := turn{model: req.Model, stream: req.Stream, count: req.StreamOptions.IncludeUsage}
	for _, tool := range req.Tools {
		o := offer{name: tool.Function.Name, description: tool.Function.Description}
		_ = json.Unmarshal(tool.Function.Parameters, &o.schema) // a schema of another form has no properties
		t.offers = append(t.offers, o)
	}
	for _, msg := range req.Messages {
		if msg.Role != "assistant" {
			continue
		}
		t.next++
		for _, c := range msg.ToolCalls {
			if n, ok := stepOf(c.ID, d.idPrefix()); ok {
				t.next = n + 1
			}
		}
	}
	return t, nil
}

func (chat) usage(u Usage) m {
	return m{
		"prompt_tokens": u.Input, "prompt_tokens_details": m{"cached_tokens": u.Cached},
		"completion_tokens": u.Output, "completion_tokens_details": m{"reasoning_tokens": u.Reasoning},
		"total_tokens": u.Input + u.Output,
	}
}

func (chat) toolCall(c *toolCall, input string) m {
	return m{"index": 0, "id": c.id, "type": "function", "function": m{"name": c.name, "arguments": input}}
}

func (chat) finish(r reply) string {
	if r.call != nil {
		return "tool_calls"
	}
	return "stop"
}

func (d chat) frame(r reply, object string, choices []m) m {
	return m{"id": fmt.Sprintf("chatcmpl-sbench-%04d", r.n), "object": object, "created": 1700000000, "model": r.model, "choices": choices}
}

func (d chat) answer(r reply) any {
	msg := m{"role": "assistant", "content": nil}
	if r.text != "" {
		msg["content"] = r.text
	}
	if r.call != nil {
		msg["tool_calls"] = []m{d.toolCall(r.call, r.call.input)}
	}
	v := d.frame(r, "chat.completion", []m{{"index": 0, "message": msg, "finish_reason": d.finish(r)}})
	v["usage"] = d.usage(r.usage)
	return v
}

func (d chat) events(t turn, r reply) []sseEvent {
	var all []sseEvent
	add := func(choices []m, usage any) {
		v := d.frame(r, "chat.completion.chunk", choices)
		if t.count {
			v["usage"] = usage
		}
		all = append(all, sseEvent{"", v})
	}
	delta := func(v m, finish any) { add([]m{{"index": 0, "delta": v, "finish_reason": finish}}, nil) }
	delta(m{"role": "assistant", "content": ""}, nil)
	if r.text != "" {
		for _, p := range pieces(r.text) {
			delta(m{"content": p}, nil)
		}
	}
	if c := r.call; c != nil {
		delta(m{"tool_calls": []m{d.toolCall(c, "")}}, nil)
		for _, p := range pieces(c.input) {
			delta(m{"tool_calls": []m{{"index": 0, "function": m{"arguments": p}}}}, nil)
		}
	}
	delta(m{}, d.finish(r))
	if t.count {
		add([]m{}, d.usage(r.usage))
	}
	return append(all, sseEvent{"", "[DONE]"})
}

func (chat) failure(kind, message string) any {
	return m{"error": m{"message": message, "type": kind, "param": nil, "code": nil}}
}

func (d chat) streamFailure(_ reply, kind string) sseEvent {
	return sseEvent{"", d.failure(kind, "scripted failure")}
}
