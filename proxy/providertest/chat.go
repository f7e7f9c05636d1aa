package providertest

import "fmt"

// chat is OpenAI's Chat Completions API, without tools: neither agent uses it.
type chat struct{ openAI }

func (chat) offers(tool) []offer { return nil }

func (d chat) frame(r reply, object string, choices []m) m {
	return m{"id": fmt.Sprintf("chatcmpl-sbench-%04d", r.n), "object": object, "created": 1700000000, "model": r.model, "choices": choices}
}

func (d chat) answer(r reply) any {
	choice := m{"index": 0, "message": m{"role": "assistant", "content": r.text}, "finish_reason": "stop"}
	v := d.frame(r, "chat.completion", []m{choice})
	v["usage"] = d.usage(r.usage, "prompt", "completion")
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
		add([]m{}, d.usage(r.usage, "prompt", "completion"))
	}
	return append(all, sseEvent{"", "[DONE]"})
}

func (d chat) streamFailure(_ reply, kind string) sseEvent {
	return sseEvent{"", d.failure(kind, "scripted failure")}
}

// openAI is what the two APIs of OpenAI share.
type openAI struct{}

func (openAI) idPrefix() string { return "call_sbench_" }

func (openAI) usage(u Usage, input, output string) m {
	return m{
		input + "_tokens": u.Input, input + "_tokens_details": m{"cached_tokens": u.Cached},
		output + "_tokens": u.Output, output + "_tokens_details": m{"reasoning_tokens": u.Reasoning},
		"total_tokens": u.Input + u.Output,
	}
}

func (openAI) failure(kind, message string) any {
	return m{"error": m{"message": message, "type": kind, "param": nil, "code": nil}}
}
