package split_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/families"
)

const (
	// rowOracle accepts evidence if the expressions of want.json hold, in which v is a value or an observation.
	rowOracle = `import json, os, sys
good = True
for line in sys.stdin:
    m = json.loads(line)
    e, out = m.get("evidence"), {"type": "ack"}
    if m["op"] == "initialize":
        want = json.load(open(os.path.relpath(m["resources"]["host.want"]["source_path"], "/tests/oracle/oracle") + "/want.json"))
        cases = [want] if "n" in want else []
    elif m["op"] == "next_case":
        out = {"type": "case", "challenge": {"n": cases.pop()["n"]}} if cases else {"type": "exhausted"}
    elif m["op"] == "finalize":
        out = {"type": "verdict", "verdict": {"passed": good, "score": float(good), "check_outcomes": {"c": good}}}
    else:
        good &= e["status"] == "observed" and bool(eval(want["hold"], {"e": e, "v": e.get("parsed_value", e.get("observation"))}))
    print(json.dumps(out), flush=True)
`
	// rowAdapter runs prog.py with the challenge's number. It is for both forms of adapters.
	rowAdapter = `import json, subprocess, sys
m = json.loads(sys.stdin.readline())
n = m.get("challenge", m)["n"]
try:
    p = subprocess.run(["python3", "prog.py", str(n)], capture_output=True, timeout=8, stdin=subprocess.DEVNULL)
    o = {"out": p.stdout[:200].decode("utf-8", "replace").strip()}
except subprocess.TimeoutExpired:
    o = {"out": ""}
print(json.dumps({"format": "securebench.adapter-response/v2", "status": "observed", "observation": o} if "format" in m else o))
`
	newAdapter = `{"format": "securebench.adapter/v2", "protocol": "p/v1", "command": ["python3", "./adapter.py"],
 "challenge_schema": {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]},
 "observation_schema": {"type": "object", "properties": {"out": {"type": "string", "max_utf8_bytes": 1000}}, "required": ["out"]},
 "evaluation_participants": [{"name": "candidate", "type": "candidate", "instances": 1}],
 "output_artifacts": [{"name": "o", "path": "left/out.txt", "kind": "regular_file", "maximum_limits": {"max_bytes": 100}}],
 "maximums": {"seconds_per_challenge": 10, "challenge_bytes": 100, "observation_bytes": 4096}}
`
	oldAdapter = `{"abi": "securebench.protocol-adapter/v1", "protocol": "p/v1", "command": ["python3", "./adapter.py"]}` + "\n"
)

// sbRow is a row of a pack of SecureBench 2.0, with candidates.
type sbRow struct {
	name, candidate, check string // JSON
	adapter                string // its adapter.yaml; "" for none
	n                      int    // of the only challenge
	hold                   string // what the oracle expects, in Python
	right, wrong, hostile  leave
}

// leave makes what a candidate leaves in its workspace, or returns its patch or its code.
type leave func(tb testing.TB, dir string) (text string)

func file(name, text string) leave {
	return func(tb testing.TB, dir string) string {
		filetest.Write(tb, dir, map[string]string{name: text})
		return ""
	}
}

func link(name, target string) leave {
	return func(tb testing.TB, dir string) string {
		must.Do(tb, os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755))
		must.Do(tb, os.Symlink(target, filepath.Join(dir, name)))
		return ""
	}
}

func all(parts ...leave) leave {
	return func(tb testing.TB, dir string) string {
		for _, part := range parts {
			part(tb, dir)
		}
		return ""
	}
}

// commit makes a repository of the directory sub, and commits all files.
func commit(sub string) leave {
	return func(tb testing.TB, dir string) string {
		git(tb, filepath.Join(dir, sub), "init", "-q")
		git(tb, filepath.Join(dir, sub), "add", "--all")
		git(tb, filepath.Join(dir, sub), "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "base")
		return ""
	}
}

func git(tb testing.TB, dir string, args ...string) string {
	tb.Helper()
	out := must.Run(tb, exec.Command("git", append([]string{"-C", dir}, args...)...))
	return strings.TrimSpace(string(out))
}

func patched(name, old, new string) leave {
	return func(testing.TB, string) string {
		return fmt.Sprintf("diff --git a/%[1]s b/%[1]s\n--- a/%[1]s\n+++ b/%[1]s\n@@ -1 +1 @@\n-%[2]s\n+%[3]s\n", name, old, new)
	}
}

// sbRows are rows in the forms of packs of SecureBench 2.0. The first two are part of every run.
func sbRows() []sbRow {
	const (
		one      = `{"type": "file_bundle", "max_total_files": 1, "max_total_bytes": 65536, "files": [{"id": "f", "path": "/app/%s", "kind": "regular_file", "max_bytes": 65536}]}`
		tree     = `{"type": "file_bundle", "max_total_files": 100, "max_total_bytes": 1048576, "files": [{"id": "f", "path": "/app/out", "kind": "directory_tree", "max_files": 100, "max_total_bytes": 1048576}]}`
		artifact = `{"id": "c", "type": "artifact", "artifacts": [{"id": "a", "source": %s, "parser": "%s", "limits": %s}]}`
		protocol = `{"id": "c", "type": "protocol", "adapter": "runtime.adapter", "protocol": "p/v1", "challenge": {"source": "host.want", "max_cases": 1, "max_case_bytes": 100}, "trusted_helpers": [], "output_artifacts": %s, "limits": {"seconds_per_case": 10, "observation_bytes_per_case": 4096}}`
		program  = "import os, sys\nos.makedirs('left', exist_ok=True)\nopen('left/out.txt', 'w').write(sys.argv[1] * 2)\nprint(int(sys.argv[1]) + int(open('given/one').read()))\n"
		forged   = "import os\nprint('{\"format\": \"securebench.adapter-response/v2\", \"status\": \"observed\", \"observation\": {\"out\": \"8\"}}', flush=True)\nos._exit(3)\n"
		npy      = "\x93NUMPY\x01\x00v\x00"
		doubles  = "\x00\x00\x00\x00\x00\x00\xd0\x3f\x00\x00\x00\x00\x00\x00\xe8\x3f"
		calendar = "BEGIN:VCALENDAR\r\nBEGIN:VEVENT\r\nDTSTART:2026\r\n 0101\r\nEND:VEVENT\r\nEND:VCALENDAR\r\n"
	)
	header := fmt.Sprintf("%-117s\n", "{'descr': '<f8', 'fortran_order': False, 'shape': (2,), }")
	rows := []sbRow{
		{
			name: "git_patch", candidate: `{"type": "git_patch", "max_patch_bytes": 4096, "max_changed_files": 2, "max_changed_bytes": 4096, "allow_paths": ["prog.py"], "exclude_paths": ["notes"]}`,
			check: fmt.Sprintf(protocol, "[]"), adapter: newAdapter, n: 7, hold: `v["out"] == "8"`,
			right: patched("prog.py", "print(0)", "import sys; print(int(sys.argv[1]) + 1)"), wrong: patched("notes", "none", "8"), hostile: patched("other.py", "print(0)", "print(8)"),
		},
		{
			name: "output artifacts", candidate: fmt.Sprintf(one, "prog.py"), adapter: newAdapter, n: 7,
			check: fmt.Sprintf(protocol, `[{"name": "o", "parser": "utf8-text/v1", "limits": {"max_bytes": 10}}]`),
			hold:  `v["out"] == "8" and e["output_artifacts"]["o"]["parsed_value"] == "77"`,
			right: file("prog.py", program), wrong: file("prog.py", strings.Replace(program, "* 2", "* 20", 1)),
			hostile: file("prog.py", "import os\nos.mkdir('left')\nos.symlink('/etc/passwd', 'left/out.txt')\nprint(8)\n"),
		},
		{
			name: "adapter v2", candidate: fmt.Sprintf(one, "prog.py"), check: fmt.Sprintf(protocol, "[]"), adapter: newAdapter, n: 7, hold: `v["out"] == "8"`,
			right: file("prog.py", program), wrong: file("prog.py", "print(7)\n"), hostile: file("prog.py", forged),
		},
		{
			name: "older adapter", candidate: fmt.Sprintf(one, "prog.py"), check: fmt.Sprintf(protocol, "[]"), adapter: oldAdapter, n: 7, hold: `v["out"] == "8"`,
			right: file("prog.py", program), wrong: file("prog.py", "print(7)\n"), hostile: file("prog.py", forged),
		},
		{
			name: "tree-manifest", candidate: tree, hold: `[(n["path"], n["mode"]) for n in v["nodes"]] == [("a", 0o644), ("b", 0o755), ("b/c", 0o644)]`,
			right: all(file("out/a", "x"), file("out/b/c", "")), wrong: file("out/a", "x"), hostile: all(file("out/a", "x"), link("out/b", "/etc")),
		},
		{
			name: "git-repository", candidate: tree, hold: `sorted(o["kind"] for o in v["objects"] if o["reachable"]) == ["blob", "commit", "tree"]`,
			right: all(file("out/f", "x"), commit("out")), wrong: file("out/f", "x"), hostile: all(file("out/f", "x"), commit("out"), file("out/.git/objects/info/alternates", "/")),
		},
	}
	for parser, r := range map[string]sbRow{
		"opaque-bytes":             {hold: `v["bytes_base64"] == "AAH/"`, right: file("f", "\x00\x01\xff"), wrong: file("f", "\x00\x01")},
		"utf8-text":                {hold: `v == "é\n"`, right: file("f", "é\n"), wrong: file("f", "\xe9\n")},
		"strict-json":              {hold: `v == {"a": [1, 2.5]}`, right: file("f", `{"a": [1, 2.5]}`), wrong: file("f", `{"a": 0, "a": [1, 2.5]}`)},
		"strict-csv":               {hold: `v["rows"] == [["1", "x,y"]]`, right: file("f", "a,b\r\n1,\"x,y\"\r\n"), wrong: file("f", "a,b\n1,x,y\n")},
		"ics":                      {hold: `v["events"][0]["properties"][0]["value"] == "20260101"`, right: file("f", calendar), wrong: file("f", calendar[1:])},
		"strict-npy-float-summary": {hold: `v["statistics"]["sum"] == 1`, right: file("f", npy+header+doubles), wrong: file("f", npy+header+doubles[8:])},
	} {
		r.name, r.candidate, r.hostile = parser, fmt.Sprintf(one, "f"), link("f", "/tests/want/want/want.json")
		rows = append(rows, r)
	}
	for i, r := range rows {
		if limits := `{"max_bytes": 65536}`; r.check == "" {
			if strings.Contains(r.candidate, "directory_tree") {
				limits = `{"max_files": 100, "max_total_bytes": 1048576}`
			}
			rows[i].check = fmt.Sprintf(artifact, `{"entry": "f"}`, r.name+"/v1", limits)
		}
	}
	return rows
}

func (r sbRow) load(tb testing.TB, baseCommit string) (*compiler.Task, *compiler.Pack) {
	tb.Helper()
	input, family, assets := `{"instructions": "leave it"}`, "terminal_task", `[{"path": "one", "mount": "/app/given/one"}]`
	if r.name == "git_patch" {
		assets = "[]"
		input, family = fmt.Sprintf(`{"repo": "a/b", "base_commit": %q, "instructions": "mend it"}`, baseCommit), "repo_patch"
	}
	runtimes := "{}"
	files := map[string]string{
		"manifest.yaml": `{schema_version: "2.0", id: rows}` + "\n", "assets/one": "1\n", "evaluation_inputs/none": "",
		"hidden/oracle/oracle.yaml": `{abi: securebench.oracle/v1, command: ["{python}", oracle.py], timeout_seconds: 20}` + "\n", "hidden/oracle/oracle.py": rowOracle,
	}
	want := map[string]any{"hold": r.hold}
	if r.adapter != "" {
		runtimes, want["n"] = `{"adapter": {"path": "adapter", "mount": "/opt/adapter"}}`, r.n
		files["evaluation_inputs/adapter/adapter.yaml"], files["evaluation_inputs/adapter/adapter.py"] = r.adapter, rowAdapter
	}
	text := must.JSON(tb, want)
	files["hidden/want/want.json"] = string(text)
	files["rows.jsonl"] = fmt.Sprintf(`{"id": "t", "family": %q, "input": %s, "assets": %s, "environment": {"image": "sha256:%064d", "workdir": "/app", "timeout_seconds": 60, "agent_network": "none"}, `+
		`"verification": {"candidate": %s, "resources": {"runtime": %s, "host": {"oracle": {"path": "oracle"}, "want": {"path": "want"}}}, "checks": [%s], "oracle": "host.oracle"}}`+"\n",
		family, input, assets, 1, r.candidate, runtimes, r.check)
	return openPack(tb, files)
}

// idle is the pace on a host that has room.
type idle struct{}

func (idle) Spare() (give func(), ok bool) { return func() {}, true }
func (idle) Doing(string)                  {}

func (w splitWorld) judgeLeft(tb testing.TB, task *compiler.Task, pack *compiler.Pack, what leave) verifiers.Verdict {
	tb.Helper()
	dir := tb.TempDir()
	must.Do(tb, os.Chmod(dir, 0o755))
	left := what(tb, dir)
	c, _, err := candidate.Extract(context.Background(), candidate.Source{Workspace: dir, Dest: tb.TempDir(), MaxBytes: 32 << 20})
	must.Do(tb, err)
	c.Text, c.Patch = left, left
	v, err := families.For(task).Verify(context.Background(), w.run, verifiers.Input{
		Task: task, Pack: pack, Candidate: c, Image: w.image, Limits: runtime.DefaultLimits(), Permissions: verifiers.Permissions{Deny: w.deny}, Pace: idle{}, Timeout: time.Minute, WorkspaceBytes: 32 << 20, OutputBytes: 1 << 20,
	})
	must.Do(tb, err)
	return v
}

// withRepository returns a world with an image that has a repository at /app, and its only commit.
func (w splitWorld) withRepository(tb testing.TB) (splitWorld, string) {
	tb.Helper()
	dir := tb.TempDir()
	filetest.Write(tb, dir, map[string]string{"prog.py": "print(0)\n", "other.py": "print(0)\n", "notes": "none\n"})
	commit(".")(tb, dir)
	c, ref := containerdtest.Open(tb), "sbench.test/split:"+strings.ToLower(filepath.Base(filepath.Dir(dir)))
	w.image = containerdtest.WithDirectory(tb, c, ref, dir, "/app")
	tb.Cleanup(func() { must.Do(tb, c.Images.Remove(context.Background(), ref)) })
	return w, git(tb, dir, "rev-parse", "HEAD")
}

// TestSecureBenchRows: each form of a row passes the right candidate, and neither a wrong nor a hostile one.
func TestSecureBenchRows(t *testing.T) {
	t.Parallel()
	w := newSplitWorld(t)
	rows := sbRows()
	if os.Getenv("SBENCH_SOAK") == "" {
		rows = rows[:2]
	}
	testRows(t, w, rows)
}

// TestNeedsPython: which rows need a python3 in the oracle's image, whatever the oracle is.
func TestNeedsPython(t *testing.T) {
	var needing []string
	for _, r := range sbRows() {
		if task, _ := r.load(t, strings.Repeat("0", 40)); task.Verification().NeedsPython() {
			needing = append(needing, r.name)
		}
	}
	slices.Sort(needing)
	must.Equal(t, "git-repository ics strict-csv strict-npy-float-summary", strings.Join(needing, " "))
}

func testRows(t *testing.T, w splitWorld, rows []sbRow) {
	for _, r := range rows {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			w, base := w, ""
			if r.name == "git_patch" {
				w, base = w.withRepository(t)
			}
			task, pack := r.load(t, base)
			for name, what := range map[string]leave{"right": r.right, "wrong": r.wrong, "hostile": r.hostile} {
				want, reason := verifiers.Failed, "oracle_rejected"
				if name == "right" {
					want, reason = verifiers.Passed, ""
				}
				if v := w.judgeLeft(t, task, pack, what); v.Status != want || v.Reason != reason {
					t.Errorf("%s: %s %s: %s\n%s", name, v.Status, v.Reason, v.Message, v.Stderr)
				}
			}
		})
	}
}

// TestSplitFamilies: split checks of code in another language and of a patch.
func TestSplitFamilies(t *testing.T) {
	t.Parallel()
	w, base := newSplitWorld(t).withRepository(t)
	code := func(text string) leave { return func(testing.TB, string) string { return text } }
	tests := []struct {
		name, row, run string
		right, wrong   leave
	}{
		{
			"code_completion", `"family": "code_completion", "input": {"prompt": "Print the next number.", "language": "shell"}`, `["sh", "candidate.sh"]`,
			code("echo $(($1 + 1))\n"), code("echo $1\n"),
		},
		{
			"repo_patch", `"family": "repo_patch", "input": {"repo": "a/b", "base_commit": "` + base + `", "instructions": "mend it"}`, `["python3", "prog.py"]`,
			patched("prog.py", "print(0)", "import sys; print(int(sys.argv[1]) + 1)"), patched("prog.py", "print(0)", "print(1)"),
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			s := textTask{run: test.run, expect: "str(int(q) + 1)"}.load()
			filetest.Write(t, dir, map[string]string{
				"manifest.yaml": "id: p\nversion: 1\n", "hidden/driver": s.driver, "hidden/oracle": s.oracle,
				"tasks.jsonl": `{"id": "t", ` + test.row + `, "environment": {"image": "x", "workdir": "/app"}, "eval": {"split": {"questions": 1, "driver": {"path": "driver"}, "oracle": {"path": "oracle"}}}}` + "\n",
			})
			task, pack := openTask(t, dir, "tasks.jsonl")
			for want, what := range map[verifiers.Status]leave{verifiers.Passed: test.right, verifiers.Failed: test.wrong} {
				if v := w.judgeLeft(t, task, pack, what); v.Status != want {
					t.Errorf("%s %s: %s\n%s", v.Status, v.Reason, v.Message, v.Stderr)
				}
			}
		})
	}
}
