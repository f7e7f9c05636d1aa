package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
)

// Checker checks values against schemas and collects the problems. It may be reused for
// further documents, but not concurrently.
type Checker struct {
	// File is the name of the file in problems.
	File     string
	Problems document.Problems // since the last Reset, at most maxProblems
	errors   int               // errors reported, including those beyond maxProblems
}

const maxProblems = 100

// Reset clears the problems. A copy of the previous Problems stays valid.
func (c *Checker) Reset() { c.Problems, c.errors = nil, 0 }

// Check reports everything in v that s does not allow. It returns false if any of that is an
// error, not a warning.
func (c *Checker) Check(s *Schema, v document.Value) bool {
	before := c.errors
	c.value(s, v)
	return c.errors == before
}

// CheckAt is CheckObject for the named field of parent. An absent or null field counts as an empty object, and its
// missing keys are reported at parent's line. A field of another kind is false without a problem: Check of parent
// reports it.
func (c *Checker) CheckAt(name string, r *Object, parent document.Value) bool {
	before, v := c.errors, parent.Get(name)
	switch {
	case v.Kind() == document.Object:
		return c.CheckObject(r, v)
	case v.Given():
		return false
	}
	c.missing(r, parent, document.FieldPath(parent.Path(), name))
	return c.errors == before
}

// Errorf reports an error at v. hint may be empty.
func (c *Checker) Errorf(v document.Value, hint, format string, args ...any) {
	c.Report(v, document.Problem{Message: fmt.Sprintf(format, args...), Hint: hint})
}

// Warnf is like Errorf, but reports a warning.
func (c *Checker) Warnf(v document.Value, hint, format string, args ...any) {
	c.Report(v, document.Problem{Message: fmt.Sprintf(format, args...), Hint: hint, Warning: true})
}

// Report reports a problem at v, or at p.Path if that is set, as for a value that v lacks.
func (c *Checker) Report(v document.Value, p document.Problem) {
	if !p.Warning {
		c.errors++
	}
	if len(c.Problems) >= maxProblems {
		c.Problems[maxProblems-1] = document.Problem{File: c.File, Line: v.Line(), Message: "and more problems"}
		return
	}
	p.File, p.Line = c.File, v.Line()
	if p.Path == "" {
		p.Path = v.Path()
	}
	c.Problems = append(c.Problems, p)
}

func (c *Checker) value(s *Schema, v document.Value) {
	before := c.errors
	switch kind := v.Kind(); {
	case s.Any:
	case !s.Allows(kind):
		c.Errorf(v, kindHint(s, v), "expected %s, found %s", s.expected(), found(v))
		return
	case kind == document.Null:
		return
	case kind == document.String:
		c.str(s, v)
	case kind == document.Number:
		c.number(s, v)
	case kind == document.Array:
		c.array(s.Array, v)
	case kind == document.Object:
		c.CheckObject(s.Object, v)
	}
	if c.errors == before && s.Check != nil {
		s.Check(c, v)
	}
}

func found(v document.Value) string {
	kind := v.Kind()
	if (kind == document.Bool || kind == document.Number) && len(v.Raw()) <= 20 {
		return fmt.Sprintf("%s (%s)", kind, v.Raw())
	}
	return kind.String()
}

// kindHint guesses why a value is of the wrong kind.
func kindHint(s *Schema, v document.Value) string {
	text, kind := v.Text(), v.Kind()
	isString := kind == document.String
	switch {
	case isString && s.Number != nil && s.Number.Seconds:
		return secondsHint(text)
	case isString && (s.Number != nil || s.Boolean):
		if _, err := strconv.ParseFloat(text, 64); err == nil && s.Number != nil || s.Boolean && (text == "true" || text == "false") {
			return "remove the quotes"
		}
	case (kind == document.Number || kind == document.Bool) && s.String != nil:
		return "put it in quotes"
	case isString && s.Array != nil:
		return "write a list of one item"
	case kind == document.Array && s.Object != nil:
		return `a list is not wanted here: in YAML, leave out the "- "; in JSON, write {} instead of []`
	case isString && s.Object != nil && len(s.Object.Fields) > 0:
		return "its keys are " + strings.Join(s.Object.Names(), ", ")
	}
	return ""
}

// secondsHint says how to write what was meant as seconds.
func secondsHint(text string) string {
	text = strings.ReplaceAll(text, " ", "")
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		return fmt.Sprintf("remove the quotes: %v", n)
	}
	if d, err := time.ParseDuration(text); err == nil && d > 0 {
		return fmt.Sprintf("write %v, the number of seconds", d.Seconds())
	}
	return "a number of seconds without a unit, such as 60"
}

func (s *Schema) expected() string {
	var kinds []string
	if s.String != nil {
		kinds = append(kinds, s.String.describe())
	}
	if s.Number != nil {
		kinds = append(kinds, s.Number.describe())
	}
	if s.Boolean {
		kinds = append(kinds, "a boolean")
	}
	if s.Array != nil {
		kinds = append(kinds, "an array")
	}
	if s.Object != nil {
		kinds = append(kinds, "an object")
	}
	return either(kinds)
}

func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

func (r *String) describe() string {
	switch {
	case len(r.Enum) > 0:
		quoted := make([]string, len(r.Enum))
		for i, value := range r.Enum {
			quoted[i] = strconv.Quote(value)
		}
		return either(quoted)
	case r.NonBlank || r.NonEmpty:
		return "a non-empty string"
	}
	return "a string"
}

func (r *Number) describe() string {
	word := "a number"
	if r.Integer {
		word = "an integer"
	}
	switch {
	case r.Max != nil:
		return fmt.Sprintf("%s from %v to %s", word, *r.Min, strconv.FormatFloat(*r.Max, 'f', -1, 64))
	case r.Above != nil:
		return fmt.Sprintf("%s above %v", word, *r.Above)
	case r.Min != nil:
		return fmt.Sprintf("%s of at least %v", word, *r.Min)
	}
	return word
}

// maxListed bounds the allowed values in a message, if its hint names the value that was probably meant.
const maxListed = 4

func (c *Checker) str(s *Schema, v document.Value) {
	r, text := s.String, v.Text()
	switch {
	case slices.Contains(r.Enum, text):
	case len(r.Enum) > 0:
		hint := cmp.Or(suggest(text, r.Enum), r.Hint)
		if hint != "" && len(r.Enum) > maxListed {
			c.Errorf(v, hint, "%q is none of the known values", clip(text))
		} else {
			c.Errorf(v, hint, "expected %s, found %q", s.expected(), clip(text))
		}
	case text == "" && (r.NonEmpty || r.NonBlank):
		c.Errorf(v, "", "expected %s, found an empty string", s.expected())
	case r.NonBlank && strings.TrimSpace(text) == "":
		c.Errorf(v, "", "expected %s, found only white space", s.expected())
	}
}

func clip(s string) string {
	const most = 60
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}

func (c *Checker) number(s *Schema, v document.Value) {
	r := s.Number
	n, fits := v.Float64()
	if v.IsInteger() && r.Integer {
		_, fits = v.Int64()
	}
	bounded := r.Integer || r.Above != nil || r.Min != nil
	switch {
	case bounded && !fits && n > 0:
		c.Errorf(v, "", "number is too large: %s", clip(string(v.Raw())))
	case r.Integer && !v.IsInteger() || r.Above != nil && n <= *r.Above || r.Min != nil && n < *r.Min || r.Max != nil && n > *r.Max:
		c.Errorf(v, "", "expected %s, found %s", s.expected(), clip(string(v.Raw())))
	}
}

func (c *Checker) array(r *Array, v document.Value) {
	if v.Len() < r.Min {
		c.Errorf(v, "", "expected at least %d item(s), found %d", r.Min, v.Len())
	}
	if r.Max > 0 && v.Len() > r.Max {
		c.Errorf(v, "", "expected at most %d items, found %d", r.Max, v.Len())
	}
	for _, item := range v.Items() {
		c.value(r.Items, item)
	}
}

// CheckObject is Check for an object against r alone.
func (c *Checker) CheckObject(r *Object, v document.Value) bool {
	before := c.errors
	for key, value := range v.Fields() {
		i := slices.IndexFunc(r.Fields, func(f Field) bool { return key.Is(f.Name) })
		if i < 0 {
			c.unknown(r, key, value)
			continue
		}
		c.value(r.Fields[i].Schema, value)
	}
	c.missing(r, v, "")
	return c.errors == before
}

// missing reports the required fields that the object v lacks. If path is not "", it is the path of an object that v
// lacks, and all required fields are missing.
func (c *Checker) missing(r *Object, v document.Value, path string) {
	for _, f := range r.Fields {
		if f.Required && (path != "" || v.Get(f.Name).Kind() == 0) {
			c.Report(v, document.Problem{Path: path, Message: fmt.Sprintf("key %q is missing", f.Name), Hint: hintFrom(f.Schema.Doc)})
		}
	}
}

// hintFrom turns the first sentence of a description into a hint.
func hintFrom(doc string) string {
	sentence, _, _ := strings.Cut(doc, ". ")
	sentence = strings.TrimSuffix(sentence, ".")
	if sentence == "" || len(sentence) > 1 && sentence[1] >= 'A' && sentence[1] <= 'Z' {
		return sentence
	}
	return strings.ToLower(sentence[:1]) + sentence[1:]
}

func (c *Checker) unknown(r *Object, key, value document.Value) {
	name := key.Text()
	switch {
	case r.Unknown == Accept:
		if r.Named != nil && !r.Named(name) {
			c.Errorf(key, "", "%q %s", name, r.Misnamed)
		}
		if r.Others != nil {
			c.value(r.Others, value)
		}
	case r.Unknown == Tolerate && suggest(name, r.Names()) == "":
		c.Warnf(key, "it has no meaning and is ignored", "unknown key %q", clip(name))
	default:
		_, hint := r.Find(name)
		c.Errorf(key, hint, "unknown key %q", clip(name))
	}
}

// Find returns the schema of the named field. If there is no such field, it returns nil and
// a hint that names the field probably meant, or all fields.
func (r *Object) Find(name string) (s *Schema, hint string) {
	for _, f := range r.Fields {
		if f.Name == name {
			return f.Schema, ""
		}
	}
	return nil, cmp.Or(r.Foreign[name], Suggest(name, r.Names()), "known keys are "+strings.Join(r.Names(), ", "))
}

// Names returns the names of the fields.
func (r *Object) Names() []string {
	names := make([]string, len(r.Fields))
	for i := range r.Fields {
		names[i] = r.Fields[i].Name
	}
	return names
}
