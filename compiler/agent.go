package compiler

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
)

// AgentView is the part of a task that a harness may see: the public lane and the family's
// rules. It neither shares memory with the task nor refers to it.
type AgentView struct {
	ID          string
	Family      string
	Input       []PublicValue // in the order of the row
	Assets      []FileRef
	Environment environment.Environment
	// Rules is a text for agents about what they must not do; "" if the family has no rules. Agents learn nothing
	// else about the evaluation, except AnswerFormat.
	Rules string
	// AnswerFormat is a sentence for agents about the form of an answer; "" if the family has none, or the author
	// describes the form.
	AnswerFormat string
	CodeFile     string // the file, in the workspace, that the agent leaves its code in
}

// PublicValue is a field of a row's input.
type PublicValue struct {
	Name  string
	Value json.RawMessage
	Text  []byte // Value as indented JSON, with a line break at its end
}

// Plain returns the value as a person would write it: a string as is, a list of strings as
// lines that begin with "- ", anything else as indented JSON.
func (v PublicValue) Plain() string {
	var text string
	var list []string
	switch {
	case json.Unmarshal(v.Value, &text) == nil:
		return text
	case json.Unmarshal(v.Value, &list) == nil:
		return "- " + strings.Join(list, "\n- ")
	}
	return string(v.Text)
}

// AgentView returns the part of the task that a harness may see.
func (t *Task) AgentView() AgentView {
	view := AgentView{ID: t.id, Family: t.family.Name, Environment: t.environment.Clone(), AnswerFormat: answerFormat(t), CodeFile: codeFile(t)}
	for _, v := range t.resources() {
		switch {
		case v.lane != Public:
		case v.file != nil:
			view.Assets = append(view.Assets, *v.file)
		default:
			view.Input = append(view.Input, PublicValue{
				Name: v.name, Value: slices.Clone(v.Raw()), Text: append(document.Indented(v.Value), '\n'),
			})
		}
	}
	if t.family.Rules != nil {
		view.Rules = t.family.Rules(t)
	}
	return view
}

// answerFormat returns the family's sentence on the form of an answer; "" if the author describes the form, in
// input.answer_format or by a pattern.
func answerFormat(t *Task) string {
	if t.Eval().Get("answer_pattern").Kind() == document.String || t.Input().Get("answer_format").Kind() == document.String {
		return ""
	}
	return t.family.AnswerFormat
}

// codeFile returns the name of the file, in the workspace, that an agent leaves its code in.
func codeFile(t *Task) string {
	extension := Extension(t.Input().Get("language").Text())
	if t.Split() == nil { // other tests than split ones are for Python
		extension = "py"
	}
	return "candidate." + cmp.Or(extension, "txt")
}

// Extension returns the ending of a file with code in a language, such as "py"; "" for a language that is unknown.
func Extension(language string) string {
	if IsPython(language) {
		return "py"
	}
	return map[string]string{
		"bash": "sh", "c": "c", "c++": "cpp", "cpp": "cpp", "go": "go", "golang": "go", "java": "java", "javascript": "js", "js": "js", "lua": "lua", "perl": "pl",
		"php": "php", "r": "r", "ruby": "rb", "rust": "rs", "sh": "sh", "shell": "sh", "typescript": "ts",
	}[strings.ToLower(strings.TrimSpace(language))]
}

// IsPython reports whether input.language is Python, as it is unless given.
func IsPython(language string) bool {
	return slices.Contains([]string{"", "python", "python3", "py"}, strings.ToLower(strings.TrimSpace(language)))
}

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
func (v AgentView) Payload() []byte {
	input := make(map[string]json.RawMessage, len(v.Input))
	payload := map[string]any{"id": v.ID, "family": v.Family, "input": input, "environment": v.Environment.Public()}
	if v.Rules != "" {
		payload["rules"] = v.Rules
	}
	if v.AnswerFormat != "" {
		payload["answer_format"] = v.AnswerFormat
	}
	if len(v.Assets) > 0 {
		payload["assets"] = v.Assets
	}
	for _, p := range v.Input {
		input[p.Name] = p.Value
		payload[p.Name] = p.Value
	}
	text, _ := json.Marshal(payload) // texts, finite numbers and valid JSON
	var doc document.Document        // to write it in the format of PublicValue.Text
	_ = doc.ParseJSON(text, 1)
	return append(document.Indented(doc.Root()), '\n')
}
