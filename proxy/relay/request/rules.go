package request

import (
	"bytes"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// An inspector checks one body.
type inspector struct {
	Options
	found        []string // see Checked.Removed
	removedTools []string // their names
	tools        int      // not removed
	toolsGone    bool     // at least one was removed
	stream       bool
	asked        string // the requested model, cleaned
	hideUsage    bool
	options      bool // the request has stream_options

	outputLimit int64 // tokens that one answer may have; 0: not stated
	choices     int64 // requested answers; 0: one
}

// A rule checks a value, and changes or removes it if necessary. Nothing may be in place of any value.
type rule func(in *inspector, v *value) error

// fields are the known members of an object. Each object may have a type, too.
type fields map[string]rule

// A form is what an object of some type may have, and the member without which it is worth nothing.
type form struct {
	fields fields
	needs  string // "" for none
}

// is fails if v is of another kind.
func is(kind byte, what string, v *value) error {
	if v.kind() != kind {
		return malformed("the request has something else in place of an %s", what)
	}
	return nil
}

// members checks the members of an object.
func (in *inspector) members(v *value, known fields) error {
	if err := is('{', "object", v); err != nil {
		return err
	}
	return in.each(v, known)
}

// each checks the members of what is an object.
func (in *inspector) each(v *value, known fields) error {
	for _, m := range v.parts {
		if err := in.member(m, known); err != nil {
			return err
		}
	}
	return nil
}

func (in *inspector) member(m *value, known fields) error {
	// Parsers that ignore case, such as Go's, read another spelling as the known key; strict parsers do not.
	lower := folded(m.key)
	switch check := known[m.key]; {
	case check != nil:
		return check(in, m)
	case m.key == "type":
		return plain(in, m)
	case known[lower] != nil || lower == "type":
		return malformed("the request spells a field's name in capitals")
	case m.null():
		return nil
	case lower == "model": // even if external tools are allowed
		if s, _ := m.text(); s == in.Model {
			return nil
		}
		return in.remove(m, "model")
	}
	return in.outside(m, CleanName(m.key))
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

// remove removes something that a request must not have. On error, the whole request is refused.
func (in *inspector) remove(v *value, name string) error {
	v.remove()
	if !slices.Contains(in.found, name) && len(in.found) < maxFound {
		in.found = append(in.found, name)
	}
	if in.Refuse {
		return refuse(External, "external tools are not allowed here (allow_external_tools): %s", name)
	}
	return nil
}

// outside removes something that would lead outside, unless external tools are allowed.
func (in *inspector) outside(v *value, name string) error {
	if in.Allow {
		return nil
	}
	return in.remove(v, name)
}

// label returns the name of the field that v is in.
func (v *value) label() string {
	for v.key == "" && v.in != nil {
		v = v.in
	}
	return CleanName(v.key)
}

// kindName returns the type of the nearest object with a type that contains v.
func (v *value) kindName() string {
	for in := v.in; in != nil; in = in.in {
		if t, _ := in.word("type"); t != "" {
			return CleanName(t)
		}
	}
	return v.label()
}

// Rules for leaves.

// leaf passes the values for which good is true.
func leaf(good func(v *value) bool) rule {
	return func(in *inspector, v *value) error {
		if v.null() || good(v) {
			return nil
		}
		return in.outside(v, v.label())
	}
}

func (v *value) container() bool { return v.kind() == '{' || v.kind() == '[' }

// text passes strings.
func text(in *inspector, v *value) error {
	return leaf(func(v *value) bool { return v.kind() == '"' })(in, v)
}

// scalar passes texts, numbers and booleans.
func scalar(in *inspector, v *value) error {
	return leaf(func(v *value) bool { return !v.container() })(in, v)
}

// plain passes numbers, booleans, and strings that are no address.
func plain(in *inspector, v *value) error {
	return leaf(func(v *value) bool {
		s, ok := v.text()
		return !v.container() && (v.kind() != '"' || ok && !strings.Contains(s, "://") && !strings.HasPrefix(strings.TrimSpace(s), "//"))
	})(in, v)
}

// empty passes an empty list.
func empty(in *inspector, v *value) error {
	return leaf(func(v *value) bool { return v.kind() == '[' && len(v.parts) == 0 })(in, v)
}

// data passes anything. It is for what the model or the agent's own functions read.
func data(*inspector, *value) error { return nil }

// inline passes bytes that are in the request itself: a data: URL, or base64.
func inline(in *inspector, v *value) error {
	if v.null() || v.kind() == '"' && (bytes.HasPrefix(v.raw, []byte(`"data:`)) || isBase64(v.raw[1:len(v.raw)-1])) {
		return nil
	}
	return in.outside(v, v.kindName())
}

// isBase64 reports whether the text of a JSON string consists of characters of base64.
func isBase64(raw []byte) bool {
	for i, c := range raw {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '+', c == '/', c == '=', c == '-', c == '_':
		case c == '\\' && i+1 < len(raw) && bytes.IndexByte([]byte("/nr"), raw[i+1]) >= 0:
		default:
			return false
		}
	}
	return true
}

// schema passes a JSON schema, whose references must lead into itself.
func schema(in *inspector, v *value) error {
	for _, m := range v.parts {
		var err error
		if m.key == "$ref" || m.key == "$dynamicRef" || m.key == "$recursiveRef" {
			if s, ok := m.text(); m.kind() == '"' && (!ok || !strings.HasPrefix(s, "#")) {
				err = in.outside(m, m.key[1:])
			}
		}
		if err == nil && !m.gone {
			err = schema(in, m)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Rules for what consists of parts.

// object passes an object of known members.
func object(known fields) rule { return needing("", known) }

// needing is object for an object that is worth nothing without one of its members.
func needing(member string, known fields) rule {
	return func(in *inspector, v *value) error {
		if v.null() {
			return nil
		}
		if err := in.members(v, known); err != nil {
			return err
		}
		if member != "" && !in.Allow && v.field(member).null() {
			v.remove()
		}
		return nil
	}
}

// list passes an array.
func list(element rule) rule {
	return func(in *inspector, v *value) error {
		if v.null() {
			return nil
		}
		if err := is('[', "array", v); err != nil {
			return err
		}
		for _, e := range v.parts {
			if err := element(in, e); err != nil {
				return err
			}
		}
		return nil
	}
}

// or passes one value, an object or a list of such values.
func or(one rule, kind byte, other rule) rule {
	return func(in *inspector, v *value) error {
		if v.kind() == kind {
			return other(in, v)
		}
		return one(in, v)
	}
}

// textOr passes a text or a list.
func textOr(element rule) rule { return or(list(element), '"', data) }

// each passes a value or a list of values.
func each(element rule) rule { return or(element, '[', list(element)) }

// plainOr passes a leaf or an object.
func plainOr(known fields) rule { return or(plain, '{', object(known)) }

// values passes an object with any members, and one rule for all of them.
func values(member rule) rule {
	return func(in *inspector, v *value) error {
		if v.null() {
			return nil
		}
		if err := is('{', "object", v); err != nil {
			return err
		}
		for _, m := range v.parts {
			if err := member(in, m); err != nil {
				return err
			}
		}
		return nil
	}
}

// later is a rule that contains itself.
func later(r *rule) rule { return func(in *inspector, v *value) error { return (*r)(in, v) } }

// dated matches the types of tools that have a version.
var dated = regexp.MustCompile(`_[0-9]{8}$`)

// byType passes an object of a known type. A type may end with a date where the list says DATE.
func byType(known map[string]form, other func(in *inspector, v *value, kind string) error) rule {
	return func(in *inspector, v *value) error {
		if v.null() {
			return nil
		}
		if err := is('{', "object", v); err != nil {
			return err
		}
		kind, ok := v.word("type")
		if !ok {
			return malformed("a type is no string")
		}
		return in.typed(v, kind, known, other)
	}
}

func (in *inspector) typed(v *value, kind string, known map[string]form, other func(in *inspector, v *value, kind string) error) error {
	f, ok := known[kind]
	if !ok {
		f, ok = known[dated.ReplaceAllString(kind, "_DATE")]
	}
	if !ok {
		if model, _ := v.word("model"); in.Allow && !v.field("model").null() && model != in.Model {
			return in.remove(v, CleanName(kind))
		}
		return other(in, v, kind)
	}
	if err := in.each(v, f.fields); err != nil || v.gone {
		return err
	}
	if f.needs != "" && !in.Allow && v.field(f.needs).null() {
		return other(in, v, kind)
	}
	return nil
}

const notice = "[removed by sbench: the provider may not fetch, run or look up anything here]"

// content passes a text or a list of parts. A part that must not pass is replaced by a text, since the APIs
// refuse messages without content.
func content(known map[string]form, textType func(part *value) string) rule {
	return textOr(byType(known, func(in *inspector, v *value, kind string) error {
		if kind == "" && !in.Allow {
			return malformed("a part of content has no type")
		}
		if in.Allow {
			return nil
		}
		name := CleanName(kind)
		for _, m := range v.parts { // even if it was removed
			if t, _ := m.word("type"); m.key == "source" && t != "" {
				name += ":" + CleanName(t)
			}
		}
		err := in.remove(v, name)
		v.replace(`{"type":"` + textType(v) + `","text":"` + notice + `"}`)
		return err
	}))
}

// unknown is for types that must not pass.
func unknown(prefix string) func(in *inspector, v *value, kind string) error {
	return func(in *inspector, v *value, kind string) error { return in.outside(v, prefix+CleanName(kind)) }
}

// silently removes an object that its container needs, and which is reported there.
func silently(in *inspector, v *value, _ string) error {
	if !in.Allow {
		v.remove()
	}
	return nil
}

// tools checks a list of tools, and removes the list if it becomes empty.
func tools(tool rule) rule {
	all := list(func(in *inspector, t *value) error {
		err := tool(in, t)
		if !t.gone {
			in.tools++
			return err
		}
		in.toolsGone = true
		if name, _ := t.word("name"); name != "" {
			in.removedTools = append(in.removedTools, name)
		}
		return err
	})
	return unlessEmptied(all)
}

// unlessEmptied is r, but removes a value of which r has removed all parts.
func unlessEmptied(r rule) rule {
	return func(in *inspector, v *value) error {
		err := r(in, v)
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

// Rules for fields of several APIs.

func modelField(in *inspector, v *value) error {
	s, ok := v.text()
	if !ok {
		return malformed("the model is no string")
	}
	if in.asked = s; s != in.Model {
		in.asked = CleanName(s)
		return refuse(BadModel, "only the model %s is allowed here", in.Model)
	}
	return nil
}

// outputLimit reads how many tokens a model may write. The provider decides whether the number is valid.
func outputLimit(in *inspector, v *value) error {
	in.outputLimit = max(in.outputLimit, number(v.raw))
	return plain(in, v)
}

func choices(in *inspector, v *value) error {
	in.choices = number(v.raw)
	return plain(in, v)
}

func stream(in *inspector, v *value) error {
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
		return in.remove(v, name)
	}
}

// stateless refuses requests with a field that refers to state at the provider, which the relay has
// not seen. Without the field, the request would have another meaning.
func stateless(name string) rule {
	return func(_ *inspector, v *value) error {
		if k := v.kind(); k == 'n' || k == 'f' {
			return nil
		}
		return refuse(State, "a request must not refer to state at the provider: %s is not allowed here", name)
	}
}

// cacheControl passes the usual cache only: keeping it for longer costs more.
func cacheControl(in *inspector, v *value) error {
	return caching(object(fields{"ttl": oneOf("cache_control.ttl", "5m"), "scope": plain}))(in, v)
}

// caching is the rule for a field that asks for the cache.
func caching(r rule) rule {
	return func(in *inspector, v *value) error {
		if in.NoCache {
			v.remove()
			return nil
		}
		return r(in, v)
	}
}
