package relay

import (
	"bytes"
	"cmp"
	"net/http"
	"slices"
	"strings"
	"unicode"
)

// maxFound bounds the names in inspector.found.
const maxFound = 32

// An inspector checks the body of one request. It visits only the places where the APIs
// accept tools or references: what a tool takes or returns is data.
type inspector struct {
	model  string // that may be asked for
	allow  bool   // external tools
	refuse bool   // instead of taking out
	chat   bool   // Chat Completions, whose streams count tokens only when asked

	found     []string // what was removed, or the first thing that was refused
	gone      []string // names of removed tools
	tools     int      // that are left
	toolsGone bool     // at least one was removed
	stream    bool
	asked     string // the requested model, cleaned
	hideUsage bool   // the agent did not ask for the chunk that counts tokens
	options   bool   // the request has stream_options

	most    int64 // tokens that one answer may have; 0: not stated
	choices int64 // answers that were asked for; 0: one
	size    int64 // of the body, in bytes
	work    int64 // bytes processed, each counted as often as it was
}

const (
	// mostOutput bounds the tokens of an answer if the request does not. No model
	// writes more.
	mostOutput = 128 << 10
	// maxPasses bounds how often the body is processed: only nesting deeper than any
	// API accepts takes more. Requests of real agents take less than 15.
	maxPasses = 20
)

// bounds returns the bounds of the request's cost.
func (in *inspector) bounds() bounds {
	most := cmp.Or(min(in.most, 1<<30), mostOutput)
	return bounds{input: in.size, output: most * min(max(in.choices, 1), 1<<10)}
}

// step counts v as processed, and fails if that is too much work.
func (in *inspector) step(v []byte) error {
	if in.work += int64(len(v)); in.work > maxPasses*max(in.size, 4096) {
		return malformed("the request is nested too deep")
	}
	return nil
}

// A rule checks the value of one field. It returns the same value, a replacement, or
// nil to remove the field.
type rule func(in *inspector, v []byte) ([]byte, error)

// rules returns the rule for a field of one kind of request, or nil if it has none.
type rules func(field string) rule

// inspect returns the body to send, which is the same slice if nothing was
// changed.
func (in *inspector) inspect(body []byte, fields rules) ([]byte, error) {
	in.size = int64(len(body))
	if err := checkJSON(body); err != nil {
		return nil, &refusal{status: http.StatusBadRequest, reason: badJSON, message: err.Error()}
	}
	trimmed := bytes.Trim(body, " \t\r\n")
	out, err := in.members(trimmed, func(key string, v []byte) ([]byte, error) {
		if r := fields(key); r != nil {
			return r(in, v)
		}
		if fields(folded(key)) != nil {
			return nil, malformed("the request spells a field's name in capitals")
		}
		if in.allow || isNull(v) {
			return v, nil
		}
		return nil, in.external(cleanName(key))
	})
	if err != nil {
		return nil, err
	}
	if in.asked == "" {
		return nil, malformed("the request names no model")
	}
	if out, err = in.toolChoice(out); err != nil {
		return nil, err
	}
	if in.chat {
		out = in.countChat(out)
	}
	if same(out, trimmed) {
		return body, nil
	}
	return out, nil
}

// external records something that the provider must not do. An error means that the
// whole request is refused.
func (in *inspector) external(name string) error {
	if !slices.Contains(in.found, name) && len(in.found) < maxFound {
		in.found = append(in.found, name)
	}
	if in.refuse {
		return refuse(externalTool, "external tools are not allowed here (allow_external_tools): "+name)
	}
	return nil
}

func same(a, b []byte) bool {
	return len(a) == len(b) && (len(a) == 0 || &a[0] == &b[0])
}

// members passes the members of an object through f, and drops those for which it
// returns nil. If nothing changes, it returns v itself.
func (in *inspector) members(v []byte, f func(key string, v []byte) ([]byte, error)) ([]byte, error) {
	all, err := in.object(v)
	if err != nil {
		return nil, err
	}
	changed, kept := false, all[:0:len(all)]
	for _, m := range all {
		value, err := f(m.key, m.value)
		if err != nil {
			return nil, err
		}
		if value == nil || !same(value, m.value) {
			changed = true
		}
		if m.value = value; value != nil {
			kept = append(kept, m)
		}
	}
	if !changed {
		return v, nil
	}
	return joinMembers(kept), nil
}

// member passes one member of an object through f, and leaves the others as they are.
func (in *inspector) member(v []byte, name string, f rule) ([]byte, error) {
	return in.members(v, func(key string, v []byte) ([]byte, error) {
		if key != name {
			return v, nil
		}
		return f(in, v)
	})
}

// each does with the elements of an array what members does with those of an object.
func (in *inspector) each(v []byte, f func(v []byte) ([]byte, error)) ([]byte, error) {
	if kindOf(v) != '[' {
		return nil, malformed("the request holds something else where an array belongs")
	}
	if err := in.step(v); err != nil {
		return nil, err
	}
	all := elements(v)
	changed, kept := false, all[:0:len(all)]
	for _, e := range all {
		value, err := f(e)
		if err != nil {
			return nil, err
		}
		if value == nil || !same(value, e) {
			changed = true
		}
		if value != nil {
			kept = append(kept, value)
		}
	}
	if !changed {
		return v, nil
	}
	return joinElements(kept), nil
}

// object returns the members of an object. It counts the work, and refuses keys that
// are respelled.
func (in *inspector) object(v []byte) ([]member, error) {
	if kindOf(v) != '{' {
		return nil, malformed("the request holds something else where an object belongs")
	}
	if err := in.step(v); err != nil {
		return nil, err
	}
	all := members(v)
	for _, m := range all {
		if respelled(m.key) {
			return nil, malformed("the request spells a field's name in capitals")
		}
	}
	return all, nil
}

// respelled reports whether a key is one that matters here, in another case. Parsers
// that ignore case, such as Go's own, read it as that one; strict parsers do not.
func respelled(key string) bool {
	f := folded(key)
	return f != key && slices.Contains([]string{
		"type", "role", "content", "source", "url", "file_id", "image_url", "file_url", "file_data", "file", "audio", "id", "encrypted_content", "output",
		"tools", "tool_choice", "environment", "include_usage", "name", "model", "input", "messages", "system", "stream", "stream_options",
	}, f)
}

// folded returns a key as a parser that ignores case reads it (encoding/json). The long s
// counts as an s there.
func folded(key string) string {
	return strings.Map(func(r rune) rune {
		if r == '\u017f' {
			return 's'
		}
		return unicode.ToLower(r)
	}, key)
}

// field returns the value of a member, nil if there is none.
func field(all []member, key string) []byte {
	for _, m := range all {
		if m.key == key {
			return m.value
		}
	}
	return nil
}

// absent reports whether a value is missing or null, which the APIs treat alike.
func absent(v []byte) bool { return v == nil || isNull(v) }

// word returns the value of a string member, or "" if it is absent. It returns false
// for any other value.
func word(all []member, key string) (string, bool) {
	v := field(all, key)
	if absent(v) {
		return "", true
	}
	return text(v)
}

// typed returns the members of an object, and its type, or "" if that is absent. what
// names the object in the error for a type that is not a string.
func (in *inspector) typed(v []byte, what string) ([]member, string, error) {
	all, err := in.object(v)
	if err != nil {
		return nil, "", err
	}
	t, ok := word(all, "type")
	if !ok {
		return nil, "", malformed(what + "'s type is no string")
	}
	return all, t, nil
}

// choice lets a tool choice pass if its type is one of good.
func (in *inspector) choice(v []byte, good ...string) ([]byte, error) {
	all, err := in.object(v)
	if err != nil {
		return nil, err
	}
	if t, _ := word(all, "type"); !in.allow && !slices.Contains(good, t) {
		return nil, in.external("tool_choice:" + cleanName(t))
	}
	return v, nil
}

// Rules that both providers share.

// pass is the rule for a field that cannot make the provider act outside.
func pass(_ *inspector, v []byte) ([]byte, error) { return v, nil }

func modelRule(in *inspector, v []byte) ([]byte, error) {
	s, ok := text(v)
	if !ok {
		return nil, malformed("the model is no string")
	}
	if in.asked = s; s != in.model {
		in.asked = cleanName(s)
		return nil, refuse(badModel, "only the model "+in.model+" may be asked for here")
	}
	return v, nil
}

// mostRule reads how many tokens a model may write. It accepts any value: whether it is
// valid is for the provider to decide.
func mostRule(in *inspector, v []byte) ([]byte, error) {
	var n count
	_ = n.UnmarshalJSON(v) // never fails
	in.most = max(in.most, int64(n))
	return v, nil
}

func choicesRule(in *inspector, v []byte) ([]byte, error) {
	var n count
	_ = n.UnmarshalJSON(v)
	in.choices = int64(n)
	return v, nil
}

func streamRule(in *inspector, v []byte) ([]byte, error) {
	if k := kindOf(v); k != 't' && k != 'f' && k != 'n' {
		return nil, malformed("stream is neither true nor false")
	}
	in.stream = kindOf(v) == 't'
	return v, nil
}

// oneOf lets the good strings pass and no others, even if external tools are allowed:
// others make the same request cost more.
func oneOf(name string, good ...string) rule {
	return func(in *inspector, v []byte) ([]byte, error) {
		if s, ok := text(v); isNull(v) || ok && slices.Contains(good, s) {
			return v, nil
		}
		return nil, in.external(name)
	}
}

// outside is the rule for a field that makes the provider act outside.
func outside(name string) rule {
	return func(in *inspector, v []byte) ([]byte, error) {
		if in.allow || isNull(v) || kindOf(v) == '[' && len(elements(v)) == 0 {
			return v, nil
		}
		return nil, in.external(name)
	}
}

// never is the rule for a field that makes the request cost more or asks another model.
// It does not pass even if external tools are allowed.
func never(name string) rule {
	return func(in *inspector, v []byte) ([]byte, error) {
		if isNull(v) {
			return v, nil
		}
		return nil, in.external(name)
	}
}

// stateless refuses a request with a field that refers to something that the provider
// keeps and the relay has not seen. Without the field, the request would mean something
// else.
func stateless(name string) rule {
	return func(_ *inspector, v []byte) ([]byte, error) {
		if k := kindOf(v); k == 'n' || k == 'f' {
			return v, nil
		}
		return nil, refuse(keptState, "a request must hold all it refers to: "+name+" is not allowed here")
	}
}

// toolsRule checks a list of tools. A list that becomes empty is removed.
func toolsRule(tool rule) rule {
	return func(in *inspector, v []byte) ([]byte, error) {
		if isNull(v) {
			return v, nil
		}
		out, err := in.each(v, func(t []byte) ([]byte, error) {
			kept, err := tool(in, t)
			if err == nil && kept == nil {
				in.toolsGone = true
			} else if err == nil {
				in.tools++
			}
			return kept, err
		})
		if err == nil && !same(out, v) && len(elements(out)) == 0 {
			return nil, nil
		}
		return out, err
	}
}

// toolChoice removes a tool choice that the remaining tools do not offer, since
// providers refuse it.
func (in *inspector) toolChoice(body []byte) ([]byte, error) {
	if !in.toolsGone {
		return body, nil
	}
	return in.members(body, func(key string, v []byte) ([]byte, error) {
		switch key {
		case "tool_choice":
			if in.tools == 0 || in.namesGone(v) {
				return nil, nil
			}
		case "parallel_tool_calls":
			if in.tools == 0 {
				return nil, nil
			}
		}
		return v, nil
	})
}

func (in *inspector) namesGone(choice []byte) bool {
	name, _ := text(field(members(choice), "name"))
	return name != "" && slices.Contains(in.gone, name)
}

const notice = "[removed by sbench: the provider may not fetch, run or look up anything here]"
