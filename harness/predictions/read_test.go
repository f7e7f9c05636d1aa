package predictions_test

import (
	"archive/tar"
	"bytes"
	stdcmp "cmp"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/harness/predictions"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/workspace"
)

const rows = `{"id": "code/1", "family": "code_completion", "input": {"prompt": "def f():"}, "eval": {"tests": {"source": "inline", "code": "assert f()"}}}
{"id": "text", "family": "short_answer", "input": {"question": "1+1?"}, "eval": {"accepted_answers": ["2"]}}
{"id": "patch", "family": "repo_patch", "input": {"repo": "r", "base_commit": "c", "instructions": "x"}, "eval": {"tests": {"source": "command", "command": "true"}}}
{"id": "files", "family": "terminal_task", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}}
`

func openPack(t *testing.T) *compiler.Pack {
	pack, _ := packtest.Open(t, t.TempDir(), packtest.Manifest, rows)
	return pack
}

func TestRead(t *testing.T) {
	pack := openPack(t)
	code := func(text string) map[string][]candidate.Candidate {
		return map[string][]candidate.Candidate{"code/1": {{Text: text}}}
	}
	tests := []struct {
		name, file, text string
		want             map[string][]candidate.Candidate
		problems         string
	}{
		{"samples", "s.jsonl", `{"task_id": "code/1", "completion": " return 1"}`, code("def f():\n return 1"), ""},
		{"fenced", "s.jsonl", "{\"id\": \"code/1\", \"completion\": \"Here it is:\\n```python\\nreturn 1\\n```\\nIt returns 1.\"}", code("def f():\n    return 1\n"), ""},
		{"whole programs", "s.jsonl", `{"task_id": "code/1", "solution": "def f(): return 1", "model": "x"}`, code("def f(): return 1"), ""},
		{"attempts", "s.jsonl", "{\"id\": \"text\", \"answer\": \"1\"}\n\n{\"id\": \"text\", \"answer\": \"2\"}\n", map[string][]candidate.Candidate{"text": {{Text: "1"}, {Text: "2"}}}, ""},
		{"patches", "s.jsonl", `{"instance_id": "patch", "model_patch": "diff", "model_name_or_path": "m"}`, map[string][]candidate.Candidate{"patch": {{Patch: "diff", Foreign: true}}}, ""},
		{"no patch", "s.jsonl", `{"instance_id": "patch", "model_patch": null}`, map[string][]candidate.Candidate{"patch": {{Foreign: true}}}, ""},
		{"SecureBench's text", "candidates.jsonl", `{"task_id": "text", "candidate_text": "2", "candidate_patch": null, "hidden_values": "<redacted>"}`, map[string][]candidate.Candidate{"text": {{Text: "2"}}}, ""},
		{"SecureBench's patch", "candidates.jsonl", `{"task_id": "patch", "candidate_text": null, "candidate_patch": "diff"}`, map[string][]candidate.Candidate{"patch": {{Patch: "diff", Foreign: true}}}, ""},
		{"SecureBench's workspace is missing", "candidates.jsonl", `{"task_id": "files", "candidate_workspace": "/elsewhere/workspaces/..", "hidden_values": "<redacted>"}`, nil, `s.jsonl:1: $.candidate_workspace: there is no directory`},
		{"a list", "s.json", `[{"instance_id": "patch", "model_patch": "a"}, {"id": "text", "text": "2"}]`, map[string][]candidate.Candidate{"patch": {{Patch: "a", Foreign: true}}, "text": {{Text: "2"}}}, ""},
		{"by id", "s.json", `{"patch": {"model_patch": "a"}}`, map[string][]candidate.Candidate{"patch": {{Patch: "a", Foreign: true}}}, ""},

		{"nothing", "s.jsonl", "\n", nil, "s.jsonl: there are no predictions"},
		{"a broken line", "s.jsonl", "{\"id\": \"text\", \"answer\": \"1\"}\n{\"id\": \"text\", \n", nil, "s.jsonl:2: "},
		{"a key twice", "s.jsonl", `{"id": "text", "answer": "1", "answer": "2"}`, nil, `s.jsonl:1: `},
		{"no object", "s.jsonl", `["text"]`, nil, "s.jsonl:1: expected an object, found"},
		{"no id", "s.jsonl", `{"answer": "1"}`, nil, "s.jsonl:1: the prediction names no task: it has no id, instance_id, task_id"},
		{"another task", "s.jsonl", `{"id": "txet", "answer": "1"}`, nil, `s.jsonl:1: the pack has no task "txet" (did you mean "text"?)`},
		{"no answer", "s.jsonl", `{"id": "text", "completion": "1"}`, nil, `s.jsonl:1: a prediction for "text", a short_answer, has one of answer, text, response, candidate_text, found 0`},
		{"null is no second answer", "s.jsonl", `{"id": "text", "answer": "1", "text": null}`, map[string][]candidate.Candidate{"text": {{Text: "1"}}}, ""},
		{"two answers", "s.jsonl", `{"id": "text", "answer": "1", "text": "2"}`, nil, `found 2`},
		{"a number", "s.jsonl", `{"id": "text", "answer": 2}`, nil, "s.jsonl:1: $.answer: expected text, found"},
		{"a directory's task", "s.jsonl", `{"id": "files", "answer": "x"}`, nil, "is not a text (give a directory"},
		{"a list that is broken", "s.json", `[{"id": "text", "answer": "1"}, {`, nil, "unexpected EOF"},
		{"more than a list", "s.json", `[] []`, nil, "there is more after the value"},
		{"the same id twice", "s.json", "{\"text\": {\"answer\": \"1\"},\n\"text\": {\"answer\": \"2\"}}", nil, `s.json:2: the key "text" is there twice`},
		{"a broken surrogate", "s.jsonl", `{"id": "text", "answer": "\ud800"}`, nil, "s.jsonl:1: "},
		{"the third line of a list", "s.json", "[\n{\"id\": \"text\", \"answer\": \"1\"},\n[]]", nil, "s.json:3: expected an object, found an array"},
		{"nothing but lists", "s.json", "[[]" + strings.Repeat(",[]", 3<<20) + "]", nil, "there are too many problems: the rest was not read"},
		{"other keys do not count", "s.jsonl", `{"id": "text", "answer": "1", "trajectory": [` + strings.Repeat("[],", 3<<20) + `1]}`, map[string][]candidate.Candidate{"text": {{Text: "1"}}}, ""},
		{"gzip", "s.jsonl", "\x1f\x8b\x08\x00\n\n", nil, "s.jsonl: file is compressed with gzip (unpack it: gunzip FILE)"},
		{"UTF-16", "s.json", "\xff\xfe[\x00]\x00", nil, "s.json: file is in UTF-16 (save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE)"},
		{"no JSON", "s.jsonl", "id,answer", nil, "s.jsonl:1: invalid JSON at column 1: invalid character 'i'"},
		{"all of it", "s.jsonl", "{}\n[]\n", nil, "s.jsonl:2: "},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), tt.file)
			must.Do(t, os.WriteFile(file, []byte(tt.text), 0o644))
			set, err := predictions.Read(t.Context(), file, pack, tt.name == "fenced")
			if tt.problems != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problems) {
					t.Errorf("error %v, want %s", err, tt.problems)
				}
				return
			}
			must.Do(t, err)
			if diff := cmp.Diff(tt.want, set.Candidates, shown()); diff != "" || !strings.HasPrefix(set.Digest, "sha256:") {
				t.Errorf("%s%s", set.Digest, diff)
			}
		})
	}
}

// layerWith returns a layer that has empty files.
func layerWith(t *testing.T, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	packed, err := zstd.NewWriter(&b)
	must.Do(t, err)
	archive := tar.NewWriter(packed)
	for _, name := range names {
		must.Do(t, archive.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeReg}))
	}
	must.Do(t, errors.Join(archive.Close(), packed.Close()))
	return b.Bytes()
}

// TestReadDirectory: the entries of a directory have the names of tasks, and the digest covers all
// entries.
func TestReadDirectory(t *testing.T) {
	pack, dir := openPack(t), t.TempDir()
	must.Do(t, os.Mkdir(filepath.Join(dir, "files"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "files", "a"), []byte("a"), 0o644))
	must.Do(t, os.WriteFile(filepath.Join(dir, "text.md"), []byte("2"), 0o644))
	must.Do(t, os.Mkdir(filepath.Join(dir, "code"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "code", "1.py"), []byte("def f(): return 1"), 0o644))
	set, err := predictions.Read(t.Context(), dir, pack, false)
	must.Do(t, err)
	want := map[string][]candidate.Candidate{"text": {{Text: "2"}}, "code/1": {{Text: "def f(): return 1"}}, "files": {{Workspace: filepath.Join(dir, "files")}}}
	must.Equal(t, want, set.Candidates, shown())
	records := filepath.Join(t.TempDir(), "candidates.jsonl")
	must.Do(t, os.WriteFile(records, []byte(`{"task_id": "files", "candidate_workspace": "/elsewhere/workspaces/files", "hidden_values": "<redacted>"}`), 0o644))
	must.Do(t, os.Symlink(dir, filepath.Join(filepath.Dir(records), "workspaces")))
	recorded, err := predictions.Read(t.Context(), records, pack, false)
	must.Do(t, err)
	if len(recorded.Candidates["files"]) != 1 || filepath.Base(recorded.Candidates["files"][0].Workspace) != "files" {
		t.Errorf("the workspace of a record: %v", recorded.Candidates)
	}
	must.Do(t, os.WriteFile(filepath.Join(dir, "files", "a"), []byte("b"), 0o644))
	other, err := predictions.Read(t.Context(), dir, pack, false)
	if must.Do(t, err); other.Digest == set.Digest {
		t.Error("another file, and the same digest")
	}
	deep := filepath.Join(dir, "files", strings.Repeat("d/", 600))
	must.Do(t, os.MkdirAll(deep, 0o755))
	set, err = predictions.Read(t.Context(), dir, pack, false) // the other candidates are judged all the same
	must.Do(t, err)
	r := harness.Request{Task: compiler.AgentView{ID: "files"}, Attempt: 1, Kind: compiler.CandidateWorkspace, Dest: t.TempDir(), WorkspaceBytes: 1 << 20}
	if result, err := set.Produce(t.Context(), nil, r); err != nil || result.Failure == nil || result.Failure.Reason != "candidate_too_big" {
		t.Errorf("600 directories deep: %+v %v", result.Failure, err)
	}
	must.Do(t, os.RemoveAll(filepath.Join(dir, "files", "d")))
	r.Task.Environment.Machine = true
	for name, written := range map[string][]byte{
		"no archive": []byte("x"), "a path that leads out of the machine": layerWith(t, "../x"), "half an archive": layerWith(t, "x")[:20],
		"two files of one path": layerWith(t, "x", "y", "x"), "a file that it removes": layerWith(t, "x", ".wh.x"),
		"a name that no file can have": layerWith(t, strings.Repeat("x", 256)), "a directory's contents removed without it": layerWith(t, "etc/.wh..wh..opq"),
	} {
		must.Do(t, os.WriteFile(filepath.Join(dir, "files.layer.tar.zst"), written, 0o644))
		set, err = predictions.Read(t.Context(), dir, pack, false)
		must.Do(t, err)
		r.Dest = t.TempDir()
		if result, err := set.Produce(t.Context(), nil, r); err != nil || result.Failure == nil || result.Failure.Reason != "candidate_unreadable" || result.Candidate.Layer != "" {
			t.Errorf("a layer that is %s: %+v %v, of the candidate %+v", name, result.Failure, err, result.Candidate)
		}
	}
	must.Do(t, os.Remove(filepath.Join(dir, "files.layer.tar.zst")))
	must.Do(t, os.WriteFile(filepath.Join(dir, "text.txt"), nil, 0o644))
	must.Do(t, os.Truncate(filepath.Join(dir, "text.txt"), 300<<30))
	_, err = predictions.Read(t.Context(), dir, pack, false)
	must.Tells(t, err, "is too big") // a file of 300 GiB
	must.Do(t, os.Remove(filepath.Join(dir, "text.txt")))
	pipe := filepath.Join(dir, "files.layer.tar.zst")
	must.Do(t, unix.Mkfifo(pipe, 0o644))
	_, err = predictions.Read(t.Context(), dir, pack, false)
	must.Tells(t, err, "no regular file") // a layer that is a pipe
	must.Do(t, os.Remove(pipe))
	must.Do(t, os.WriteFile(filepath.Join(dir, "text.txt"), []byte("3"), 0o644))
	must.Do(t, os.Mkdir(filepath.Join(dir, "patch"), 0o755))
	must.Do(t, os.Mkdir(filepath.Join(dir, workspace.TaskDir("files")), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(dir, "other"), nil, 0o644))
	_, err = predictions.Read(t.Context(), dir, pack, false)
	for _, want := range []string{`text.txt: there is another candidate of "text" already`, `there is another candidate of "files" already`, `patch: a candidate of "patch"`, `the pack has no task "other"`} {
		must.Tells(t, err, want)
	}
}

// TestProduceText: a text that no record could hold as it is fails alone.
func TestProduceText(t *testing.T) {
	pack, dir := openPack(t), t.TempDir()
	for reason, text := range map[string]string{"candidate_not_utf8": "\xff1", "candidate_too_big": strings.Repeat("1", 16<<20+1), "": strings.Repeat("1", 16<<20)} {
		for id, kind := range map[string]compiler.CandidateKind{"text": compiler.CandidateText, "patch": compiler.CandidatePatch} {
			must.Do(t, os.WriteFile(filepath.Join(dir, id), []byte(text), 0o644))
			set, err := predictions.Read(t.Context(), dir, pack, false)
			must.Do(t, err)
			result, err := set.Produce(t.Context(), nil, harness.Request{Task: compiler.AgentView{ID: id}, Attempt: 1, Kind: kind})
			must.Do(t, err)
			if got := stdcmp.Or(result.Failure, &candidate.Failure{}).Reason; got != reason || (result.Candidate.Text+result.Candidate.Patch == "") != (reason != "") {
				t.Errorf("%s of %d bytes: %q, want %q", id, len(text), got, reason)
			}
		}
	}
}

// shown compares candidates by what they show.
func shown() cmp.Option { return cmpopts.IgnoreUnexported(candidate.Candidate{}) }
