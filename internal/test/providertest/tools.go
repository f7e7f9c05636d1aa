package providertest

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/securebench/sbench/compiler"
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

// A request has the fields of all APIs that matter here.
type request struct {
	Model         string `json:"model"`
	Stream        bool   `json:"stream"`
	StreamOptions struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
	Messages []item          `json:"messages"`
	Input    json.RawMessage `json:"input"` // items, or a string
	Contents []item          `json:"contents"`
	Tools    []tool          `json:"tools"`
}

// An item is a message, or another item of the Responses API.
type item struct {
	Role      string          `json:"role"`
	CallID    string          `json:"call_id"`
	Content   json.RawMessage `json:"content"`    // blocks, or a string
	ToolCalls []block         `json:"tool_calls"` // of Chat Completions
	Parts     []struct {
		FunctionCall block `json:"functionCall"`
	} `json:"parts"` // of Google's API
	Tools []tool `json:"tools"`
}

type block struct {
	ID string `json:"id"` // of a call
}

// A tool is a tool of a request, or a namespace of tools.
type tool struct {
	Type        string          `json:"type"`
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
	Parameters  json.RawMessage `json:"parameters"`
	Tools       []tool          `json:"tools"`
	Function    *tool           `json:"function"` // of Chat Completions

	// Of Google's API.
	FunctionDeclarations []tool          `json:"functionDeclarations"`
	ParametersJSONSchema json.RawMessage `json:"parametersJsonSchema"`
}

// offers returns the tools to call: the tool itself, or the tools within it.
func (t tool) offers() (all []offer) {
	inner := slices.Concat(t.Tools, t.FunctionDeclarations)
	if t.Function != nil {
		inner = append(inner, *t.Function)
	}
	for _, i := range inner {
		for _, o := range i.offers() {
			o.namespace = cmp.Or(o.namespace, t.Name)
			all = append(all, o)
		}
	}
	if len(inner) > 0 || t.Name == "" {
		return all
	}
	o := offer{
		name: t.Name, description: t.Description, bash: strings.HasPrefix(t.Type, "bash_"),
		freeText: t.Type == "custom" && len(t.InputSchema) == 0,
	}
	for _, schema := range []json.RawMessage{t.InputSchema, t.Parameters, t.ParametersJSONSchema} {
		_ = json.Unmarshal(schema, &o.schema) // a schema of another form has no properties
	}
	return []offer{o}
}

// parse finds the next step of the conversation, and the tools that it may call.
func parse(body []byte) (turn, error) {
	var req request
	if err := json.Unmarshal(body, &req); err != nil {
		return turn{}, fmt.Errorf("request: %w", err)
	}
	t := turn{model: req.Model, stream: req.Stream, count: req.StreamOptions.IncludeUsage}
	items := append(req.Messages, req.Contents...)
	_ = json.Unmarshal(req.Input, &items) // a string has no items
	tools := req.Tools
	for _, i := range items {
		tools = append(tools, i.Tools...)
		var blocks []block
		_ = json.Unmarshal(i.Content, &blocks) // a string has no blocks
		blocks = append(append(blocks, i.ToolCalls...), block{i.CallID})
		for _, p := range i.Parts {
			blocks = append(blocks, p.FunctionCall)
		}
		called := false
		for _, id := range blocks {
			_, step, _ := strings.Cut(id.ID, "_sbench_")
			if n, err := strconv.Atoi(step); err == nil {
				t.next, called = n+1, true
			}
		}
		if (i.Role == "assistant" || i.Role == "model") && !called {
			t.next++
		}
	}
	for _, tool := range tools {
		t.offers = append(t.offers, tool.offers()...)
	}
	return t, nil
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

// callFor returns the call of a Shell, Write or Call step.
func callFor(s Step, offers []offer, id string) (*toolCall, error) {
	c := shellCall(s.Shell, offers)
	if s.Write != nil {
		c = writeCall(*s.Write, offers)
	}
	if s.Call != nil {
		c = namedCall(*s.Call, offers)
	}
	if c == nil {
		return nil, errNoTool
	}
	c.id = id
	return c, nil
}

// namedCall calls the tool, or returns nil.
func namedCall(c Call, offers []offer) *toolCall {
	for _, o := range offers {
		if strings.HasSuffix(o.name, c.Tool) {
			return o.call(json.RawMessage(c.Input))
		}
	}
	return nil
}

func (o offer) call(input any) *toolCall {
	text, free := input.(string)
	if !free {
		b, _ := json.Marshal(input) // cannot fail: strings and maps
		text = string(b)
	}
	return &toolCall{name: o.name, namespace: o.namespace, freeText: o.freeText, input: text}
}

// shellCall calls the first shell among the offers, or returns nil. It knows the shells of claude
// ("Bash": command) and codex ("exec_command": cmd; "exec": JavaScript with the other tools as
// functions), and any other tool that takes a command.
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
		for _, name := range []string{"file_path", "path"} {
			if path.IsAbs(f.Path) && o.has("content") && o.has(name) {
				return o.call(map[string]any{name: f.Path, "content": f.Content})
			}
		}
	}
	words := compiler.ShellWords
	return shellCall("mkdir -p "+words(path.Dir(f.Path))+" && printf %s "+words(f.Content)+" >"+words(f.Path), offers)
}
