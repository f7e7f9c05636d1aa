package relay

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/securebench/sbench/proxy"
)

// maxAnswer bounds the answer without a stream that is kept for its counts.
const maxAnswer = 32 << 20

// maxTokens is more than any answer has. What is above it, or below zero, does
// not count.
const maxTokens = 1 << 40

// A meter reads the counts out of one answer that passes by.
type meter struct {
	dialect dialect
	stream  bool
	events  eventReader
	body    []byte // of an answer without a stream
	over    bool   // body is not all
	bytes   int64

	usage counts
	whole bool  // the end that the API promises was there
	cause Cause // of an error in place of an answer; empty: none
	erred bool  // there was one, of whatever kind
}

func newMeter(d dialect, stream bool) *meter {
	m := &meter{dialect: d, stream: stream}
	m.events.event = m.event
	return m
}

// write takes the next bytes of the answer, and keeps none of p.
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

// close returns what was counted, of an answer that is an error, too: it may have
// cost before. What the provider did not say is estimated from the bytes of the request
// and of the answer, and is never 0. Most says that it may as well be the bound: the
// agent left, which it can do when it likes, or the relay did.
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

// counted says that nothing is left to be counted.
func (m *meter) counted() bool { return m.whole && m.usage.final }

// estimateInput takes four bytes for a token, as texts in English have it.
func estimateInput(bytes int64) int64 { return max(bytes/4, 1) }

// A count is a number of tokens, as leniently as providers and gateways write it:
// a fraction, and a string of a number, count too, rounded up. What is none of
// these, negative or absurd is garbage.
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

// counts are the largest of each count that an answer had: those of a stream are
// cumulative.
type counts struct {
	iteration
	InputDetails      details `json:"input_tokens_details"`
	OutputDetails     details `json:"output_tokens_details"`
	Prompt            count   `json:"prompt_tokens"`
	Completion        count   `json:"completion_tokens"`
	PromptDetails     details `json:"prompt_tokens_details"`
	CompletionDetails details `json:"completion_tokens_details"`
	// Iterations are the samplings of one Anthropic answer, such as a compaction
	// that the counts beside it leave out.
	Iterations []iteration `json:"iterations"`

	final bool // one was there that counts the whole output
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

// all are those of the counts that an API has beside its iterations.
func (c *counts) all() []*count {
	return []*count{
		&c.Input, &c.CacheCreation, &c.CacheRead, &c.Output, &c.InputDetails.Cached, &c.OutputDetails.Reasoning, &c.OutputDetails.Thinking,
		&c.Prompt, &c.Completion, &c.PromptDetails.Cached, &c.CompletionDetails.Reasoning,
	}
}

// larger puts into *a what is larger in b. Garbage stays.
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

// sum puts the counts of an API together. What is garbage is its bound.
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

// bounds are more tokens than one answer can cost.
type bounds struct {
	input  int64 // a token has a byte of the request at least
	output int64 // what the request allowed the model to write
}

// An event is what an answer or a piece of one may say about itself. Its fields
// are read one by one: a "message" is an object here and a text there.
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

// event looks at one of a stream. Only those that may say something are parsed.
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
		_ = json.Unmarshal(raw, &c) // what has another type is left out, and all else is read
	}
	m.usage.merge(&c)
	m.usage.final = m.usage.final || final
}

// answer looks at one without a stream.
func (m *meter) answer(body []byte) {
	var e event
	if json.Unmarshal(body, &e) != nil {
		return
	}
	m.whole = true
	m.add(e.Usage, true)
	m.fail(e.Error)
}

// fail sorts an error in an answer that began well by whose it is.
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
