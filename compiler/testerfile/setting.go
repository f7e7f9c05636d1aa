package testerfile

import (
	"fmt"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// A Setting replaces the value of a key in a tester file.
type Setting struct {
	Key string // such as harness.config.model
	// Value is text if the key's schema allows text, otherwise JSON. If both are allowed,
	// JSON of another kind, such as a list of arguments, is read as JSON.
	Value string
}

// settingsFile stands for the file in problems of settings.
const settingsFile = "--set"

// withSettings returns a copy of a tester file with the settings applied. The problems
// concern their keys; the values are checked with the copy.
func withSettings(doc *document.Document, settings []Setting, agents []AgentType) (*document.Document, document.Problems) {
	kind := doc.Root().Get("harness").Get("type").Text()
	for _, s := range settings {
		if s.Key == "harness.type" {
			kind = s.Value
		}
	}
	var problems document.Problems
	seen := map[string]bool{}
	for _, s := range settings {
		rule, err := settable(s.Key, kind, agents)
		var value *document.Document
		switch {
		case err != nil:
			problems = append(problems, *err)
			continue
		case seen[s.Key]:
			problems = append(problems, document.Problem{Path: "$." + s.Key, Message: "is set twice"})
			continue
		case rule != nil:
			var wrong document.Problems
			if value, wrong = s.parse(rule); len(wrong) > 0 {
				problems = append(problems, document.Problem{Path: "$." + s.Key, Message: wrong[0].Message})
				continue
			}
			doc = doc.With(strings.Split(s.Key, "."), value)
		}
		seen[s.Key] = true
	}
	return doc, problems.In(settingsFile)
}

// settable returns the schema of a key's value. It is nil for keys of harness.config if no
// harness has that type, which is reported elsewhere.
func settable(key, kind string, agents []AgentType) (*schema.Schema, *document.Problem) {
	rule := Schema(agents)
	path := "$"
	for name := range strings.SplitSeq(key, ".") {
		object := rule.Object
		if path == "$.harness.config" {
			if object = harnessConfigs(agents)[kind]; object == nil {
				return nil, nil
			}
		}
		if object == nil {
			return nil, &document.Problem{Path: path, Message: "has no keys, and so no " + fmt.Sprintf("%q", name)}
		}
		path = document.FieldPath(path, name)
		var hint string
		if rule, hint = object.Find(name); rule == nil {
			return nil, &document.Problem{Path: path, Message: fmt.Sprintf("unknown key %q", name), Hint: hint}
		}
	}
	if rule.Object != nil {
		return nil, &document.Problem{Path: path, Message: "is a section", Hint: "set its keys one by one, as " + settingsFile + " " + key + ".KEY=VALUE"}
	}
	return rule, nil
}

func (s Setting) parse(rule *schema.Schema) (*document.Document, document.Problems) {
	d := new(document.Document)
	if problems := d.ParseJSON([]byte(s.Value), 1); len(problems) == 0 {
		kind := d.Root().Kind()
		if rule.String == nil || kind != document.String && rule.Allows(kind) {
			return d, nil
		}
	}
	return d, d.ParseJSON(document.AppendQuoted(nil, []byte(s.Value)), 1)
}
