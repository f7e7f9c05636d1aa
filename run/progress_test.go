package run_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run"
)

// TestProgressSchema: what runs report fits docs/schemas/progress.schema.json, which has all
// kinds of events and all fields. docs/design/progress.md has the kinds of events.
func TestProgressSchema(t *testing.T) {
	decode := func(text []byte) (v map[string]any) {
		t.Helper()
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		must.Do(t, decoder.Decode(&v))
		return v
	}
	const schemaFile = "../docs/schemas/progress.schema.json"
	valid, err := jsonschema.NewCompiler().Compile(schemaFile)
	must.Do(t, err)
	schema := decode(must.Read(t, schemaFile))
	page := string(must.Read(t, "../docs/design/progress.md"))
	properties := schema["properties"].(map[string]any)
	kinds := properties["event"].(map[string]any)["enum"].([]any)
	for _, kind := range regexp.MustCompile(`Kind += "(\w+)"`).FindAllStringSubmatch(string(must.Read(t, "event.go")), -1) {
		if !slices.Contains(kinds, any(kind[1])) || !strings.Contains(page, "`"+kind[1]+"`") {
			t.Errorf("the schema or docs/design/progress.md lacks the event %s", kind[1])
		}
	}
	for _, of := range []reflect.Type{reflect.TypeFor[run.Event](), reflect.TypeFor[run.Summary]()} {
		known := properties
		if of.Name() == "Summary" {
			known = known["summary"].(map[string]any)["properties"].(map[string]any)
		}
		for i := range of.NumField() {
			name, _, _ := strings.Cut(of.Field(i).Tag.Get("json"), ",")
			if _, ok := known[name]; !ok && name != "-" { // which is in no JSON
				t.Errorf("the schema lacks %s of %s", name, of.Name())
			}
		}
	}

	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	cfg, e := config(t,
		row("right", "do it right", ""), row("wrong", "do it wrong", ""), row("broken", "do it right", ""), row("hangs", "hang until its limit", ""),
		`{"id": "later", "family": "tool_call", "environment": {"image": "base"}}`,
		row("big", "do it right", `, "resources": {"memory": "4000g"}`), row("also big", "do it right", `, "resources": {"memory": "4000g"}`),
	)
	cfg.Progress = func(e run.Event) { _ = enc.Encode(e) }
	cfg.Retries, cfg.Jobs, e.broken[1] = 1, 3, errors.New("no space")
	ran(t, cfg)
	cfg.Resume, e.broken = true, map[int]error{}
	stop := make(chan struct{})
	close(stop)
	cfg.Stop, cfg.Retries = stop, 0
	if _, err := runs(t.Context(), cfg); err != nil && !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	if out.Len() < 4000 {
		t.Fatalf("only\n%s", &out)
	}
	for line := range bytes.Lines(out.Bytes()) {
		if err := valid.Validate(decode(line)); err != nil {
			t.Errorf("%v in %s", err, line)
		}
	}
	for _, wrong := range []string{`{"time": "", "event": "run_done", "run_id": "", "more": 1}`, `{"event": "run_done", "run_id": ""}`, `{"time": 1.0, "event": "x", "run_id": ""}`} {
		if valid.Validate(decode([]byte(wrong))) == nil {
			t.Errorf("the schema accepts %s", wrong)
		}
	}
}
