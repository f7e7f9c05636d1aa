package report_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
)

// brief formats a trace in few lines.
func brief(t *testing.T, agent, text string) string {
	t.Helper()
	cli, _ := harness.CLIOf(agent)
	trace, err := report.ReadTrace(strings.NewReader(text), cli.Read, 64<<10)
	must.Do(t, err)
	var b strings.Builder
	for _, s := range trace.Steps {
		fmt.Fprintf(&b, "%s %q %q", s.Kind, s.Title, s.Text.Head)
		if s.Output != nil {
			fmt.Fprintf(&b, " > %q", s.Output.Head)
		}
		if s.Exit != 0 {
			fmt.Fprintf(&b, " exit %d", s.Exit)
		}
		if s.Failed {
			b.WriteString(" failed")
		}
		b.WriteByte('\n')
	}
	return b.String()
}

func TestTraceOfCodex(t *testing.T) {
	got := brief(t, "codex", `{"type":"thread.started","thread_id":"x"}
{"type":"turn.started"}
{"type":"item.completed","item":{"id":"0","type":"reasoning","text":"**Look**"}}
{"type":"item.started","item":{"id":"1","type":"command_execution","command":"ls"}}
{"type":"item.completed","item":{"id":"1","type":"command_execution","command":"ls","aggregated_output":"a\nb\n","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"2","type":"command_execution","command":"false","aggregated_output":"","exit_code":1,"status":"failed"}}
{"type":"item.completed","item":{"id":"3","type":"file_change","changes":[{"path":"/a","kind":"add"},{"path":"/b","kind":"update"}],"status":"completed"}}
{"type":"item.completed","item":{"id":"4","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"x":1},"status":"failed"}}
{"type":"item.completed","item":{"id":"5","type":"todo_list","items":[{"text":"one","completed":true},{"text":"two","completed":false}]}}
{"type":"item.completed","item":{"id":"6","type":"agent_message","text":"Done."}}
{"type":"item.completed","item":{"id":"7","type":"error","message":"odd"}}
{"type":"item.completed","item":{"id":"8","type":"something new","text":"words"}}
{"type":"item.completed"}
{"type":"error","message":"stream lost"}
{"type":"turn.failed","error":{"message":"gave up"}}
{"type":"turn.completed","usage":{"input_tokens":5}}
{"type":"sbench.cut"}
{"type":"of tomorrow"}
no event at all
{"type": 5}
[1, 2]
`)
	want := `thinking "" "**Look**"
command "" "ls" > "a\nb"
command "" "false" exit 1
files "" "[{\"path\":\"/a\",\"kind\":\"add\"},{\"path\":\"/b\",\"kind\":\"update\"}]"
tool "t" "{\"x\":1}" failed
note "todo_list" "[{\"text\":\"one\",\"completed\":true},{\"text\":\"two\",\"completed\":false}]"
message "" "Done."
error "" "odd"
note "something new" "words"
error "" "stream lost"
error "turn.failed" "gave up"
note "turn.completed" "{\"input_tokens\":5}"
note "an event was too long to be kept" ""
note "of tomorrow" ""
raw "" "no event at all"
raw "" "{\"type\": 5}"
raw "" "[1, 2]"
`
	must.Equal(t, want, got)
}

func TestTraceOfClaude(t *testing.T) {
	got := brief(t, "claude_code", `{"type":"system","subtype":"init","model":"m"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"thinking","thinking":"Hm."},{"type":"text","text":"I look."}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"1","name":"Bash","input":{"command":"ls"}},{"type":"tool_use","id":"2","name":"Edit","input":{"file_path":"/a","old_string":"x","new_string":"y\nz"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"2","content":[{"type":"text","text":"changed"},{"type":"image"}]}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"1","content":"a\nb\n","is_error":true}]}}
{"type":"assistant","message":{"content":[{"type":"tool_use","id":"3","name":"Grep","input":{"pattern":"x"}}]}}
{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"of nobody","content":"?"}]}}
{"type":"user","message":{"content":"a plain text"}}
{"type":"assistant","message":7}
{"type":"result","subtype":"success","is_error":false,"num_turns":3,"duration_ms":2500,"result":"All done."}
{"type":"result","subtype":"error_max_turns","is_error":true,"num_turns":1,"duration_ms":0,"result":""}
`)
	want := `note "init" ""
thinking "" "Hm."
message "" "I look."
command "" "ls" > "a\nb" failed
files "Edit" "/a\nx\ny\nz" > "[{\"type\":\"text\",\"text\":\"changed\"},{\"type\":\"image\"}]"
tool "Grep" "{\"pattern\":\"x\"}"
tool "result" "" > "?"
message "user" "a plain text"
note "success" "All done."
error "error_max_turns" ""
`
	must.Equal(t, want, got)
}

// TestTraceIsBounded: a long trace is cut to its beginning and its end.
func TestTraceIsBounded(t *testing.T) {
	var b strings.Builder
	for i := range 20000 {
		line, _ := json.Marshal(map[string]any{"type": "item.completed", "item": map[string]any{
			"type": "command_execution", "command": fmt.Sprint("step ", i), "aggregated_output": strings.Repeat("x", i%5000),
		}})
		b.Write(append(line, '\n'))
	}
	const most = 40000
	cli, _ := harness.CLIOf("codex")
	trace, err := report.ReadTrace(strings.NewReader(b.String()), cli.Read, most)
	must.Do(t, err)
	bytes := 0
	for _, s := range trace.Steps {
		bytes += s.Text.Len()
		if s.Output != nil {
			bytes += s.Output.Len()
		}
	}
	last := trace.Steps[len(trace.Steps)-1]
	if trace.Steps[0].Text.Head != "step 0" || last.Text.Head != "step 19999" || trace.Cut+len(trace.Steps) != 20000 || bytes > most+most/4 {
		t.Errorf("%d steps, %d cut, %d bytes, from %q to %q", len(trace.Steps), trace.Cut, bytes, trace.Steps[0].Text.Head, last.Text.Head)
	}
	if after := trace.Steps[trace.At].Text.Head; after != fmt.Sprint("step ", trace.At+trace.Cut) {
		t.Errorf("after the gap comes %q", after)
	}
}

// TestTraceInPieces: the time for a message does not grow with the square of its pieces.
func TestTraceInPieces(t *testing.T) {
	const pieces = 1 << 17
	cli, _ := harness.CLIOf("gemini_cli")
	line := `{"type":"message","role":"assistant","delta":true,"content":"0123456789"}` + "\n"
	trace, err := report.ReadTrace(strings.NewReader(strings.Repeat(line, pieces)), cli.Read, 64<<10)
	if err != nil || len(trace.Steps) != 1 || trace.Steps[0].Text.Len() > 64<<10 {
		t.Errorf("%d steps, %v", len(trace.Steps), err)
	}
}

// TestTraceOfAnother: each trace is read by the parser of its agent.
func TestTraceOfAnother(t *testing.T) {
	read := func(line []byte) ([]harness.Step, bool) {
		kind, text, ok := strings.Cut(string(line), ": ")
		return []harness.Step{{Kind: harness.StepKind(kind), Text: text, Call: "1", Output: "x"}}, ok
	}
	trace, err := report.ReadTrace(strings.NewReader("command: ls\nresult: \nno event\n"), read, 64<<10)
	must.Do(t, err)
	if s := trace.Steps; len(s) != 2 || s[0].Kind != harness.StepCommand || s[0].Output.Head != "x" || s[1].Kind != "raw" || s[1].Text.Head != "no event" {
		t.Errorf("%+v", s)
	}
}
