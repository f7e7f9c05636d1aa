package providertest

import (
	"fmt"
	"maps"
)

// responses is OpenAI's Responses API.
type responses struct{ openAI }

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
		kind, prefix, field := "function_call", "fc", "arguments"
		if c.freeText {
			kind, prefix, field = "custom_tool_call", "ctc", "input"
		}
		item := m{"type": kind, "id": fmt.Sprintf("%s_sbench_%04d", prefix, r.n), "call_id": c.id, "name": c.name, field: c.input, "status": "completed"}
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
	return d.response(r, "completed", d.items(r), d.usage(r.usage, "input", "output"))
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
		default:
			kind, field := "response.function_call_arguments", "arguments"
			if r.call.freeText {
				kind, field = "response.custom_tool_call_input", "input"
			}
			for _, p := range pieces(r.call.input) {
				add(kind+".delta", at(m{"delta": p}))
			}
			add(kind+".done", at(m{field: r.call.input}))
		}
		add("response.output_item.done", m{"output_index": i, "item": item})
	}
	add("response.completed", m{"response": d.response(r, "completed", items, d.usage(r.usage, "input", "output"))})
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

// chat is OpenAI's Chat Completions API.
type chat struct{ openAI }

// calls returns the call of an answer as a list, and why the answer ends.
func (chat) calls(r reply) (calls []m, finish string) {
	if c := r.call; c != nil {
		return []m{{"index": 0, "id": c.id, "type": "function", "function": m{"name": c.name, "arguments": c.input}}}, "tool_calls"
	}
	return nil, "stop"
}

func (d chat) frame(r reply, object string, choices []m) m {
	return m{"id": fmt.Sprintf("chatcmpl-sbench-%04d", r.n), "object": object, "created": 1700000000, "model": r.model, "choices": choices}
}

func (d chat) answer(r reply) any {
	message := m{"role": "assistant", "content": r.text}
	calls, finish := d.calls(r)
	if calls != nil {
		message["tool_calls"] = calls
	}
	choice := m{"index": 0, "message": message, "finish_reason": finish}
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
	if r.text != "" {
		for _, p := range pieces(r.text) {
			delta(m{"content": p}, nil)
		}
	}
	calls, finish := d.calls(r)
	if calls != nil {
		for _, p := range pieces(r.call.input) {
			calls[0]["function"].(m)["arguments"] = p
			delta(m{"tool_calls": []m{maps.Clone(calls[0])}}, nil)
			calls = []m{{"index": 0, "function": m{}}} // only the first piece has a name
		}
	}
	delta(m{}, finish)
	if t.count {
		add([]m{}, d.usage(r.usage, "prompt", "completion"))
	}
	return append(all, sseEvent{"", "[DONE]"})
}

// openAI is what the two APIs of OpenAI share.
type openAI struct{}

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
