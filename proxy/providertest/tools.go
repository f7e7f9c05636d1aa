package providertest

import (
	"encoding/json"
	"errors"
	"path"
	"strings"
)

// An offer is a tool that an agent offers.
type offer struct {
	name        string
	namespace   string // of the Responses API
	freeText    bool   // takes text instead of JSON
	description string
	schema      struct {
		Properties map[string]any `json:"properties"`
	}
	bash bool // Anthropic's own bash tool, which has no schema
}

func (o offer) has(property string) bool {
	_, ok := o.schema.Properties[property]
	return ok
}

// A toolCall is a call of an offered tool.
type toolCall struct {
	id              string
	name, namespace string
	freeText        bool
	input           string // JSON, or the free text
}

var errNoTool = errors.New("the agent offers no tool that the step could use")

// callFor returns the call of a Shell or Write step.
func callFor(s Step, offers []offer, id string) (*toolCall, error) {
	var c *toolCall
	switch {
	case s.Shell != "":
		c = shellCall(s.Shell, offers)
	case s.Write != nil:
		c = writeCall(*s.Write, offers)
	}
	if c == nil {
		return nil, errNoTool
	}
	c.id = id
	return c, nil
}

func (o offer) call(input any) *toolCall {
	text, free := input.(string)
	if !free {
		b, _ := json.Marshal(input) // cannot fail: strings and maps
		text = string(b)
	}
	return &toolCall{name: o.name, namespace: o.namespace, freeText: o.freeText, input: text}
}

// shellCall calls the first shell among the offers, or returns nil. It knows those of
// claude ("Bash": command), of codex ("exec_command": cmd; "exec": JavaScript that has
// the other tools as functions), and any other that takes a command.
func shellCall(command string, offers []offer) *toolCall {
	for _, o := range offers {
		switch {
		case o.freeText && strings.Contains(o.description, "tools.exec_command("):
			quoted, _ := json.Marshal(command)
			return o.call("const r = await tools.exec_command({cmd: " + string(quoted) + "});\ntext(r);\n")
		case o.bash:
			return o.call(map[string]any{"command": command})
		case o.freeText:
		case o.has("cmd"):
			return o.call(map[string]any{"cmd": command})
		case o.has("command"):
			input := map[string]any{"command": command}
			if o.has("description") {
				input["description"] = "Run the next command"
			}
			return o.call(input)
		}
	}
	return nil
}

// writeCall calls a tool that writes whole files, if there is one and the path is
// absolute, and the shell otherwise.
func writeCall(f File, offers []offer) *toolCall {
	for _, o := range offers {
		if path.IsAbs(f.Path) && o.has("content") && (o.has("file_path") || o.has("path")) {
			name := "path"
			if o.has("file_path") {
				name = "file_path"
			}
			return o.call(map[string]any{name: f.Path, "content": f.Content})
		}
	}
	return shellCall("mkdir -p "+quote(path.Dir(f.Path))+" && printf %s "+quote(f.Content)+" >"+quote(f.Path), offers)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
