// Package request checks the bodies of requests to a provider's models.
//
// A [Form] is a list, down to the leaves, of what a body may have. The lists are allow-lists, because a
// provider also searches the web, fetches URLs, contacts MCP servers and reads stored files at the agent's
// request. What is on no list is removed by name, or makes [Form.Check] refuse the request. Text that the
// model reads, a function's arguments and results among it, passes whatever it says. Any other string must
// not be an address.
package request

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// A Form is what the bodies of one kind of request may have.
type Form struct {
	fields fields
	cache  bool // there is a field that switches the cache of prompts off
	chat   bool // Chat Completions: a stream counts tokens only if the request asks for it
}

// Options say what a request may ask for.
type Options struct {
	Model   string // the only allowed model
	InPath  bool   // the path names the model, and the body need not
	Stream  bool   // the path asks for a stream
	Allow   bool   // external tools pass
	Refuse  bool   // refuse the request instead of removing external tools
	NoCache bool   // the provider is asked not to keep the prompt in its cache
}

// Checked is what a check found. After an error it has no Body.
type Checked struct {
	Body      []byte
	Model     string // that was asked for, cleaned
	Stream    bool
	HideUsage bool     // the agent did not ask for the chunk with token counts
	Removed   []string // names of what was removed, or of the first thing that was refused; at most 32
	Output    int64    // the most tokens that all answers may have
	More      int64    // of Output, for answers beyond the first
	Work      int64    // what the check cost, in bytes of bodies
}

// A Reason is why a request is refused.
type Reason string

// The reasons.
const (
	BadJSON  Reason = "malformed_json"
	Bad      Reason = "malformed_request"
	BadModel Reason = "model_not_allowed"
	External Reason = "external_tool"
	State    Reason = "state_not_allowed"
)

// An Error refuses a request. Its text consists of fixed words, the configured model and names that passed
// [CleanName].
type Error struct {
	Reason  Reason
	Message string
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

func refuse(why Reason, format string, args ...any) error {
	return &Error{why, fmt.Sprintf(format, args...)}
}

const (
	// defaultOutput bounds the tokens of an answer if the request does not; no model writes more.
	defaultOutput = 128 << 10
	maxChoices    = 1 << 10 // of one request; no provider gives more answers
	// valueBytes is the cost of a value in a body, in bytes of inspection.
	valueBytes = 128
	// maxFound bounds Checked.Removed.
	maxFound = 32
)

// TreeBytes is the most memory that a check uses besides the body: a value takes 112 bytes, and its key as much again.
const TreeBytes = maxValues * 256

// Check returns the body to send. What needs no change is the agent's own bytes.
func (f Form) Check(body []byte, o Options) (Checked, error) {
	in := &inspector{Options: o, stream: o.Stream}
	if o.InPath {
		in.asked = o.Model
	}
	root, values, err := parse(body)
	if err != nil {
		in.fail(BadJSON, "%s", err)
	} else {
		in.whole(root, f)
	}
	limit := max(min(in.outputLimit, 1<<30), 0)
	if limit == 0 {
		limit = defaultOutput
	}
	output := limit * min(max(in.choices, 1), maxChoices)
	c := Checked{
		Model: in.asked, Stream: in.stream, HideUsage: in.hideUsage, Removed: in.found,
		Output: output, More: output - limit, Work: int64(len(body)) + int64(values)*valueBytes,
	}
	switch {
	case in.err != nil:
	case root.changed:
		c.Body = root.appendTo(make([]byte, 0, len(body)))
	default:
		c.Body = body
	}
	return c, in.err
}

func (in *inspector) whole(root *value, f Form) {
	if !in.is(root, '{', "object") {
		return
	}
	object(f.fields)(in, root)
	if in.asked == "" {
		in.fail(Bad, "the request names no model")
	}
	in.toolChoice(root)
	if f.chat && in.stream && !in.options { // without them, a stream has no counts
		in.hideUsage = true
		root.add("stream_options", `{"include_usage":true}`)
	}
	if f.cache && in.NoCache {
		root.add("prompt_cache_options", `{"mode":"explicit"}`) // and there are no breakpoints
	}
}

// CleanName returns a name from the agent for logs and messages; "unknown" if it is too long
// or has characters that names do not have.
func CleanName(s string) string {
	const known = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.:/@[]"
	if s == "" || len(s) > 64 || strings.Trim(s, known) != "" {
		return "unknown"
	}
	return s
}

// number reads a number leniently, as providers do, and rounds it up; -1 for anything that is no sensible number.
func number(raw []byte) int64 {
	f, err := strconv.ParseFloat(strings.Trim(string(raw), `"`), 64)
	if err != nil || f < 0 || f > 1<<40 {
		return -1
	}
	return int64(math.Ceil(f))
}
