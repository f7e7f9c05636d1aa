package relay

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/securebench/sbench/proxy"
)

// maxAnswer bounds the bytes of an unstreamed answer that are kept to read its counts.
const maxAnswer = 32 << 20

// maxTokens is more than any answer has. A count above it, or below zero, is garbage.
const maxTokens = 1 << 40

// A meter reads the token counts from one answer while that passes through the relay.
type meter struct {
	dialect dialect
	stream  bool
	events  eventReader
	body    []byte // of an unstreamed answer
	over    bool   // the answer was too large to keep
	bytes   int64  // of the answer

	usage counts
	whole bool  // the end that the API defines has come
	cause Cause // of an error in place of an answer; empty: none
	erred bool  // there was an error, on whatever side
}

func newMeter(d dialect, stream bool) *meter {
	m := &meter{dialect: d, stream: stream}
	m.events.event = m.event
	return m
}

// write takes the next bytes of the answer. It does not retain p.
func (m *meter) write(p []byte) {
	m.bytes += int64(len(p))
	switch {
	case m.stream:
		m.events.write(p)
	case len(m.body)+len(p) > maxAnswer:
		m.over, m.body = true, nil
	case !m.over:
		m.body = append(m.body, p...)
	}
}

// close returns what was counted, also for an answer that is an error, since that may
// have cost tokens before. Counts that are missing are estimated from the bytes of the
// request and of the answer, and are never 0. most says that they may be as high as b:
// the agent left, which it can do at any time, or the relay stopped waiting.
func (m *meter) close(b bounds, most bool) proxy.Usage {
	if m.stream {
		m.events.close()
	} else {
		m.answer(m.body)
	}
	u := m.usage.sum(m.dialect, b)
	if m.dialect == noUsage {
		return u
	}
	if u.Input == 0 {
		u.Input, u.Estimated = estimateInput(b.input), true
		if most {
			u.Input = max(b.input, 1)
		}
	}
	if !m.counted() || u.Output == 0 {
		u.Output, u.Estimated = max(u.Output, m.bytes/8, 1), true
		if most {
			u.Output = max(u.Output, b.output)
		}
	}
	return u
}

// counted reports whether all counts have come.
func (m *meter) counted() bool { return m.whole && m.usage.final }

// estimateInput assumes four bytes a token, as in English text.
func estimateInput(bytes int64) int64 { return max(bytes/4, 1) }

// A count is a number of tokens. It is read leniently, since providers and gateways
// differ: fractions are rounded up, and a number may be in a string. Anything else, and
// a number that is negative or absurd, is garbage.
type count int64

const garbage count = -1

// UnmarshalJSON does not fail. Null leaves the count as it is.
func (c *count) UnmarshalJSON(raw []byte) error {
	text := strings.TrimSpace(strings.Trim(string(raw), `"`))
	if text == "null" {
		return nil
	}
	*c = garbage
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f <= maxTokens {
		*c = count(math.Ceil(f))
	}
	return nil
}

// counts are the largest values in an answer: in a stream, counts are cumulative.
type counts struct {
	iteration
	InputDetails      details `json:"input_tokens_details"`
	OutputDetails     details `json:"output_tokens_details"`
	Prompt            count   `json:"prompt_tokens"`
	Completion        count   `json:"completion_tokens"`
	PromptDetails     details `json:"prompt_tokens_details"`
	CompletionDetails details `json:"completion_tokens_details"`
	// Iterations are the samplings of one Anthropic answer, such as a compaction,
	// which the other counts leave out.
	Iterations []iteration `json:"iterations"`

	final bool // a count of the whole output has come
}

type iteration struct {
	Input         count `json:"input_tokens"`
	CacheCreation count `json:"cache_creation_input_tokens"`
	CacheRead     count `json:"cache_read_input_tokens"`
	Output        count `json:"output_tokens"`
}

type details struct {
	Cached    count `json:"cached_tokens"`
	Reasoning count `json:"reasoning_tokens"`
	Thinking  count `json:"thinking_tokens"`
}

// all returns all counts but those of the iterations.
func (c *counts) all() []*count {
	return []*count{
		&c.Input, &c.CacheCreation, &c.CacheRead, &c.Output, &c.InputDetails.Cached, &c.OutputDetails.Reasoning, &c.OutputDetails.Thinking,
		&c.Prompt, &c.Completion, &c.PromptDetails.Cached, &c.CompletionDetails.Reasoning,
	}
}

// larger sets *a to b if b is larger or garbage. Garbage stays.
func larger(a *count, b count) {
	if *a != garbage && (b == garbage || b > *a) {
		*a = b
	}
}

func (c *counts) merge(b *counts) {
	var sum counts
	for _, it := range b.Iterations {
		plus(&sum.Input, it.Input)
		plus(&sum.CacheCreation, it.CacheCreation)
		plus(&sum.CacheRead, it.CacheRead)
		plus(&sum.Output, it.Output)
	}
	for i, mine := range c.all() {
		larger(mine, *b.all()[i])
		larger(mine, *sum.all()[i])
	}
}

func plus(a *count, b count) {
	if *a == garbage || b == garbage {
		*a = garbage
		return
	}
	*a = min(*a+b, maxTokens)
}

// sum converts the counts of an API. Garbage becomes its bound.
func (c *counts) sum(d dialect, b bounds) proxy.Usage {
	var in, cached, out, reasoning count
	switch d {
	case messages:
		in, cached, out, reasoning = c.Input, c.CacheRead, c.Output, c.OutputDetails.Thinking
		plus(&in, c.CacheCreation)
		plus(&in, c.CacheRead)
	case responses:
		in, cached, out, reasoning = c.Input, c.InputDetails.Cached, c.Output, c.OutputDetails.Reasoning
	case chat:
		in, cached, out, reasoning = c.Prompt, c.PromptDetails.Cached, c.Completion, c.CompletionDetails.Reasoning
	}
	u := proxy.Usage{Input: int64(in), Output: int64(out), Estimated: in == garbage || out == garbage}
	if in == garbage {
		u.Input = b.input
	}
	if out == garbage {
		u.Output = b.output
	}
	u.Cached, u.Reasoning = min(max(int64(cached), 0), u.Input), min(max(int64(reasoning), 0), u.Output)
	return u
}

// bounds are upper bounds of the tokens that one request can cost.
type bounds struct {
	input  int64 // bytes of the request: a token has at least one
	output int64 // what the request allowed the model to write
}

// An event has the fields that matter here, of an answer or of one event of a stream.
// They are decoded one by one, since "message" may be an object or a string.
type event struct {
	Type     json.RawMessage `json:"type"`
	Usage    json.RawMessage `json:"usage"`
	Error    json.RawMessage `json:"error"`
	Code     json.RawMessage `json:"code"` // of an error event of the Responses API
	Message  json.RawMessage `json:"message"`
	Response json.RawMessage `json:"response"`
}

type errorValue struct {
	Type json.RawMessage `json:"type"`
	Code json.RawMessage `json:"code"` // a string, or a number at some gateways
}

// decode returns nil for what is absent, null or of another type.
func decode[T any](raw json.RawMessage) *T {
	var v *T
	if len(raw) == 0 || json.Unmarshal(raw, &v) != nil {
		return nil
	}
	return v
}

func str(raw json.RawMessage) string {
	if s := decode[string](raw); s != nil {
		return *s
	}
	return ""
}

// event reads one event of a stream. It parses only those that may have counts, errors
// or the end.
func (m *meter) event(data []byte) {
	if m.dialect == chat && bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]")) {
		m.whole = true
		return
	}
	for _, sign := range []string{`"usage"`, `"error"`, "message_stop", "response.completed", "response.incomplete", "response.failed"} {
		if bytes.Contains(data, []byte(sign)) {
			m.parse(data)
			return
		}
	}
}

func (m *meter) parse(data []byte) {
	var e event
	if json.Unmarshal(data, &e) != nil {
		return
	}
	kind := str(e.Type)
	m.add(e.Usage, kind == "message_delta" || m.dialect == chat)
	switch kind {
	case "message_start":
		if msg := decode[event](e.Message); msg != nil {
			m.add(msg.Usage, false)
		}
	case "message_stop":
		m.whole = m.whole || m.dialect == messages
	case "response.completed", "response.incomplete", "response.failed":
		m.whole = m.whole || m.dialect == responses
		if resp := decode[event](e.Response); resp != nil {
			m.add(resp.Usage, true)
			m.fail(resp.Error)
		}
	case "error":
		if absent(e.Error) {
			m.fail(data)
		}
	}
	m.fail(e.Error)
}

func (m *meter) add(raw json.RawMessage, final bool) {
	if absent(raw) {
		return
	}
	c := counts{iteration: iteration{Input: garbage, Output: garbage}, Prompt: garbage, Completion: garbage}
	if kindOf(raw) == '{' {
		c = counts{}
		_ = json.Unmarshal(raw, &c) // skips values of another type, and reads the others
	}
	m.usage.merge(&c)
	m.usage.final = m.usage.final || final
}

// answer reads an unstreamed answer.
func (m *meter) answer(body []byte) {
	var e event
	if json.Unmarshal(body, &e) != nil {
		return
	}
	m.whole = true
	m.add(e.Usage, true)
	m.fail(e.Error)
}

// fail records an error in an answer that began well, and its cause if it is on the
// provider's side.
func (m *meter) fail(raw json.RawMessage) {
	if absent(raw) {
		return
	}
	m.erred = true
	e := decode[errorValue](raw)
	if e == nil {
		return
	}
	for _, word := range []string{str(e.Type), str(e.Code)} {
		switch word {
		case "rate_limit_error", "rate_limit_exceeded", "insufficient_quota":
			m.cause = RateLimited
		case "overloaded_error", "api_error", "timeout_error", "server_error", "internal_server_error", "server_is_overloaded", "slow_down":
			m.cause = ServerError
		}
	}
}
