package testerfile

import (
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
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

// parse returns the value as a document.
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

// A Variant is a configuration in the matrix of a tester file: the file with the settings applied. It
// runs in a directory of its own.
type Variant struct {
	Name     string
	Settings []Setting
}

func matrixSchema() *schema.Schema {
	const doc = "Variants of this file, by name, each with other values of some keys, such as harness.config.model. They are run one after the other, in subdirectories of run.output_dir."
	s := schema.Map(doc, schema.Open("Values of keys, by path."))
	s.Object.Named = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`).MatchString
	s.Object.Misnamed = "names no directory: letters, digits and . _ - do"
	return schema.Nullable(s)
}

// Variants returns the variants of a tester file with settings, in the order of the file. A
// setting that a variant has, too, is a problem.
func Variants(file string, agents []AgentType, settings ...Setting) ([]Variant, error) {
	base, _, err := Load(file, agents, settings...)
	if err != nil {
		return nil, err
	}
	var variants []Variant
	for name, values := range base.doc.Root().Get("matrix").Fields() {
		v := Variant{Name: name.Text()}
		for key, value := range values.Fields() {
			v.Settings = append(v.Settings, Setting{Key: key.Text(), Value: value.Plain()})
		}
		variants = append(variants, v)
	}
	return variants, nil
}

// LoadVariant is Load for a variant. It adds the variant's name to the run's id, and as a
// subdirectory to the output directory.
func LoadVariant(file string, agents []AgentType, v Variant, settings ...Setting) (*File, document.Problems, error) {
	t, warnings, err := Load(file, agents, slices.Concat(settings, v.Settings)...)
	if err != nil {
		problems := document.ProblemsOf(file, err)
		for i := range problems {
			if problems[i].File == settingsFile {
				problems[i].File, problems[i].Path = file, "$.matrix."+v.Name+": "+problems[i].Path
			}
		}
		return nil, nil, problems
	}
	t.Run.ID, t.Run.OutputDir = t.Run.ID+"-"+v.Name, filepath.Join(t.Run.OutputDir, v.Name)
	return t, warnings, nil
}
