package relay

import (
	"bytes"
	"encoding/json"
	"math"
	"strconv"
	"strings"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay/stream"
)

// maxAnswer bounds an unstreamed answer in memory, in bytes.
const maxAnswer = 32 << 20

// maxTokens is more than any answer has. A count above it is garbage.
const maxTokens = 1 << 40

// A meter reads the token counts from an answer that passes through the relay.
type meter struct {
	dialect  dialect
	tally    tally
	stream   bool
	events   stream.Events
	body     []byte        // of an unstreamed answer
	memory   stream.Memory // for body
	tooLarge bool          // the answer was too large to keep
	bytes    int64         // of the answer

	usage  counts
	final  bool  // a count of the whole output was read
	whole  bool  // the API's end of an answer was read
	cause  Cause // of an error instead of an answer; empty if none
	failed bool  // there was an error, on either side
	begun  bool  // a stream has had a part of an answer; see begins
}

// newMeter returns a meter that reserves its memory with hold.
func newMeter(d dialect, isStream bool, hold func(bytes int64) bool) *meter {
	m := &meter{dialect: d, tally: tallies()[d], stream: isStream, usage: counts{}, memory: stream.Memory{Hold: hold}}
	m.events.Event, m.events.Memory = m.read, stream.Memory{Hold: hold}
	return m
}

// write takes the next bytes of the answer. It does not retain p.
func (m *meter) write(p []byte) {
	m.bytes += int64(len(p))
	switch {
	case m.stream:
		m.events.Add(p)
	case len(m.body)+len(p) > maxAnswer || !m.memory.Enough(len(m.body)+len(p)):
		m.tooLarge, m.body = true, nil
	case !m.tooLarge:
		m.body = append(m.body, p...)
	}
}

// close returns the usage. It estimates missing counts from the bytes of the request and the answer,
// and never as 0 unless there was only an error. worst sets missing counts to b: nobody knows what the
// answer cost, because the agent closed the connection or the relay stopped waiting.
func (m *meter) close(b bounds, worst bool) proxy.Usage {
	if m.stream {
		m.events.Close()
	} else {
		m.read(m.body)
	}
	u := m.usage.sum(m.tally, b)
	if m.dialect == noUsage || m.failed && !m.begun {
		return u
	}
	if u.Input == 0 {
		u.Input, u.Estimated = estimateInput(b.input), true
		if worst {
			u.Input = max(b.input, 1)
		}
	}
	if !m.counted() || u.Output == 0 {
		u.Output, u.Estimated = max(u.Output, m.bytes/8, 1), true
		if worst {
			u.Output = max(u.Output, b.output)
		}
	}
	return u
}

// counted reports whether all counts were read.
func (m *meter) counted() bool { return m.whole && m.final }

// estimateInput assumes four bytes per token, as in English text.
func estimateInput(bytes int64) int64 { return max(bytes/4, 1) }

// garbage is the count of what is no number of tokens.
const garbage = maxTokens + 1

// countOf reads a count from JSON. It is lenient, since providers and gateways differ: it rounds fractions up, and reads
// a number in a string. Null and absent are 0. Anything else, including a negative or absurd number, is garbage.
func countOf(raw []byte) int64 {
	text := strings.TrimSpace(strings.Trim(string(raw), `"`))
	if len(raw) == 0 || text == "null" {
		return 0
	}
	if f, err := strconv.ParseFloat(text, 64); err == nil && f >= 0 && f <= maxTokens {
		return int64(math.Ceil(f))
	}
	return garbage
}

// counts are the largest values in an answer, by the names of a [tally]: in a stream, counts
// are cumulative.
type counts map[string]int64

// A tally names the object of an API's usage, and lists the fields in it that are added up for each count. An inner field
// has a name like "details.name".
type tally struct{ object, input, cached, output, reasoning string }

func tallies() map[dialect]tally {
	return map[dialect]tally{
		messages: {
			"usage", "input_tokens cache_creation_input_tokens cache_read_input_tokens", "cache_read_input_tokens",
			"output_tokens", "output_tokens_details.thinking_tokens",
		},
		responses: {
			"usage", "input_tokens", "input_tokens_details.cached_tokens",
			"output_tokens", "output_tokens_details.reasoning_tokens",
		},
		chat: {
			"usage", "prompt_tokens", "prompt_tokens_details.cached_tokens",
			"completion_tokens", "completion_tokens_details.reasoning_tokens",
		},
		generateContent: {
			"usageMetadata", "promptTokenCount toolUsePromptTokenCount", "cachedContentTokenCount",
			"candidatesTokenCount thoughtsTokenCount", "thoughtsTokenCount",
		},
	}
}

// add merges the counts of a usage object. If usage is no object, all counts become garbage.
func (c counts) add(t tally, usage json.RawMessage) {
	fields := object(usage)
	names := strings.Fields(t.input + " " + t.cached + " " + t.output + " " + t.reasoning)
	// An Anthropic answer may have several samplings, such as a compaction, which the other counts omit.
	sums := counts{}
	each(fields["iterations"], func(sampling map[string]json.RawMessage) {
		for _, name := range names {
			sums[name] = min(sums[name]+countOf(sampling[name]), garbage)
		}
	})
	for _, name := range names {
		outer, inner, isDetail := strings.Cut(name, ".")
		raw := fields[outer]
		if isDetail {
			raw = object(raw)[inner]
		}
		n := countOf(raw)
		if fields == nil {
			n = garbage
		}
		c[name] = min(max(c[name], n, sums[name]), garbage)
	}
}

// sum adds up the counts. If a count of the input is garbage, the whole input is its bound; so is the output.
func (c counts) sum(t tally, b bounds) proxy.Usage {
	total := func(names string, bound int64) (n int64, estimated bool) {
		for name := range strings.FieldsSeq(names) {
			n += c[name]
		}
		if n > maxTokens {
			return bound, true
		}
		return n, false
	}
	in, noInput := total(t.input, b.input)
	out, noOutput := total(t.output, b.output)
	cached, _ := total(t.cached, 0)
	reasoning, _ := total(t.reasoning, 0)
	return proxy.Usage{Input: in, Cached: min(cached, in), Output: out, Reasoning: min(reasoning, out), Estimated: noInput || noOutput}
}

// bounds are upper bounds of the tokens that a request can cost.
type bounds struct {
	input  int64 // bytes of the request: a token has at least one
	output int64 // what the request allowed the model to write
	more   int64 // of output, in answers beyond the first
}

// object returns the members of an object; nil for anything else. The caller decodes each member,
// since "message" may be an object or a string, and a code may be a number.
func object(raw json.RawMessage) map[string]json.RawMessage {
	var members map[string]json.RawMessage
	_ = json.Unmarshal(raw, &members)
	return members
}

// each calls visit for each element of an array that is a T. All elements together can take thirty times the memory of the
// text.
func each[T any](array json.RawMessage, visit func(T)) {
	in := json.NewDecoder(bytes.NewReader(array))
	if begin, err := in.Token(); err != nil || begin != json.Delim('[') {
		return
	}
	for in.More() {
		var element T
		if in.Decode(&element) == nil {
			visit(element)
		}
	}
}

// absent reports whether a value is missing or null, which the APIs treat alike.
func absent(raw json.RawMessage) bool { return len(raw) == 0 || string(raw) == "null" }

// str returns the value of a string, and "" for anything else.
func str(raw json.RawMessage) string {
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// read reads an answer, or an event of a stream.
func (m *meter) read(data []byte) {
	if m.dialect == chat && bytes.Equal(bytes.TrimSpace(data), []byte("[DONE]")) {
		m.whole = true
		return
	}
	e := object(data)
	kind := str(e["type"])
	m.begun = m.begun || m.stream && begins(kind, e)
	switch kind {
	case "message_start":
		m.add(object(e["message"])["usage"], false)
	case "message_stop":
		m.whole = m.whole || m.dialect == messages
	case "response.completed", "response.incomplete", "response.failed":
		m.whole = m.whole || m.dialect == responses
		response := object(e["response"])
		m.add(response["usage"], true)
		m.fail(response["error"])
	case "error":
		if absent(e["error"]) { // the Responses API has its fields in the event itself
			m.fail(data)
		}
	}
	m.whole = m.whole || e != nil && !m.stream || m.dialect == generateContent && finished(e)
	m.add(e[m.tally.object], m.whole || kind == "message_delta" || m.dialect == chat)
	m.fail(e["error"])
}

// begins reports whether an event is part of an answer: neither an error nor an event that precedes an
// answer.
func begins(kind string, e map[string]json.RawMessage) bool {
	switch kind {
	case "ping", "error", "message_start", "response.created", "response.queued", "response.in_progress", "response.failed":
		return false
	}
	return e != nil && absent(e["error"])
}

// finished reports whether a part of a stream of Google's API is its last, which has the complete counts.
func finished(e map[string]json.RawMessage) bool {
	end := false
	each(e["candidates"], func(c struct { // an error has no candidates
		FinishReason string `json:"finishReason"`
	}) {
		end = end || c.FinishReason != ""
	})
	return end || !absent(object(e["promptFeedback"])["blockReason"])
}

func (m *meter) add(usage json.RawMessage, final bool) {
	if !absent(usage) {
		m.usage.add(m.tally, usage)
		m.final = m.final || final
	}
}

// fail records an error in an answer, and the cause if it is on the provider's side.
func (m *meter) fail(raw json.RawMessage) {
	if absent(raw) {
		return
	}
	m.failed = true
	e := object(raw)
	for _, word := range []string{str(e["type"]), str(e["code"]), str(e["status"])} {
		switch word {
		case "rate_limit_error", "rate_limit_exceeded", "insufficient_quota", "RESOURCE_EXHAUSTED":
			m.cause = RateLimited
		case "overloaded_error", "api_error", "timeout_error", "server_error", "internal_server_error", "server_is_overloaded", "slow_down",
			"INTERNAL", "UNAVAILABLE", "DEADLINE_EXCEEDED":
			m.cause = ServerError
		}
	}
}
