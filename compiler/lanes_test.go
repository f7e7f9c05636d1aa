package compiler_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
)

const secret = "correct-horse-battery"

// secretRows returns rows of every family in which every value that is not public,
// and all metadata, contains the secret.
func secretRows() string {
	diff := `diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+` + secret + `\n`
	rows := []string{
		`{"id":"mc","family":"multiple_choice","input":{"question":"q","choices":["a","b"]},"eval":{"answer":["A","` + secret + `"]}}`,
		`{"id":"sa","family":"short_answer","input":{"question":"q"},"eval":{"accepted_answers":["` + secret + `"],"tolerance":1}}`,
		`{"id":"fr","family":"free_response","input":{"prompt":"p"},"eval":{"rubric":{"type":"contains_any","accepted_answers":["` + secret + `"]},"reference_answer":"` + secret + `"}}`,
		`{"id":"cc","family":"code_completion","input":{"prompt":"p"},"eval":{"tests":{"source":"inline","code":"` + secret + `"},"reference_solution":"` + secret + `"}}`,
		`{"id":"rp","family":"repo_patch","input":{"repo":"r","base_commit":"c","instructions":"i"},"eval":{"tests":{"source":"command","command":"` + secret + `","test_patch":"` + diff + `"},"gold_patch":"` + diff + `"}}`,
		`{"id":"tt","family":"terminal_task","input":{"instructions":"i"},"eval":{"checker":{"command":"` + secret + `"},"run_tests":{"path":"run"},"expected_state":{"` + secret + `":"` + secret + `"}}}`,
		`{"id":"tp","family":"terminal_task","input":{"instructions":"i"},"eval":{"checker":{"source":"script","path":"` + secret + `"}}}`,
		`{"id":"tc","family":"tool_call","input":{"x":[1]},"eval":{"initial_state":"` + secret + `","expected_calls":["` + secret + `"],"new":{"a":{"b":"` + secret + `"}}}}`,
		`{"id":"bt","family":"browser_task","input":{},"eval":{"credentials":{"password":"` + secret + `"},"success_check":"` + secret + `"}}`,
	}
	for i, row := range rows {
		rows[i] = strings.TrimSuffix(row, "}") + `,"metadata":{"note":"` + secret + `"},"environment":{"image":"i","note":"` + secret + `"},"assets":[{"path":"a"}]}`
	}
	return strings.Join(rows, "\n")
}

// reach visits every byte that can be reached from a value by following
// pointers, slices up to their capacity, maps, interfaces and unexported
// fields. It fails on a function, behind which anything could be.
type reach struct {
	t    *testing.T
	seen map[[2]uintptr]bool
	text bytes.Buffer
}

func (r *reach) visit(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.String:
		fmt.Fprintln(&r.text, v.String())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			if v.Cap() > 0 {
				fmt.Fprintf(&r.text, "%s\n", unsafe.Slice((*byte)(v.UnsafePointer()), v.Cap()))
			}
			return
		}
		for i := range v.Len() {
			r.visit(fmt.Sprintf("%s[%d]", path, i), v.Index(i))
		}
	case reflect.Array:
		for i := range v.Len() {
			r.visit(path, v.Index(i))
		}
	case reflect.Map:
		for iter := v.MapRange(); iter.Next(); {
			r.visit(path, iter.Key())
			r.visit(path, iter.Value())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			r.visit(path+"."+v.Type().Field(i).Name, v.Field(i))
		}
	case reflect.Pointer, reflect.Interface:
		if v.IsNil() {
			return
		}
		if v.Kind() == reflect.Pointer {
			key := [2]uintptr{v.Pointer(), uintptr(v.Type().Size())}
			if r.seen[key] {
				return
			}
			r.seen[key] = true
		}
		r.visit(path, v.Elem())
	case reflect.Func, reflect.Chan, reflect.UnsafePointer:
		if !v.IsNil() {
			r.t.Errorf("%s is a %s, behind which anything could be", path, v.Type())
		}
	}
}

// TestAgentViewReachesNoSecret proves that evaluation inputs, hidden values and
// metadata cannot be reached from an AgentView.
func TestAgentViewReachesNoSecret(t *testing.T) {
	_, tasks := packtest.Open(t, t.TempDir(), "id: p\nversion: 1\ndefaults: {environment: {hint: "+secret+"}}\n", secretRows())
	for _, task := range tasks {
		t.Run(task.ID(), func(t *testing.T) {
			view := task.AgentView()
			for name, v := range map[string]any{"view": view, "payload": view.Payload()} {
				r := reach{t: t, seen: map[[2]uintptr]bool{}}
				r.visit(name, reflect.ValueOf(v))
				if strings.Contains(r.text.String(), secret) {
					t.Errorf("%s reaches the secret", name)
				}
				if name == "view" && !strings.Contains(r.text.String(), task.ID()) {
					t.Error("the walk does not even reach the id")
				}
			}
		})
	}
}

// TestNothingPrintsSecrets prints, logs and marshals all types with values that are not public, in every way there
// is, and looks for the values.
func TestNothingPrintsSecrets(t *testing.T) {
	pack, tasks := packtest.Open(t, t.TempDir(), packtest.Manifest, secretRows())
	for _, task := range tasks {
		values := map[string]any{
			"task": task, "task value": *task, "pack": pack,
			"test sandbox": task.Resources(compiler.TestSandbox), "evaluator": task.Resources(compiler.Evaluator), "summary": task.ResourceSummary(),
		}
		switch task.Family().Name {
		case "multiple_choice":
			e := family.MultipleChoiceOf(task)
			values["eval"], values["field"] = e, struct{ hidden any }{e.Answers}
		case "short_answer":
			e := family.ShortAnswerOf(task)
			values["eval"], values["field"] = e, struct{ hidden any }{e.Accepted}
		case "free_response":
			e := family.FreeResponseOf(task)
			values["eval"], values["field"] = e, struct{ hidden any }{e.Rubric}
		case "code_completion":
			e := family.CodeCompletionOf(task)
			values["eval"], values["pointer"] = e, &e
		case "repo_patch":
			e := family.RepoPatchOf(task)
			values["eval"], values["pointer"] = e, &e
		case "terminal_task":
			e := family.TerminalTaskOf(task)
			values["eval"], values["checker"] = e, e.Checker
		}
		for name, v := range values {
			t.Run(task.ID()+" "+name, func(t *testing.T) { checkPrints(t, v) })
		}
	}
}

func checkPrints(t *testing.T, v any) {
	t.Helper()
	var b bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d", "%t"} {
		fmt.Fprintf(&b, verb+"\n", v)
	}
	for _, handler := range []slog.Handler{slog.NewTextHandler(&b, nil), slog.NewJSONHandler(&b, nil)} {
		slog.New(handler).Info("message", "value", v, slog.Group("group", "value", v))
	}
	if text, err := json.Marshal(v); err == nil {
		b.Write(text)
	}
	text := b.String()
	for _, form := range []string{secret, fmt.Sprintf("%x", secret), fmt.Sprintf("%d", []byte(secret))} {
		if i := strings.Index(text, form); i >= 0 {
			t.Errorf("printed the secret: …%s", text[max(0, i-100):i+len(form)])
		}
	}
}

// TestSplitViews: of a split check, the driver's sandbox gets the driver alone; the oracle and the programs'
// commands are hidden.
func TestSplitViews(t *testing.T) {
	const row = `{"id":"a","family":"terminal_task","input":{"instructions":"i"},"eval":{"split":{"questions":1,"driver":{"path":"a/driver"},"oracle":{"path":"a/oracle"}}}}`
	_, tasks := packtest.Open(t, t.TempDir(), packtest.Manifest, row)
	names := func(v []compiler.Resource) (names []string) {
		for _, r := range v {
			names = append(names, r.Name)
		}
		return names
	}
	must.Equal(t, []string{"instructions", "split.driver"}, names(tasks[0].Resources(compiler.TestSandbox)))
	must.Equal(t, []string{"instructions", "split", "split.oracle"}, names(tasks[0].Resources(compiler.Evaluator)))
}

// TestViews pins, for each family, the eval fields that the sandbox of the tests gets, and the fields that only the
// evaluator gets.
func TestViews(t *testing.T) {
	const diff = `"diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n"`
	tests := map[string]struct{ row, public, inputs, hidden string }{
		"multiple_choice": {`"input":{"question":"q","choices":["a","b"]},"eval":{"answer":"A","answer_pattern":"(x)"}`,
			"question choices", "", "answer answer_pattern"},
		"short_answer": {`"input":{"question":"q"},"eval":{"accepted_answers":["1"],"tolerance":1,"answer_pattern":"(x)"}`,
			"question", "", "accepted_answers tolerance answer_pattern"},
		"free_response": {`"input":{"prompt":"p"},"eval":{"rubric":"prose","reference_answer":"r","judge":{"wrong_answers":["w"]},"answer_pattern":"(x)"}`,
			"prompt", "", "rubric reference_answer judge answer_pattern"},
		"code_completion": {`"input":{"prompt":"p"},"eval":{"tests":{"source":"inline","code":"c"},"reference_solution":"r","canonical_solution":"r","extract":"none"}`,
			"prompt", "tests", "reference_solution canonical_solution extract"},
		"repo_patch": {`"input":{"repo":"r","base_commit":"c","instructions":"i"},"eval":{"tests":{"source":"command","command":"c"},"candidate_policy":{},"gold_patch":` + diff + `}`,
			"repo base_commit instructions", "tests candidate_policy", "gold_patch"},
		"terminal_task": {`"input":{"instructions":"i"},"environment":{"image":"i","candidate":"machine"},"eval":{"checker":{"command":"c"},"run_tests":{"path":"r"},"test_files":{"path":"t"},` +
			`"needed_commands":["chroot"],"services":[{"command":"s"}],"expected_changes":["/etc/a"],"trusted_paths":["/etc/b"],"expected_state":"s"},"assets":[{"path":"f"}]`,
			"instructions assets[0]", "checker run_tests test_files needed_commands services expected_changes trusted_paths", "expected_state"},
		"tool_call": {`"input":{"x":1},"eval":{"initial_state":"s","expected_calls":"c","expected_final_state":"f"}`,
			"x", "initial_state", "expected_calls expected_final_state"},
		"browser_task":    {`"input":{"x":1},"eval":{"credentials":"c","success_check":"s"}`, "x", "credentials", "success_check"},
		"desktop_task":    {`"input":{"x":1},"eval":{"success_check":"s"}`, "x", "", "success_check"},
		"artifact_task":   {`"input":{"x":1},"eval":{"reference_artifact":"a","rubric":"r"}`, "x", "", "reference_artifact rubric"},
		"multimodal_qa":   {`"input":{"x":1},"eval":{"answer":"a","rubric":"r"}`, "x", "", "answer rubric"},
		"preference_pair": {`"input":{"x":1},"eval":{"preference":"p","rubric":"r"}`, "x", "", "preference rubric"},
	}
	lane := func(lane compiler.Lane, fields string) (named []string) {
		for name := range strings.FieldsSeq(fields) {
			named = append(named, string(lane)+" "+name)
		}
		return named
	}
	names := func(v []compiler.Resource) (names []string) {
		for _, r := range v {
			names = append(names, string(r.Lane)+" "+r.Name)
		}
		return names
	}
	for _, family := range family.All() {
		t.Run(family.Name, func(t *testing.T) {
			tt := tests[family.Name]
			var fields []string
			for _, field := range family.Eval.Fields {
				fields = append(fields, field.Name)
			}
			written := strings.Fields(tt.inputs + " " + tt.hidden)
			if slices.Contains([]string{"code_completion", "repo_patch", "terminal_task"}, family.Name) { // TestSplitViews
				written = append(written, "split")
			}
			if diff := cmp.Diff(slices.Sorted(slices.Values(fields)), slices.Sorted(slices.Values(written))); diff != "" {
				t.Fatalf("not every eval field is here with its lane: %s", diff)
			}
			_, tasks := packtest.Open(t, t.TempDir(), packtest.Manifest, `{"id":"a","family":"`+family.Name+`",`+tt.row+`}`)
			public := lane(compiler.Public, tt.public)
			must.Equal(t, slices.Concat(public, lane(compiler.EvaluationInputs, tt.inputs)), names(tasks[0].Resources(compiler.TestSandbox)))
			must.Equal(t, slices.Concat(public, lane(compiler.HiddenLane, tt.hidden)), names(tasks[0].Resources(compiler.Evaluator)))
		})
	}
}

func TestResourceSummary(t *testing.T) {
	row := `{"id":"a","input":{"instructions":"i"},"eval":{"checker":{"command":"c"},"test_files":{"path":"t"},"expected_state":"s"},"assets":[{"path":"f"}]}`
	_, tasks := packtest.Open(t, t.TempDir(), "id: p\nversion: 1\ndefaults: {family: terminal_task}\n", row)
	text := must.JSON(t, tasks[0].ResourceSummary())
	wantJSON := `[{"name":"instructions","visibility":"public","kind":"text","value":"i"},` +
		`{"name":"assets","visibility":"public","kind":"json","value":[{"path":"f"}]},` +
		`{"name":"checker","visibility":"evaluation_inputs","kind":"json","redacted":true},` +
		`{"name":"test_files","visibility":"evaluation_inputs","kind":"json","redacted":true},` +
		`{"name":"expected_state","visibility":"hidden","kind":"text","redacted":true}]`
	must.Equal(t, wantJSON, string(text))
}
