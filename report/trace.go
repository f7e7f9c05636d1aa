package report

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A Step is one step of an agent.
type Step struct {
	Kind   string `json:"kind"` // message, thinking, command, tool, files, note, error, raw
	Title  string `json:"title,omitempty"`
	Text   Text   `json:"text"`
	Output *Text  `json:"output,omitempty"` // of a command or tool; nil: none
	Exit   *int   `json:"exit,omitempty"`   // a command's exit code, unless 0
	Failed bool   `json:"failed,omitempty"` // as the agent reports it
}

// Kinds of [Step].
const (
	stepMessage  = "message"
	stepThinking = "thinking"
	stepCommand  = "command"
	stepTool     = "tool"
	stepFiles    = "files"
	stepNote     = "note"
	stepError    = "error"
	stepRaw      = "raw"
)

// A Trace is the steps of an agent, without those in the middle if there are too many.
type Trace struct {
	Steps []*Step `json:"steps"`
	Cut   int     `json:"cut,omitempty"` // steps that were left out
	At    int     `json:"at,omitempty"`  // index in Steps where they were
}

// A tracer collects the first steps and the last ones.
type tracer struct {
	most   int // bytes of all steps
	text   int // bytes of one text
	head   []*Step
	used   int // bytes of head
	tail   []*Step
	kept   int // bytes of tail
	cut    int
	byTool map[string]*Step // by ID, of tools whose results are still to come
}

// maxSteps bounds the steps of a trace, however small they are.
const maxSteps = 1000

// readTrace turns the events of an agent into steps. Each line is an event of
// "codex exec --json" or "claude --output-format stream-json"; a line that is not an
// event becomes a raw step.
func readTrace(r io.Reader, most int) (Trace, error) {
	t := &tracer{most: most, text: max(256, most/16), byTool: map[string]*Step{}}
	lines := newLineReader(r, 0, t.text)
	for {
		l, err := lines.next()
		switch {
		case err == io.EOF:
			return Trace{append(t.head, t.tail...), t.cut, len(t.head)}, nil
		case err == errLong:
			t.say(stepNote, "an event was too long to be read", "")
		case err != nil:
			return Trace{}, err
		default:
			t.line(l.text)
		}
	}
}

func (t *tracer) add(s *Step) {
	size := len(s.Title) + s.Text.Len() + 64
	if len(t.tail) == 0 && t.used+size <= t.most/2 && len(t.head) < maxSteps/2 {
		t.head, t.used = append(t.head, s), t.used+size
		return
	}
	t.tail, t.kept = append(t.tail, s), t.kept+size
	t.trim()
}

// trim drops the oldest steps of the tail.
func (t *tracer) trim() {
	for len(t.tail) > 1 && (t.kept > t.most/2 || len(t.tail) > maxSteps/2) {
		s := t.tail[0]
		t.tail[0] = nil
		t.tail, t.cut = t.tail[1:], t.cut+1
		t.kept -= len(s.Title) + s.Text.Len() + 64
		if s.Output != nil {
			t.kept -= s.Output.Len()
		}
	}
}

// output sets the output of a step, which may have been left out already.
func (t *tracer) output(s *Step, text string) {
	out := cutText(strings.TrimRight(text, "\n"), t.text)
	s.Output = &out
	if slices.Contains(t.tail, s) {
		t.kept += out.Len()
		t.trim()
	} else {
		t.used += out.Len()
	}
}

func (t *tracer) say(kind, title, text string) *Step {
	s := &Step{Kind: kind, Title: title, Text: cutText(strings.TrimRight(text, "\n"), t.text)}
	t.add(s)
	return s
}

// An event has the fields of both agents.
type event struct {
	Type    string `json:"type"`
	Subtype string `json:"subtype"`

	// codex
	Message json.RawMessage `json:"message"` // a string; from claude, an object
	Error   struct {
		Message string `json:"message"`
	} `json:"error"`
	Item  *codexItem      `json:"item"`
	Usage json.RawMessage `json:"usage"`

	// claude
	Model    string  `json:"model"`
	IsError  bool    `json:"is_error"`
	Result   string  `json:"result"`
	Turns    int     `json:"num_turns"`
	Duration float64 `json:"duration_ms"`
}

func (t *tracer) line(text []byte) {
	if len(text) == 0 {
		return
	}
	var e event
	_ = json.Unmarshal(text, &e) // a line that is not an event has no type
	switch e.Type {
	case "":
		t.say(stepRaw, "", string(text))
	case "system", "assistant", "user", "result":
		t.claude(e)
	default:
		t.codex(e)
	}
}

type codexItem struct {
	Type     string `json:"type"`
	Text     string `json:"text"`
	Message  string `json:"message"`
	Command  string `json:"command"`
	Output   string `json:"aggregated_output"`
	ExitCode *int   `json:"exit_code"`
	Status   string `json:"status"`
	Changes  []struct {
		Path string `json:"path"`
		Kind string `json:"kind"`
	} `json:"changes"`
	Server    string          `json:"server"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Query     string          `json:"query"`
	Items     []struct {
		Text      string `json:"text"`
		Completed bool   `json:"completed"`
	} `json:"items"`
}

func (t *tracer) codex(e event) {
	switch e.Type {
	case "error":
		t.say(stepError, "", plainText(e.Message))
	case "turn.failed":
		t.say(stepError, "turn failed", e.Error.Message)
	case "turn.completed":
		t.say(stepNote, "turn completed", string(e.Usage))
	case "sbench.cut":
		t.say(stepNote, "an event was too long to be kept", "")
	case "item.completed":
		if e.Item != nil {
			t.item(*e.Item)
		}
	case "thread.started", "turn.started", "item.started", "item.updated":
	default:
		t.say(stepNote, e.Type, "")
	}
}

func (t *tracer) item(i codexItem) {
	switch i.Type {
	case "agent_message":
		t.say(stepMessage, "", i.Text)
	case "reasoning":
		t.say(stepThinking, "", i.Text)
	case "command_execution":
		s := t.say(stepCommand, "", i.Command)
		if i.ExitCode != nil && *i.ExitCode != 0 {
			s.Exit = i.ExitCode
		}
		if i.Output != "" {
			t.output(s, i.Output)
		}
	case "file_change":
		var b strings.Builder
		for _, c := range i.Changes {
			fmt.Fprintf(&b, "%s %s\n", c.Kind, c.Path)
		}
		t.say(stepFiles, "", b.String()).Failed = i.Status == "failed"
	case "mcp_tool_call":
		t.say(stepTool, join(i.Server, i.Tool), string(i.Arguments)).Failed = i.Status == "failed"
	case "web_search":
		t.say(stepTool, "web_search", i.Query)
	case "todo_list":
		var b strings.Builder
		for _, todo := range i.Items {
			fmt.Fprintf(&b, "%s %s\n", map[bool]string{true: "[x]", false: "[ ]"}[todo.Completed], todo.Text)
		}
		t.say(stepNote, "plan", b.String())
	case "error":
		t.say(stepError, "", join(i.Message, i.Text))
	default:
		t.say(stepNote, i.Type, i.Text)
	}
}

type claudePart struct {
	Type      string          `json:"type"`
	Text      string          `json:"text"`
	Thinking  string          `json:"thinking"`
	ID        string          `json:"id"`
	Name      string          `json:"name"`
	Input     json.RawMessage `json:"input"`
	ToolUseID string          `json:"tool_use_id"`
	Content   json.RawMessage `json:"content"`
	IsError   bool            `json:"is_error"`
}

func (t *tracer) claude(e event) {
	switch e.Type {
	case "system":
		t.say(stepNote, join("system", e.Subtype, e.Model), "")
		return
	case "result":
		kind := stepNote
		if e.IsError {
			kind = stepError
		}
		t.say(kind, fmt.Sprintf("result: %s, %s, %.1f s", e.Subtype, count(e.Turns, "turn"), e.Duration/1000), e.Result)
		return
	}
	var message struct {
		Content json.RawMessage `json:"content"`
	}
	if json.Unmarshal(e.Message, &message) != nil {
		return
	}
	var parts []claudePart
	if json.Unmarshal(message.Content, &parts) != nil {
		if text := plainText(message.Content); text != "" {
			t.say(stepMessage, e.Type, text)
		}
		return
	}
	for _, p := range parts {
		t.part(e.Type, p)
	}
}

func (t *tracer) part(from string, p claudePart) {
	switch p.Type {
	case "text":
		title := ""
		if from != "assistant" {
			title = from
		}
		t.say(stepMessage, title, p.Text)
	case "thinking":
		t.say(stepThinking, "", p.Thinking)
	case "tool_use":
		t.byTool[p.ID] = t.use(p)
	case "tool_result":
		s, ok := t.byTool[p.ToolUseID]
		delete(t.byTool, p.ToolUseID)
		if !ok {
			s = t.say(stepTool, "result", "")
		}
		s.Failed = p.IsError
		t.output(s, resultText(p.Content))
	default:
		t.say(stepNote, p.Type, "")
	}
}

// use adds the step of a tool call: a command, an edit of a file, or any other tool with
// its input.
func (t *tracer) use(p claudePart) *Step {
	var input map[string]any
	if json.Unmarshal(p.Input, &input) == nil {
		if command, ok := input["command"].(string); ok {
			return t.say(stepCommand, "", command)
		}
		if file, ok := input["file_path"].(string); ok {
			return t.say(stepFiles, p.Name, join(file, "\n"+described(input)))
		}
	}
	return t.say(stepTool, p.Name, string(p.Input))
}

// described returns the lines that a tool removes from a file and adds to it.
func described(input map[string]any) string {
	var b strings.Builder
	for _, key := range []string{"old_string", "new_string", "content"} {
		text, ok := input[key].(string)
		if !ok {
			continue
		}
		sign := map[string]string{"old_string": "-", "new_string": "+", "content": "+"}[key]
		for l := range strings.Lines(text) {
			b.WriteString(sign + strings.TrimRight(l, "\n") + "\n")
		}
	}
	return b.String()
}

// resultText returns the text of a result, or those of its parts.
func resultText(content json.RawMessage) string {
	var parts []claudePart
	if json.Unmarshal(content, &parts) != nil {
		return plainText(content)
	}
	var texts []string
	for _, p := range parts {
		if p.Text != "" {
			texts = append(texts, p.Text)
		} else {
			texts = append(texts, "["+p.Type+"]")
		}
	}
	return strings.Join(texts, "\n")
}

// plainText returns the text of a JSON string, or the JSON of any other value.
func plainText(raw json.RawMessage) string {
	var text string
	if json.Unmarshal(raw, &text) == nil {
		return text
	}
	return string(raw)
}
