package compiler

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
)

// AgentView is the part of a task that a harness may see: the public lane and the family's
// rules. It neither shares memory with the task nor refers to it.
type AgentView struct {
	id          string
	family      string
	input       []PublicValue
	assets      []FileRef
	environment environment.Environment
	rules       string
	format      string
	codeFile    string
}

// PublicValue is a field of a row's input.
type PublicValue struct {
	Name  string
	Value json.RawMessage
	Text  []byte // Value as indented JSON, with a line break at its end
}

// Plain returns the value as a person would write it: a string as is, a list of strings as
// lines that begin with "- ", anything else as indented JSON.
func (v PublicValue) Plain() (string, error) {
	var text string
	var list []string
	switch {
	case json.Unmarshal(v.Value, &text) == nil:
		return text, nil
	case json.Unmarshal(v.Value, &list) == nil:
		return "- " + strings.Join(list, "\n- "), nil
	case !json.Valid(v.Value):
		return "", fmt.Errorf("value %q is no JSON", v.Name)
	}
	return string(v.Text), nil
}

// AgentView returns the part of the task that a harness may see.
func (t *Task) AgentView() AgentView {
	view := AgentView{id: t.id, family: t.family.Name, environment: t.environment.Clone(), format: t.answerFormat(), codeFile: t.CodeFile()}
	for _, v := range t.resources() {
		switch {
		case v.lane != Public:
		case v.file != nil:
			view.assets = append(view.assets, *v.file)
		default:
			view.input = append(view.input, PublicValue{
				Name: v.name, Value: slices.Clone(v.Raw()), Text: append(v.AppendIndented(nil), '\n'),
			})
		}
	}
	if t.family.Rules != nil {
		view.rules = t.family.Rules(t)
	}
	return view
}

// ID returns the task's id.
func (v AgentView) ID() string { return v.id }

// Rules is a text for agents about what they must not do; "" if the family has no rules. Agents learn nothing
// else about the evaluation, except AnswerFormat.
func (v AgentView) Rules() string { return v.rules }

// AnswerFormat is a sentence for agents about the form of an answer; "" if the family has none, or the author
// describes the form.
func (v AgentView) AnswerFormat() string { return v.format }

// CodeFile is the name of the file, in the workspace, that the agent leaves its code in.
func (v AgentView) CodeFile() string { return v.codeFile }

// Input returns the public values in the order of the row.
func (v AgentView) Input() []PublicValue { return slices.Clone(v.input) }

// Assets returns the public files.
func (v AgentView) Assets() []FileRef { return slices.Clone(v.assets) }

// Environment returns the environment.
func (v AgentView) Environment() environment.Environment { return v.environment.Clone() }

// Payload returns the content of the task file: indented JSON that ends with a line break.
// It is an object with every field of the row's input under its own name, the list assets if
// there are any, and:
//
//	id             the task's id
//	family         its family
//	input          every field of the row's input again
//	rules          Rules, if there are any
//	answer_format  AnswerFormat, if there is one
//	environment    image, workdir, timeout_seconds, network, user, resources
//	               and env, as far as they are set
//
// A field of input with one of these names replaces the value above. The row's metadata is not in the task
// file, since it may help to solve the task.
func (v AgentView) Payload() ([]byte, error) {
	input := make(map[string]json.RawMessage, len(v.input))
	payload := map[string]any{"id": v.id, "family": v.family, "input": input, "environment": v.environment.Public()}
	if v.rules != "" {
		payload["rules"] = v.rules
	}
	if v.format != "" {
		payload["answer_format"] = v.format
	}
	if len(v.assets) > 0 {
		payload["assets"] = v.assets
	}
	for _, p := range v.input {
		input[p.Name] = p.Value
		payload[p.Name] = p.Value
	}
	text, err := json.Marshal(payload)
	if err != nil {
		return nil, err
	}
	var doc document.Document // to write it in the format of PublicValue.Text
	if problems := doc.ParseJSON(text, 1); len(problems) > 0 {
		return nil, problems
	}
	return append(doc.Root().AppendIndented(nil), '\n'), nil
}
