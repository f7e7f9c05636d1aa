package schema

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
)

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
