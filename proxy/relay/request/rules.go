package request

import (
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// An inspector checks one body.
type inspector struct {
	Options
	err          error    // why the request is refused; nil: it is not
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
type rule func(in *inspector, v *value)

// fields are the known members of an object. Each object may have a type, too.
type fields map[string]rule

// A form is what an object of some type may have, and the member without which it is worth nothing.
type form struct {
	fields fields
	needs  string // "" for none
}

// fail refuses the request. The first error counts.
func (in *inspector) fail(why Reason, format string, args ...any) {
	in.err = cmp.Or(in.err, refuse(why, format, args...))
}

// is refuses the request if v is of another kind.
func (in *inspector) is(v *value, kind byte, what string) bool {
	if v.kind() != kind {
		in.fail(Bad, "the request has something else in place of an %s", what)
	}
	return v.kind() == kind
}

// member is the rule for a member of an object.
func (known fields) member(in *inspector, m *value) {
	// Parsers that ignore case, such as Go's, read another spelling as the known key; strict parsers do not.
	lower := folded(m.key)
	switch check := known[m.key]; {
	case check != nil:
		check(in, m)
	case m.key == "type":
		plain(in, m)
	case known[lower] != nil || lower == "type":
		in.fail(Bad, "the request spells a field's name in capitals")
	case m.null():
	case lower == "model": // even if external tools are allowed
		oneOf("model", in.Model)(in, m)
	default:
		in.outside(m, CleanName(m.key))
	}
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

// remove removes something that a request must not have, or refuses the request.
func (in *inspector) remove(v *value, name string) {
	v.remove()
	if in.err == nil && !slices.Contains(in.found, name) && len(in.found) < maxFound {
		in.found = append(in.found, name)
	}
	if in.Refuse {
		in.fail(External, "external tools are not allowed here (allow_external_tools): %s", name)
	}
}

// outside removes something that would lead outside, unless external tools are allowed.
func (in *inspector) outside(v *value, name string) {
	if !in.Allow {
		in.remove(v, name)
	}
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
func (in *inspector) leaf(v *value, good bool) {
	if !good && !v.null() {
		in.outside(v, v.label())
	}
}

func (v *value) container() bool { return v.kind() == '{' || v.kind() == '[' }

// text passes strings.
func text(in *inspector, v *value) { in.leaf(v, v.kind() == '"') }

// scalar passes texts, numbers and booleans.
func scalar(in *inspector, v *value) { in.leaf(v, !v.container()) }

// plain passes numbers, booleans, and strings that are no address.
func plain(in *inspector, v *value) {
	s, ok := v.text()
	in.leaf(v, !v.container() && (v.kind() != '"' || ok && !isAddress(s)))
}

// address matches what a URL parser takes for an address. The schemes of the web need no slashes, and a backslash is a slash
// to them (https://url.spec.whatwg.org, "special scheme").
var address = regexp.MustCompile(`(?i)^(https?|wss?|ftps?|file):|(^|:)[/\\]{2}`)

// isAddress reports whether a parser can read s as an address. Parsers pass over blanks and control characters, some everywhere.
func isAddress(s string) bool {
	return address.MatchString(strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) || unicode.In(r, unicode.C) {
			return -1
		}
		return r
	}, s))
}

// empty passes an empty list.
func empty(in *inspector, v *value) { in.leaf(v, v.kind() == '[' && len(v.parts) == 0) }

// data passes anything. It is for what the model or the agent's own functions read.
func data(*inspector, *value) {}

// dataURL passes a data: URL.
func dataURL(in *inspector, v *value) {
	if !v.null() && !bytes.HasPrefix(v.raw, []byte(`"data:`)) {
		in.outside(v, v.kindName())
	}
}

// inline passes bytes that are in the request itself: a data: URL, or base64.
func inline(in *inspector, v *value) {
	if v.kind() != '"' || !isBase64(v.raw[1:len(v.raw)-1]) {
		dataURL(in, v)
	}
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

// dialect matches the published versions of JSON schema. Some validators fetch any other.
var dialect = regexp.MustCompile(`^https?://json-schema\.org/[a-z0-9/-]+#?$`)

// schema passes a JSON schema, whose references must lead into itself.
func schema(in *inspector, v *value) {
	in.leaf(v, v.kind() != '"') // nor be one
	references(in, v)
}

func references(in *inspector, v *value) {
	for _, m := range v.parts {
		s, ok := m.text()
		switch m.key {
		case "$ref", "$dynamicRef", "$recursiveRef":
			ok = ok && strings.HasPrefix(s, "#")
		case "$schema":
			ok = ok && dialect.MatchString(s)
		default:
			ok = true
		}
		if !ok && m.kind() == '"' {
			in.outside(m, m.key[1:])
		}
		references(in, m)
	}
}

// Rules for what consists of parts.

// parts passes an object or an array, with a rule for each part.
func parts(kind byte, what string, part rule) rule {
	return func(in *inspector, v *value) {
		if v.null() || !in.is(v, kind, what) {
			return
		}
		for _, p := range v.parts {
			part(in, p)
		}
	}
}

// list passes an array.
func list(element rule) rule { return parts('[', "array", element) }

// values passes an object with any members.
func values(member rule) rule { return parts('{', "object", member) }

// object passes an object of known members.
func object(known fields) rule { return values(known.member) }

// needing is object for an object that is worth nothing without one of its members.
func needing(member string, known fields) rule {
	return func(in *inspector, v *value) {
		object(known)(in, v)
		if !v.null() && !in.Allow && v.field(member).null() {
			v.remove()
		}
	}
}

// or passes one value, an object or a list of such values.
func or(one rule, kind byte, other rule) rule {
	return func(in *inspector, v *value) {
		if v.kind() == kind {
			other(in, v)
		} else {
			one(in, v)
		}
	}
}

// textOr passes a text or a list.
func textOr(element rule) rule { return or(list(element), '"', data) }

// each passes a value or a list of values.
func each(element rule) rule { return or(element, '[', list(element)) }

// plainOr passes a leaf or an object.
func plainOr(known fields) rule { return or(plain, '{', object(known)) }

// later is a rule that contains itself.
func later(r *rule) rule { return func(in *inspector, v *value) { (*r)(in, v) } }

// dated matches the types of tools that have a version.
var dated = regexp.MustCompile(`_[0-9]{8}$`)

// A handler is for an object of a type that is not known, or without what it needs.
type handler func(in *inspector, v *value, kind string)

// byType passes an object of a known type. A type may end with a date where the list says DATE.
func byType(known map[string]form, other handler) rule {
	return func(in *inspector, v *value) {
		if !v.null() && in.is(v, '{', "object") {
			in.typed(v, in.kindOf(v), known, other)
		}
	}
}

// kindOf returns the type of an object; "" for none.
func (in *inspector) kindOf(v *value) string {
	kind, ok := v.word("type")
	if !ok {
		in.fail(Bad, "a type is no string")
	}
	return kind
}

func (in *inspector) typed(v *value, kind string, known map[string]form, other handler) {
	f, ok := known[kind]
	if !ok {
		f, ok = known[dated.ReplaceAllString(kind, "_DATE")]
	}
	if !ok {
		if model, _ := v.word("model"); in.Allow && !v.field("model").null() && model != in.Model {
			in.remove(v, CleanName(kind))
		} else {
			other(in, v, kind)
		}
		return
	}
	object(f.fields)(in, v)
	if !v.gone && f.needs != "" && !in.Allow && v.field(f.needs).null() {
		other(in, v, kind)
	}
}

const notice = "[removed by sbench: the provider may not fetch, run or look up anything here]"

// content passes a text or a list of parts. A part that must not pass is replaced by a text, since the APIs
// refuse messages without content.
func content(known map[string]form, textType func(part *value) string) rule {
	return textOr(byType(known, func(in *inspector, v *value, kind string) {
		if in.Allow {
			return
		}
		if kind == "" {
			in.fail(Bad, "a part of content has no type")
		}
		name := CleanName(kind)
		for _, m := range v.parts { // even if it was removed
			if t, _ := m.word("type"); m.key == "source" && t != "" {
				name += ":" + CleanName(t)
			}
		}
		in.remove(v, name)
		v.replace(`{"type":"` + textType(v) + `","text":"` + notice + `"}`)
	}))
}

// unknown is for types that must not pass.
func unknown(prefix string) handler {
	return func(in *inspector, v *value, kind string) { in.outside(v, prefix+CleanName(kind)) }
}

// silently removes an object that its container needs, and which is reported there.
func silently(in *inspector, v *value, _ string) {
	if !in.Allow {
		v.remove()
	}
}

// tools checks a list of tools, and removes the list if it becomes empty.
func tools(tool rule) rule {
	return unlessEmptied(list(func(in *inspector, t *value) {
		if tool(in, t); !t.gone {
			in.tools++
			return
		}
		in.toolsGone = true
		if name, _ := t.word("name"); name != "" {
			in.removedTools = append(in.removedTools, name)
		}
	}))
}

// unlessEmptied applies r, and then removes the value if r has removed all of its parts.
func unlessEmptied(r rule) rule {
	return func(in *inspector, v *value) {
		if r(in, v); v.emptied() {
			v.remove()
		}
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

func modelField(in *inspector, v *value) {
	s, ok := v.text()
	if !ok {
		in.fail(Bad, "the model is no string")
	}
	if in.asked = s; s != in.Model {
		in.asked = CleanName(s)
		in.fail(BadModel, "only the model %s is allowed here", in.Model)
	}
}

// outputLimit reads how many tokens a model may write. The provider decides whether the number is valid.
func outputLimit(in *inspector, v *value) {
	in.outputLimit = max(in.outputLimit, number(v.raw))
	plain(in, v)
}

// choices reads how many answers are asked for. A number that only another parser can read is the most.
func choices(in *inspector, v *value) {
	if in.choices = number(v.raw); in.choices < 0 && !v.null() {
		in.choices = maxChoices
	}
	plain(in, v)
}

func stream(in *inspector, v *value) {
	if k := v.kind(); k != 't' && k != 'f' && k != 'n' {
		in.fail(Bad, "stream is neither true nor false")
	}
	in.stream = v.kind() == 't'
}

// oneOf passes only the good strings, even if external tools are allowed: other values raise the cost
// of the request, or ask another model.
func oneOf(name string, good ...string) rule {
	return func(in *inspector, v *value) {
		if s, ok := v.text(); !v.null() && (!ok || !slices.Contains(good, s)) {
			in.remove(v, name)
		}
	}
}

// stateless refuses requests with a field that refers to state at the provider, which the relay has
// not seen. Without the field, the request would have another meaning.
func stateless(name string) rule {
	return func(in *inspector, v *value) {
		if k := v.kind(); k != 'n' && k != 'f' {
			in.fail(State, "a request must not refer to state at the provider: %s is not allowed here", name)
		}
	}
}

// cacheControl passes the usual cache only: keeping it for longer costs more.
func cacheControl(in *inspector, v *value) {
	caching(object(fields{"ttl": oneOf("cache_control.ttl", "5m"), "scope": plain}))(in, v)
}

// caching is the rule for a field that asks for the cache.
func caching(r rule) rule {
	return func(in *inspector, v *value) {
		if in.NoCache {
			v.remove()
		} else {
			r(in, v)
		}
	}
}
