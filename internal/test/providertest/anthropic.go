package providertest

import (
	"encoding/json"
	"fmt"
)

// anthropic is the Messages API.
type anthropic struct{}

type m = map[string]any

func (anthropic) usage(u Usage, output int64) m {
	return m{
		"input_tokens": u.Input - u.Cached, "cache_read_input_tokens": u.Cached, "cache_creation_input_tokens": 0, "output_tokens": output,
		"output_tokens_details": m{"thinking_tokens": min(u.Reasoning, output)},
	}
}

// blocks returns the content, with the deltas in which a stream sends each block.
func (anthropic) blocks(r reply) (blocks []m, deltas [][]m) {
	add := func(block m, pieces ...m) { blocks, deltas = append(blocks, block), append(deltas, pieces) }
	write := func(kind, field, text string) (all []m) {
		for _, p := range pieces(text) {
			all = append(all, m{"type": kind, field: p})
		}
		return all
	}
	if r.think != "" {
		add(m{"type": "thinking", "thinking": r.think, "signature": "c2lnbmF0dXJl"}, append(write("thinking_delta", "thinking", r.think), m{"type": "signature_delta", "signature": "c2lnbmF0dXJl"})...)
	}
	if r.text != "" {
		add(m{"type": "text", "text": r.text}, write("text_delta", "text", r.text)...)
	}
	if c := r.call; c != nil {
		add(m{"type": "tool_use", "id": c.id, "name": c.name, "input": json.RawMessage(c.input)}, write("input_json_delta", "partial_json", c.input)...)
	}
	return blocks, deltas
}

func (d anthropic) message(r reply, content []m, stop any, usage m) m {
	return m{
		"id": fmt.Sprintf("msg_sbench_%04d", r.n), "type": "message", "role": "assistant", "model": r.model,
		"content": content, "stop_reason": stop, "stop_sequence": nil, "usage": usage,
	}
}

func (anthropic) stop(r reply) string {
	if r.call != nil {
		return "tool_use"
	}
	return "end_turn"
}

func (d anthropic) answer(r reply) any {
	blocks, _ := d.blocks(r)
	return d.message(r, blocks, d.stop(r), d.usage(r.usage, r.usage.Output))
}

func (d anthropic) events(_ turn, r reply) []sseEvent {
	var all []sseEvent
	add := func(v m) { all = append(all, sseEvent{v["type"].(string), v}) }
	add(m{"type": "message_start", "message": d.message(r, []m{}, nil, d.usage(r.usage, 1))})
	add(m{"type": "ping"})
	blocks, deltas := d.blocks(r)
	for i, b := range blocks {
		add(m{"type": "content_block_start", "index": i, "content_block": emptied(b)})
		for _, delta := range deltas[i] {
			add(m{"type": "content_block_delta", "index": i, "delta": delta})
		}
		add(m{"type": "content_block_stop", "index": i})
	}
	add(m{"type": "message_delta", "delta": m{"stop_reason": d.stop(r), "stop_sequence": nil}, "usage": d.usage(r.usage, r.usage.Output)})
	add(m{"type": "message_stop"})
	return all
}

// emptied returns a block as it is at its beginning in a stream.
func emptied(b m) m {
	switch b["type"] {
	case "text":
		return m{"type": "text", "text": ""}
	case "thinking":
		return m{"type": "thinking", "thinking": "", "signature": ""}
	}
	return m{"type": "tool_use", "id": b["id"], "name": b["name"], "input": m{}}
}

func (anthropic) failure(kind, message string) any {
	return m{"type": "error", "error": m{"type": kind, "message": message}, "request_id": "req_sbench"}
}
