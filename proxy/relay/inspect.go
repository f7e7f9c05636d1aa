package relay

import (
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// maxFound bounds the names in inspector.found.
const maxFound = 32

// An inspector checks the body of one request. It visits only places where the APIs accept
// tools or references: the input and output of a tool are data.
type inspector struct {
	model  string // the only allowed model
	allow  bool   // allow external tools
	refuse bool   // refuse the request instead of removing its external tools
	chat   bool   // Chat Completions: a stream counts tokens only if the request asks for it

	found        []string // what was removed, or the first thing that was refused
	removedTools []string // names of removed tools
	tools        int      // not removed
	toolsGone    bool     // at least one was removed
	stream       bool
	asked        string // the requested model, cleaned
	hideUsage    bool   // the agent did not ask for the chunk with token counts
	options      bool   // the request has stream_options

	outputLimit int64 // tokens that one answer may have; 0: not stated
	choices     int64 // requested answers; 0: one
	size        int64 // of the body, in bytes
	work        int64 // bytes of the values that were entered
	tree        int64 // of the body, in bytes
}

const (
	// defaultOutput bounds the tokens of an answer if the request does not; no model writes
	// more.
	defaultOutput = 128 << 10
	// maxPasses bounds work, in sizes of the body: only nesting deeper than any API accepts
	// takes more. Real agents' requests take less than 15.
	maxPasses = 20
	// valueBytes is the cost of a value in a body, in bytes of inspection.
	valueBytes = 128
)

// bounds returns the bounds of the request's cost.
func (in *inspector) bounds() bounds {
	limit := cmp.Or(min(in.outputLimit, 1<<30), defaultOutput)
	return bounds{input: in.size, output: limit * min(max(in.choices, 1), 1<<10)}
}

// A rule checks a value, and changes or removes it if necessary.
type rule func(in *inspector, v *value) error

// inspect returns the body to send, which is the same slice if nothing changed.
func (in *inspector) inspect(body []byte, fields map[string]rule) ([]byte, error) {
	in.size = int64(len(body))
	root, values, err := parse(body)
	in.tree = int64(values) * valueBytes
	if err != nil {
		return nil, &refusal{status: http.StatusBadRequest, reason: badJSON, message: err.Error()}
	}
	if err := in.members(root, fields); err != nil {
		return nil, err
	}
	if in.asked == "" {
		return nil, malformed("the request names no model")
	}
	in.toolChoice(root)
	if in.chat && in.stream && !in.options { // without them, a stream has no counts
		in.hideUsage = true
		root.add("stream_options", `{"include_usage":true}`)
	}
	if !root.changed {
		return body, nil
	}
	return root.appendTo(nil), nil
}

// members enters an object, and checks its members.
func (in *inspector) members(v *value, rules map[string]rule) error {
	if err := in.object(v); err != nil {
		return err
	}
	for _, m := range v.parts {
		if err := in.field(m, rules); err != nil {
			return err
		}
	}
	return nil
}

// field checks a field of the request. Without a rule, it passes only if external tools are
// allowed.
func (in *inspector) field(m *value, fields map[string]rule) error {
	check := fields[m.key]
	switch {
	case check != nil:
		return check(in, m)
	case fields[folded(m.key)] != nil:
		return malformed("the request spells a field's name in capitals")
	case in.allow || m.null():
		return nil
	}
	return in.external(m, cleanName(m.key))
}

// external removes something that the provider must not do. On error, the whole request is
// refused.
func (in *inspector) external(v *value, name string) error {
	v.remove()
	if !slices.Contains(in.found, name) && len(in.found) < maxFound {
		in.found = append(in.found, name)
	}
	if in.refuse {
		return refuse(externalTool, "external tools are not allowed here (allow_external_tools): "+name)
	}
	return nil
}

// instead replaces a part of a message by a text, since the APIs refuse messages without content.
func (in *inspector) instead(v *value, name, kind string) error {
	err := in.external(v, name)
	v.replace(`{"type":"` + kind + `","text":"` + notice + `"}`)
	return err
}

// enter counts v as work. It fails if there is too much work, or if v is of another kind.
func (in *inspector) enter(v *value, kind byte, what string) error {
	if v.kind() != kind {
		return malformed("the request has something else in place of an " + what)
	}
	if in.work += int64(len(v.raw)); in.work > maxPasses*max(in.size, 4096) {
		return malformed("the request is nested too deep")
	}
	return nil
}

// object enters an object, and refuses respelled keys (see respelled).
func (in *inspector) object(v *value) error {
	if err := in.enter(v, '{', "object"); err != nil {
		return err
	}
	if slices.ContainsFunc(v.parts, respelled) {
		return malformed("the request spells a field's name in capitals")
	}
	return nil
}

// each checks the elements of an array.
func (in *inspector) each(v *value, check rule) error {
	if err := in.enter(v, '[', "array"); err != nil {
		return err
	}
	for _, e := range v.parts {
		if err := check(in, e); err != nil {
			return err
		}
	}
	return nil
}

// content checks each part of a content by its type, unless the content is just text. what names a
// part in the error for a part without a type.
func (in *inspector) content(v *value, what string, part func(in *inspector, v *value, kind string) error) error {
	if in.allow || v.null() || v.kind() == '"' {
		return nil
	}
	return in.each(v, func(in *inspector, v *value) error {
		if err := in.object(v); err != nil {
			return err
		}
		kind, _ := v.word("type")
		if kind == "" {
			return malformed("a " + what + " of content has no type")
		}
		return part(in, v, kind)
	})
}

// respelled reports whether a key is a key that matters here in another case. Parsers that ignore
// case, such as Go's, read it as this key; strict parsers do not.
func respelled(m *value) bool {
	f := folded(m.key)
	return f != m.key && slices.Contains([]string{
		"type", "role", "content", "source", "url", "file_id", "image_url", "file_url", "file_data", "file", "audio", "id", "encrypted_content", "output",
		"tools", "tool_choice", "environment", "include_usage", "name", "model", "input", "messages", "system", "stream", "stream_options",
	}, f)
}

// folded returns a key as a parser that ignores case reads it (encoding/json). For such a parser the
// long s is an s.
func folded(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '\u017f' {
			return 's'
		}
		return unicode.ToLower(r)
	}, key)
}

// typed enters an object and returns its type, or "" if absent. what names the object in the
// error for a type that is not a string.
func (in *inspector) typed(v *value, what string) (string, error) {
	if err := in.object(v); err != nil {
		return "", err
	}
	t, ok := v.word("type")
	if !ok {
		return "", malformed(what + "'s type is no string")
	}
	return t, nil
}

// choice passes a tool choice if its type is one of good.
func (in *inspector) choice(v *value, good ...string) error {
	if err := in.object(v); err != nil {
		return err
	}
	if t, _ := v.word("type"); !in.allow && !slices.Contains(good, t) {
		return in.external(v, "tool_choice:"+cleanName(t))
	}
	return nil
}

// passing adds fields that cannot make the provider act outside.
func passing(rules map[string]rule, fields ...string) map[string]rule {
	for _, name := range fields {
		rules[name] = func(*inspector, *value) error { return nil }
	}
	return rules
}

// Rules that several APIs share.

func modelRule(in *inspector, v *value) error {
	s, ok := v.text()
	if !ok {
		return malformed("the model is no string")
	}
	if in.asked = s; s != in.model {
		in.asked = cleanName(s)
		return refuse(badModel, "only the model "+in.model+" is allowed here")
	}
	return nil
}

// outputLimitRule reads how many tokens a model may write. It accepts any value, since the provider
// decides whether it is valid.
func outputLimitRule(in *inspector, v *value) error {
	in.outputLimit = max(in.outputLimit, int64(countOf(v.raw)))
	return nil
}

func choicesRule(in *inspector, v *value) error {
	in.choices = int64(countOf(v.raw))
	return nil
}

func streamRule(in *inspector, v *value) error {
	if k := v.kind(); k != 't' && k != 'f' && k != 'n' {
		return malformed("stream is neither true nor false")
	}
	in.stream = v.kind() == 't'
	return nil
}

// oneOf passes only the good strings, even if external tools are allowed: other values raise the cost
// of the request, or ask another model.
func oneOf(name string, good ...string) rule {
	return func(in *inspector, v *value) error {
		if s, ok := v.text(); v.null() || ok && slices.Contains(good, s) {
			return nil
		}
		return in.external(v, name)
	}
}

// outside is the rule for a field that lets the provider act outside.
func outside(name string) rule {
	return func(in *inspector, v *value) error {
		if in.allow || v.null() || v.kind() == '[' && len(v.parts) == 0 {
			return nil
		}
		return in.external(v, name)
	}
}

// stateless refuses requests with a field that refers to state at the provider, which the relay has
// not seen. Without the field, the request would have another meaning.
func stateless(name string) rule {
	return func(_ *inspector, v *value) error {
		if k := v.kind(); k == 'n' || k == 'f' {
			return nil
		}
		return refuse(providerState, "a request must not refer to state at the provider: "+name+" is not allowed here")
	}
}

// toolsRule checks a list of tools, and removes the list if it becomes empty.
func toolsRule(tool rule) rule {
	return func(in *inspector, v *value) error {
		if v.null() {
			return nil
		}
		err := in.each(v, func(in *inspector, t *value) error {
			err := tool(in, t)
			if t.gone {
				in.toolsGone = true
			} else {
				in.tools++
			}
			return err
		})
		if v.emptied() {
			v.remove()
		}
		return err
	}
}

// toolChoice removes a tool choice that the remaining tools do not offer, because providers refuse it.
func (in *inspector) toolChoice(root *value) {
	for _, m := range root.parts {
		choice := m.key == "tool_choice"
		if name, _ := m.word("name"); in.toolsGone && (choice && slices.Contains(in.removedTools, name) || in.tools == 0 && (choice || m.key == "parallel_tool_calls")) {
			m.remove()
		}
	}
}

const notice = "[removed by sbench: the provider may not fetch, run or look up anything here]"
