package providertest

import (
	"encoding/json"
	"fmt"
)

// chat is OpenAI's Chat Completions API, without tools: neither agent uses it.
type chat struct{}

func (chat) idPrefix() string { return "call_sbench_" }

func (chat) parse(body []byte) (turn, error) {
	var req struct {
		Model         string `json:"model"`
		Stream        bool   `json:"stream"`
		StreamOptions struct {
			IncludeUsage bool `json:"include_usage"`
		} `json:"stream_options"`
		Messages []struct {
			Role string `json:"role"`
		} `json:"messages"`
	}
	if err := json.Unmarshal(body, &req); err != nil {
		return turn{}, fmt.Errorf("chat completions: %w", err)
	}
	t := turn{model: req.Model, stream: req.Stream, count: req.StreamOptions.IncludeUsage}
	for _, msg := range req.Messages {
		if msg.Role == "assistant" {
			t.next++
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

func (d chat) frame(r reply, object string, choices []m) m {
	return m{"id": fmt.Sprintf("chatcmpl-sbench-%04d", r.n), "object": object, "created": 1700000000, "model": r.model, "choices": choices}
}

func (d chat) answer(r reply) any {
	choice := m{"index": 0, "message": m{"role": "assistant", "content": r.text}, "finish_reason": "stop"}
	v := d.frame(r, "chat.completion", []m{choice})
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
	for _, p := range pieces(r.text) {
		delta(m{"content": p}, nil)
	}
	delta(m{}, "stop")
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
