package compiler_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
)

func oneTask(t *testing.T, manifest, row string) *compiler.Task {
	t.Helper()
	_, tasks := packtest.Open(t, t.TempDir(), manifest, row)
	if len(tasks) != 1 {
		t.Fatalf("%d tasks", len(tasks))
	}
	return tasks[0]
}

func TestEnvironment(t *testing.T) {
	manifest := `{"id":"p","version":1,"defaults":{"family":"tool_call","environment":{"image":" i ","timeout_seconds":60,"env":{"A":"a"},"resources":{"memory":"1g"},"gpu":1,"user":"u"}}}`
	row := `{"id":"a","environment":{"workdir":"/w//x/","timeout_seconds":0.5,"env":{"B":"b"},"network":"none","cuda":2,"user":null,"resources":{"cpus":2,"pids":10}}}`
	want := environment.Environment{
		Image: "i", Workdir: "/w/x", Timeout: 500 * time.Millisecond, Env: map[string]string{"B": "b"}, NetworkNone: true,
		Resources: environment.Resources{CPUs: 2, Pids: 10},
	}
	task := oneTask(t, manifest, row)
	must.Equal(t, want, task.Environment())
	task.Environment().Env["B"] = "changed"
	if task.Environment().Env["B"] != "b" {
		t.Error("a caller can change the task")
	}
	must.Equal(t, "/workspace", oneTask(t, `{"id":"p","version":1}`, `{"id":"a","family":"tool_call"}`).Environment().Workdir)
	long := oneTask(t, `{"id":"p","version":1}`, `{"id":"a","family":"tool_call","environment":{"timeout_seconds":1e300}}`)
	if got := long.Environment().Timeout; got < 100*365*24*time.Hour {
		t.Errorf("timeout %v", got)
	}
}

// TestWorkdir: only a whole machine takes the working directory of its image.
func TestWorkdir(t *testing.T) {
	const materialize = `"materialize_workdir_from_image": true`
	for _, tt := range []struct{ name, defaults, environment, image, want string }{
		{"copied", "", `{` + materialize + `}`, "/srv", "/workspace"},
		{"copied by default", materialize, `{}`, "/srv", "/workspace"},
		{"machine", materialize, `{"candidate": "machine"}`, "/srv", "/srv"},
		{"machine at the root", materialize, `{"candidate": "machine"}`, "/", "/workspace /"},
		{"machine at a directory of the sandbox", materialize, `{"candidate": "machine"}`, "/opt", "/workspace /opt"},
		{"machine at the root with a file", materialize, `{"candidate": "machine"}, "assets": [{"path": "f"}]`, "", ""},
		{"machine at the root that is not copied", "", `{"candidate": "machine"}`, "/", "/workspace"},
		{"machine with its own", materialize, `{"candidate": "machine", "workdir": "/w"}`, "/srv", "/w"},
		{"machine with the pack's", materialize + `, "workdir": "/w"`, `{"candidate": "machine"}`, "/srv", "/w"},
		{"machine that is not copied", "", `{"candidate": "machine"}`, "/srv", "/workspace"},
		{"machine in a mount", materialize, `{"candidate": "machine"}`, "/tmp", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			task := oneTask(t, `{"id": "p", "version": 1, "defaults": {"environment": {`+tt.defaults+`}}}`,
				`{"id": "a", "family": "terminal_task", "input": {"instructions": "x"}, "eval": {"checker": {"command": "true"}}, "environment": `+tt.environment+`}`)
			placed, err := task.InImage(tt.image)
			if (err == nil) != (tt.want != "") || err == nil && strings.TrimSpace(placed.Environment().Workdir+" "+placed.Environment().Cwd) != tt.want {
				t.Errorf("%v, %v", placed, err)
			}
		})
	}
}

func TestMetadata(t *testing.T) {
	manifest := `{"id":"p","version":3,"defaults":{"family":"tool_call","environment":{"image":"i","gpu":1}},"asset_roots":{"eval":"secret/"},"asset_defaults":{"read_only":false}}`
	task := oneTask(t, manifest, `{"id":"a","metadata":{"difficulty":"hard","environment":"mine"},"environment":{"image":"j"}}`)
	got := must.JSON(t, task.Metadata())
	path := task.Metadata()["benchmark_pack"].(map[string]any)["manifest_path"].(string)
	want := fmt.Sprintf(`{"asset_defaults":{"read_only":false},"asset_roots":{"eval":"secret/","public":"assets/"},`+
		`"benchmark_pack":{"id":"p","manifest_path":%q,"version":3},"difficulty":"hard","environment":{"gpu":1,"image":"j"}}`, path)
	must.Equal(t, want, string(got))
}

// TestPayload pins what a harness finds in its task file.
func TestPayload(t *testing.T) {
	row := `{"id":"a","input":{"prompt":"<é>","n":1.50,"id":"own"},"eval":{"x":1},"metadata":{"m":1},` +
		`"assets":[{"path":"f"}],"environment":{"image":"i","timeout_seconds":1.5,"env":{"A":"b"},"network":"none","user":"1","resources":{"memory":16777216,"cpus":2.5,"pids":3},"other":1}}`
	payload := oneTask(t, "id: p\nversion: 1\ndefaults: {family: tool_call}\n", row).AgentView().Payload()
	want := `{
  "assets": [
    {
      "mount": "f",
      "path": "f",
      "read_only": true
    }
  ],
  "environment": {
    "env": {
      "A": "b"
    },
    "image": "i",
    "network": "none",
    "resources": {
      "cpus": 2.5,
      "memory": 16777216,
      "pids": 3
    },
    "timeout_seconds": 1.5,
    "user": "1",
    "workdir": "/workspace"
  },
  "family": "tool_call",
  "id": "own",
  "input": {
    "id": "own",
    "n": 1.50,
    "prompt": "<é>"
  },
  "n": 1.50,
  "prompt": "<é>"
}
`
	must.Equal(t, want, string(payload))
}

func TestMultipleChoiceAnswers(t *testing.T) {
	tests := []struct {
		answer string
		want   []family.Answer
	}{
		{`"A"`, []family.Answer{{Choice: 0, Text: "B"}}}, // a label takes precedence over the text of a choice
		{`" (b). "`, []family.Answer{{Choice: 1, Text: "two words"}}},
		{`"\"Two  Words\"."`, []family.Answer{{Choice: 1, Text: "two words"}}},
		{`2`, []family.Answer{{Choice: 2, Text: "III"}}},
		{`[0.0, "iii", "other"]`, []family.Answer{{Choice: 0, Text: "B"}, {Choice: 2, Text: "III"}, {Choice: -1, Text: "other"}}},
	}
	for _, test := range tests {
		t.Run(test.answer, func(t *testing.T) {
			row := `{"id":"a","family":"multiple_choice","input":{"question":"q","choices":["B","two words","III"]},"eval":{"answer":` + test.answer + `}}`
			eval := family.MultipleChoiceOf(oneTask(t, "id: p\nversion: 1\n", row))
			if len(eval.Choices) != 3 {
				t.Fatalf("%+v", eval)
			}
			must.Equal(t, test.want, eval.Answers.Reveal())
		})
	}
}

// TestAnswerFormat: an agent gets the author's or else the family's description of the form of an answer,
// and never a pattern.
func TestAnswerFormat(t *testing.T) {
	for _, test := range []struct{ name, family, input, eval, want string }{
		{"multiple choice", "multiple_choice", `"question":"q","choices":["x","y"]`, `"answer":"A"`, "End with a line `ANSWER: <letter>`."},
		{"short answer", "short_answer", `"question":"q"`, `"accepted_answers":["x"]`, "End with a line `ANSWER: <answer>`."},
		{"the author's", "short_answer", `"question":"q","answer_format":"a word"`, `"accepted_answers":["x"]`, "a word"},
		{"pattern", "multiple_choice", `"question":"q","choices":["x","y"]`, `"answer":"A","answer_pattern":"Choice: (.)"`, ""},
		{"free response", "free_response", `"prompt":"p"`, `"rubric":{"type":"contains_any","accepted_answers":["x"]}`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			payload := oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"`+test.family+`","input":{`+test.input+`},"eval":{`+test.eval+`}}`).AgentView().Payload()
			var got struct {
				Format string `json:"answer_format"`
			}
			if err := json.Unmarshal(payload, &got); err != nil || got.Format != test.want || strings.Contains(string(payload), "Choice: ") {
				t.Errorf("format %q, %v, in %s", got.Format, err, payload)
			}
		})
	}
}

func TestTextEvals(t *testing.T) {
	short := family.ShortAnswerOf(oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"short_answer","input":{"question":"q","answer_format":"f"},"eval":{"accepted_answers":["x",1.50],"tolerance":0.25}}`))
	if short.Tolerance.Reveal() != 0.25 || !cmp.Equal(short.Accepted.Reveal(), []string{"x", "1.50"}) {
		t.Errorf("short answer %+v %v", short, short.Accepted.Reveal())
	}
	for name, test := range map[string]struct {
		rubric string
		want   family.Rubric
		reason string
	}{
		"structured": {`{"type":"contains_any","accepted_answers":["a"],"rejected_answers":["b"]}`, family.Rubric{AcceptedAnswers: []string{"a"}, RejectedAnswers: []string{"b"}, MinTokenF1: 1}, ""},
		"with f1":    {`{"type":"contains_any","accepted_answers":["a"],"min_token_f1":0}`, family.Rubric{AcceptedAnswers: []string{"a"}}, ""},
		"prose":      {`"be kind"`, family.Rubric{}, "the rubric is prose"},
		"other":      {`{"type":"judge"}`, family.Rubric{}, "the rubric's type has no verifier"},
	} {
		t.Run(name, func(t *testing.T) {
			eval := family.FreeResponseOf(oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"free_response","input":{"prompt":"p"},"eval":{"rubric":`+test.rubric+`,"reference_answer":"r"}}`))
			if eval.Reason != test.reason || eval.ReferenceAnswer.Reveal() != "r" {
				t.Errorf("%+v", eval)
			}
			must.Equal(t, test.want, eval.Rubric.Reveal())
		})
	}
}

func TestSandboxEvals(t *testing.T) {
	code := family.CodeCompletionOf(oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"code_completion","input":{"prompt":"p","language":"Py","starter_code":"s"},"eval":{"tests":{"source":"inline","code":"c"},"canonical_solution":"x"}}`))
	if code.Language != "python" || code.Tests != "c" || code.StarterCode != "s" || code.CanonicalSolution.Reveal() != "x" || code.ReferenceSolution.Reveal() != "" {
		t.Errorf("code completion %q", code.Language)
	}
	const diff = `--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n`
	want := strings.ReplaceAll(diff, `\n`, "\n")
	for _, where := range []string{`"tests":{"source":"command","command":["a","b"],"workdir":"/w","timeout_seconds":2,"setup_patch":"` + diff + `","test_patch":{"source":"inline","patch":"` + diff + `"},"candidate_policy":{"allow_paths":["x"]}}`,
		`"tests":{"source":"command","command":["a","b"],"workdir":"/w","timeout_seconds":2,"setup_patch":"` + diff + `","test_patch":{"source":"inline","patch":"` + diff + `"}},"candidate_policy":{"allow_paths":["x"]}`} {
		eval := family.RepoPatchOf(oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"repo_patch","input":{"repo":"r","base_commit":" c ","instructions":"i"},"eval":{`+where+`,"gold_patch":"`+diff+`"}}`))
		if eval.BaseCommit != "c" || !cmp.Equal(eval.Command.Args(), []string{"a", "b"}) || eval.Workdir != "/w" || eval.Timeout != 2*time.Second ||
			eval.SetupPatch != want || eval.TestPatch != want || !cmp.Equal(eval.Policy, family.CandidatePolicy{AllowPaths: []string{"x"}}) || eval.GoldPatch.Reveal() != want {
			t.Errorf("repo patch: %v %v", eval.Policy, eval.Command)
		}
	}
	terminal := family.TerminalTaskOf(oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"terminal_task","input":{"instructions":"i"},"eval":{"checker":{"source":"script","path":"./a//run.sh","workdir":"/w","timeout_seconds":1},"needed_commands":["chroot","chroot"],"test_files":{"path":"t","read_only":false},"expected_state":{"x":1}}}`))
	if terminal.Checker.Source != compiler.CheckerScript || terminal.Checker.Path != "a/run.sh" || terminal.Checker.Files != "a" || terminal.Checker.Timeout != time.Second ||
		!cmp.Equal(terminal.NeededCommands, []string{"chroot"}) {
		t.Errorf("terminal task: %q %v", terminal.Checker.Path, terminal.NeededCommands)
	}
	wantFiles := []compiler.FileRef{{Name: "test_files", Lane: compiler.EvaluationInputs, Field: "$.eval.test_files", Path: "t", Mount: "securebench/evaluation_inputs/t"}}
	must.Equal(t, wantFiles, terminal.Files)
	if checker := oneTask(t, "id: p\nversion: 1\n", `{"id":"a","family":"tool_call","eval":{"checker":{"command":"c"}}}`).Checker(); checker.Source != "" {
		t.Error("a tool_call has a checker")
	}
}

// TestTasksGoOn shows that reading goes on after an invalid row and after a line that is too long.
func TestTasksGoOn(t *testing.T) {
	dir := t.TempDir()
	long := `{"id":"long","family":"tool_call","input":{"x":"` + strings.Repeat("y", compiler.MaxLine) + `"}}`
	medium := `{"id":"medium","family":"tool_call","input":{"x":"` + strings.Repeat("y", 1<<20) + `"}}`
	rows := `{"id":"a","family":"tool_call"}` + "\nx\n" + long + "\n" + medium + "\n" + `{"id":"a","family":"tool_call"}` + "\n" + `{"id":"b","family":"tool_call"}`
	filetest.Write(t, dir, map[string]string{"manifest.yaml": "id: p\nversion: 1\n", "tasks.jsonl": rows})
	pack, err := family.OpenPack(filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl"))
	must.Do(t, err)
	for range 2 { // a pack can be read again
		var got []string
		for task, err := range pack.Tasks() {
			var problems compiler.Problems
			switch {
			case err == nil:
				got = append(got, fmt.Sprintf("%d %s", task.Line(), task.ID()))
			case errors.As(err, &problems):
				got = append(got, fmt.Sprintf("%d error", problems[0].Line))
			default:
				t.Fatal(err)
			}
		}
		want := []string{"1 a", "2 error", "3 error", "4 medium", "5 error", "6 b"}
		must.Equal(t, want, got)
	}
	next, stop := iter.Pull2(pack.Tasks())
	if task, err, ok := next(); !ok || err != nil || task.ID() != "a" {
		t.Errorf("first %v, %v", task, err)
	}
	stop() // leaving early is allowed
	must.Do(t, os.Remove(pack.TasksPath))
	for task, err := range pack.Tasks() {
		if task != nil || err == nil {
			t.Errorf("%v, %v", task, err)
		}
	}
}

func TestMatchTask(t *testing.T) {
	tests := []struct {
		glob, id string
		want     bool
	}{
		{"pack/a", "pack/a", true}, {"pack/*", "pack/a/b", true}, {"*", "pack/a", true}, {"*/a", "pack/x/a", true}, {"pack/?", "pack/a", true},
		{"pack/[ab]", "pack/b", true}, {"pack/[", "pack/[", true}, {"pack", "pack/a", false}, {"pack/[", "pack/a", false}, {"", "a", false},
	}
	for _, test := range tests {
		t.Run(test.glob+" "+test.id, func(t *testing.T) {
			must.Equal(t, test.want, compiler.MatchTask(test.glob, test.id))
		})
	}
}

// TestSelector: each list selects among the ids that the others select, and exclude leaves out some of these.
func TestSelector(t *testing.T) {
	for _, tt := range []struct {
		name                  string
		exclude, task, tester []string
		want                  string
	}{
		{"neither", nil, nil, nil, "a/1 a/2 b/1"},
		{"tester file", nil, nil, []string{"a/*"}, "a/1 a/2"},
		{"flag", nil, []string{"*/1"}, nil, "a/1 b/1"},
		{"both", nil, []string{"*/1"}, []string{"a/*"}, "a/1"},
		{"nothing in common", nil, []string{"b/*"}, []string{"a/*"}, ""},
		{"all but some", []string{"b/*", "*/2"}, nil, nil, "a/1"},
		{"of some, all but one", []string{"a/2"}, nil, []string{"a/*"}, "a/1"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			selected := compiler.Selector(tt.exclude, tt.task, tt.tester)
			var got []string
			for _, id := range []string{"a/1", "a/2", "b/1"} {
				if selected == nil || selected(id) {
					got = append(got, id)
				}
			}
			must.Equal(t, tt.want, strings.Join(got, " "))
		})
	}
}
