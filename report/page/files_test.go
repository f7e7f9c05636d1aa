package page_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/securebench/sbench/run/record"
)

// dir returns the name of the task's directories.
func (s *subject) dir() string { return fmt.Sprintf("%s-%04d", s.kind.word, s.index) }

// logs writes the log files of an attempt.
func (w *writer) logs(rec *record.Record, s *subject) error {
	dir := filepath.Join(record.LogsDir, s.dir(), fmt.Sprint(s.number))
	if err := os.MkdirAll(filepath.Join(w.dir, dir), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"prompt.txt": s.kind.prompt + w.Hostile, record.TraceFile: w.trace(s), "harness-stdout.txt": "collected 20 items\n" + w.noise(s) + w.Hostile,
		"harness-stderr.txt": "a log of the harness\n" + w.noise(s) + w.Hostile,
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(filepath.Join(w.dir, file), []byte(text), 0o644); err != nil {
			return err
		}
		rec.Logs = append(rec.Logs, record.Log{Path: file, Bytes: int64(len(text)), Digest: digest(text)})
	}
	return nil
}

// directory writes a candidate's workspace.
func (w *writer) directory(dir string, s *subject) error {
	for name, text := range map[string]string{
		"cause.txt":      "the unit file names the old directory" + w.Hostile + "\n",
		"etc/logd.conf":  "[service]\nlisten = 127.0.0.1:5140\nstore = /workspace/var/log\n",
		"var/log/1.log":  strings.Repeat("2026-03-14T09:26:53Z started\n", 40),
		"bin/blob":       "\x7fELF\x02\x01\x00\x00",
		"task.json":      `{"id": "` + s.kind.word + `"}`,
		"<b>odd</b>.txt": "a name of its own\n",
	} {
		file := filepath.Join(w.dir, dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
	}
	link := filepath.Join(w.dir, dir, "etc", "current")
	if _, err := os.Lstat(link); err == nil {
		return nil // of an earlier attempt
	}
	return os.Symlink("/etc/passwd", link)
}

// leave logs connections out of the sandbox, in the format of the proxy's log.
func (w *writer) leave(at time.Time, s *subject) error {
	entries := []object{
		{"kind": "connect", "host": "pypi.org", "port": 443, "address": "192.0.2.7:443", "verdict": "allow", "rule": "pypi.org", "up": 1893, "down": 71204, "duration_ms": 412},
		{"kind": "connect", "host": "telemetry.example" + w.Hostile, "port": 443, "verdict": "deny", "reason": "not_allowed", "up": 0, "down": 0, "duration_ms": 0},
	}
	for i := range 4 + s.index%5 {
		entries = append(entries, object{
			"kind": "relay", "host": "api.provider.example", "verdict": "allow", "provider": "example", "method": "POST", "path": "/v1/responses", "status": 200,
			"model": w.Model + w.Hostile, "stream": true, "up": 18000 + 900*i, "down": 5200, "duration_ms": 2300 + 170*i,
			"usage": object{"input": 9000 + 800*i, "cached": 6000 + 800*i, "output": 420, "reasoning": 130},
		})
	}
	for i, e := range entries {
		e["time"], e["task"], e["attempt"] = at.Add(time.Duration(3+7*i)*time.Second), s.id, s.number
		if err := w.line(w.egress, e); err != nil {
			return err
		}
	}
	return nil
}

func (w *writer) line(f *os.File, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	_, err = f.Write(append(data, '\n'))
	return err
}

// trace returns the events that the agent reports.
func (w *writer) trace(s *subject) string {
	var b strings.Builder
	event := func(v object) {
		data, _ := json.Marshal(v) // every value has a JSON form
		b.Write(append(data, '\n'))
	}
	if w.Agent == "claude_code" {
		w.claude(s, event)
	} else {
		w.codex(s, event)
	}
	if w.Hostile != "" {
		b.WriteString(w.Hostile + "\n")
	}
	return b.String()
}

// commands returns what agents run.
func commands() []struct {
	command, output string
	exit            int
} {
	return []struct {
		command, output string
		exit            int
	}{
		{"ls -la && git log --oneline | head", "total 24\ndrwxr-xr-x 4 root root 4096 Mar 14 09:20 .\n-rw-r--r-- 1 root root   19 Mar 14 09:20 CHANGES\ndrwxr-xr-x 2 root root 4096 Mar 14 09:20 textkit\n8d3e0b2 first release", 0},
		{"grep -n 'def slug' -A3 textkit/words.py", "9:def slug(title):\n10-    \"\"\"Make a name for an address of a title.\"\"\"\n11-    return re.sub(r\"[^a-z0-9]\", \"-\", title.lower())", 0},
		{"python3 -m pytest -q", "F...\nE   AssertionError: assert 'hello---world-' == 'hello-world'\n1 failed, 3 passed in 0.04s", 1},
		{"python3 - <<'END'\nimport pathlib, re\np = pathlib.Path('textkit/words.py')\np.write_text(p.read_text().replace('[^a-z0-9]', '[^a-z0-9]+'))\nEND", "", 0},
		{"python3 -m pytest -q", "....\n4 passed in 0.03s", 0},
	}
}

const thought = "The expression replaces single characters. A plus sign makes it match runs; what is left at the ends is stripped."

func (w *writer) codex(s *subject, event func(object)) {
	item := func(v object) { event(object{"type": "item.completed", "item": v}) }
	event(object{"type": "thread.started", "thread_id": "0199"})
	event(object{"type": "turn.started"})
	item(object{"type": "agent_message", "text": "I look at the repository first." + w.Hostile})
	item(object{"type": "todo_list", "items": []object{{"text": "Look around", "completed": true}, {"text": "Mend slug()", "completed": false}}})
	for i, c := range commands() {
		event(object{"type": "item.started", "item": object{"type": "command_execution", "command": c.command}})
		item(object{"type": "command_execution", "command": c.command + w.Hostile, "aggregated_output": c.output + w.noise(s) + w.Hostile, "exit_code": c.exit, "status": "completed"})
		if i == 1 {
			item(object{"type": "reasoning", "text": thought + w.Hostile})
		}
	}
	item(object{"type": "file_change", "changes": []object{{"path": "/testbed/textkit/words.py" + w.Hostile, "kind": "update"}}, "status": "completed"})
	item(object{"type": "agent_message", "text": "slug() now makes one dash of a run of other characters, and all tests pass."})
	event(object{"type": "turn.completed", "usage": object{"input_tokens": 61234, "cached_input_tokens": 40210, "output_tokens": 2980}})
}

func (w *writer) claude(s *subject, event func(object)) {
	say := func(role string, part object) {
		event(object{"type": role, "message": object{"role": role, "content": []object{part}}})
	}
	event(object{"type": "system", "subtype": "init", "model": w.Model + w.Hostile, "tools": []string{"Bash", "Edit"}})
	say("assistant", object{"type": "text", "text": "I look at the repository first." + w.Hostile})
	for i, c := range commands() {
		id := fmt.Sprintf("toolu_%d", i)
		say("assistant", object{"type": "tool_use", "id": id, "name": "Bash", "input": object{"command": c.command + w.Hostile}})
		say("user", object{"type": "tool_result", "tool_use_id": id, "content": c.output + w.noise(s) + w.Hostile, "is_error": c.exit != 0})
		if i == 1 {
			say("assistant", object{"type": "thinking", "thinking": thought + w.Hostile})
		}
	}
	say("assistant", object{"type": "tool_use", "id": "toolu_e", "name": "Edit", "input": object{
		"file_path": "/testbed/CHANGES" + w.Hostile, "old_string": "1.0: first release", "new_string": "slug: one dash.\n\n1.0: first release",
	}})
	say("user", object{"type": "tool_result", "tool_use_id": "toolu_e", "content": []object{{"type": "text", "text": "The file was changed."}}})
	event(object{"type": "result", "subtype": "success", "is_error": false, "num_turns": 7, "duration_ms": 84211, "result": "slug() is mended." + w.Hostile})
}
