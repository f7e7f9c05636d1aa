package run_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/run"
)

// TestProgressSchema: what runs report fits docs/schemas/progress.schema.json, which has all
// kinds of events and all fields. docs/design/progress.md has the kinds of events.
func TestProgressSchema(t *testing.T) {
	read := func(name string) []byte {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	var schema map[string]any
	if err := json.Unmarshal(read("../docs/schemas/progress.schema.json"), &schema); err != nil {
		t.Fatal(err)
	}
	page := string(read("../docs/design/progress.md"))
	properties := schema["properties"].(map[string]any)
	kinds := properties["event"].(map[string]any)["enum"].([]any)
	for _, kind := range regexp.MustCompile(`Kind += "(\w+)"`).FindAllStringSubmatch(string(read("event.go")), -1) {
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
		row("right", "do it right", ""), row("wrong", "do it wrong", ""), row("broken", "do it right", ""), row("hangs", "hang", ""),
		`{"id": "later", "family": "tool_call", "environment": {"image": "base"}}`,
		row("big", "do it right", `, "resources": {"memory": "4000g"}`), row("also big", "do it right", `, "resources": {"memory": "4000g"}`),
	)
	cfg.Progress = func(e run.Event) { _ = enc.Encode(e) }
	cfg.Retries, cfg.Jobs, e.broken[1] = 1, 3, errors.New("no space")
	if _, err := runs(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
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
		var event any
		if err := json.Unmarshal(line, &event); err != nil {
			t.Fatal(err)
		}
		if problem := misfit(schema, event, "$"); problem != "" {
			t.Errorf("%s in %s", problem, line)
		}
	}
	if misfit(schema, map[string]any{"time": "", "event": "run_done", "run_id": "", "more": 1}, "$") == "" ||
		misfit(schema, map[string]any{"event": "run_done", "run_id": ""}, "$") == "" || misfit(schema, map[string]any{"time": 1.0, "event": "x", "run_id": ""}, "$") == "" {
		t.Error("the schema accepts everything")
	}
}

// misfit returns what of v a schema does not allow, or "". It knows the keywords that
// progress.schema.json has.
func misfit(schema map[string]any, v any, path string) string {
	for keyword, rule := range schema {
		switch keyword {
		case "$schema", "title", "description", "properties", "items":
		case "type":
			got := map[reflect.Kind]string{reflect.String: "string", reflect.Bool: "boolean", reflect.Slice: "array", reflect.Map: "object", reflect.Float64: "number"}[reflect.ValueOf(v).Kind()]
			if n, ok := v.(float64); ok && rule == "integer" && n == float64(int64(n)) {
				got = "integer"
			}
			if got != rule {
				return fmt.Sprintf("%s: %s, not %s", path, got, rule)
			}
		case "enum":
			if !slices.Contains(rule.([]any), v) {
				return fmt.Sprintf("%s: %v is none of %v", path, v, rule)
			}
		case "required":
			for _, name := range rule.([]any) {
				if _, ok := v.(map[string]any)[name.(string)]; !ok {
					return fmt.Sprintf("%s: no %s", path, name)
				}
			}
		case "additionalProperties":
			for name := range v.(map[string]any) {
				if _, ok := schema["properties"].(map[string]any)[name]; !ok {
					return fmt.Sprintf("%s: %s is unknown", path, name)
				}
			}
		default:
			return "unknown keyword " + keyword
		}
	}
	below, _ := schema["properties"].(map[string]any)
	object, _ := v.(map[string]any)
	for name, value := range object {
		if rule, ok := below[name].(map[string]any); ok {
			if problem := misfit(rule, value, path+"."+name); problem != "" {
				return problem
			}
		}
	}
	items, _ := schema["items"].(map[string]any)
	list, _ := v.([]any)
	for _, item := range list {
		if problem := misfit(items, item, path+"[]"); problem != "" {
			return problem
		}
	}
	return ""
}
