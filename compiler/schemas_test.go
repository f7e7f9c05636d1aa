package compiler_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
)

const schemaDir = "../docs/schemas"

// TestSchemaFiles compares docs/schemas with the definitions. With -update it writes
// the files.
func TestSchemaFiles(t *testing.T) {
	files, err := compiler.SchemaFiles(harness.AgentTypes(), family.All())
	must.Do(t, err)
	known := map[string]bool{}
	for _, f := range files {
		known[f.Name] = true
		path := filepath.Join(schemaDir, f.Name)
		if *update {
			must.Do(t, os.WriteFile(path, f.Content, 0o644))
			continue
		}
		got := must.Read(t, path)
		if diff := cmp.Diff(string(got), string(f.Content)); diff != "" {
			t.Errorf("%s differs from the code; run make golden\n%s", path, diff)
		}
	}
	present := must.Glob(t, filepath.Join(schemaDir, "*"))
	known["progress.schema.json"] = true // of events, which have no definition here
	for _, path := range present {
		if !known[filepath.Base(path)] {
			t.Errorf("%s is no schema of the code's", path)
		}
	}
}

// TestSchemasAgree checks every case against the JSON Schemas: they accept what sbench accepts, and refuse
// what it refuses. Exceptions are the cases in beyond-schema.txt, with errors that JSON Schema cannot
// express.
func TestSchemasAgree(t *testing.T) {
	schemas := jsonschema.NewCompiler()
	archives := must.Glob(t, "testdata/cases/*.txtar")
	var missed []string
	for _, path := range archives {
		archive, cases := readCases(t, path)
		for _, c := range cases {
			want := string(archive.Files[c.want].Data)
			for file, problems := range problemsByFile(want) {
				name := schemaFor(t, file, c.files)
				value, ok := parseAny(file, c.files[file])
				if name == "" || !ok {
					continue
				}
				schema, err := schemas.Compile(filepath.Join(schemaDir, name+".schema.json"))
				must.Do(t, err)
				err = schema.Validate(value)
				switch {
				case problems == 0 && err != nil:
					t.Errorf("%s/%s: %s refuses what sbench accepts: %v", filepath.Base(path), c.name, name, err)
				case problems > 0 && err == nil:
					missed = append(missed, strings.TrimSuffix(filepath.Base(path), ".txtar")+"/"+c.name)
				}
			}
		}
	}
	got := strings.Join(missed, "\n") + "\n"
	const golden = "testdata/beyond-schema.txt"
	if *update {
		must.Do(t, os.WriteFile(golden, []byte(got), 0o644))
	}
	want := must.Read(t, golden)
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("other cases than those in %s are beyond the schemas\n%s", golden, diff)
	}
}

// problemsByFile counts the errors of each document of a case.
func problemsByFile(want string) map[string]int {
	count := map[string]int{"manifest.yaml": 0, "tester.yaml": 0, "tasks.jsonl": 0}
	for line := range strings.Lines(want) {
		file, rest, _ := strings.Cut(line, ":")
		if _, ok := count[file]; ok && !strings.Contains(rest, "warning: ") {
			count[file]++
		}
	}
	return count
}

// schemaFor returns the name of the schema for a case's document; none for a file of
// several rows.
func schemaFor(t *testing.T, file string, files map[string]string) string {
	t.Helper()
	text, ok := files[file]
	switch {
	case !ok:
		return ""
	case file == "manifest.yaml":
		return "manifest"
	case file == "tester.yaml":
		return "tester"
	case strings.Count(strings.TrimSpace(text), "\n") > 0:
		return ""
	}
	family := regexp.MustCompile(`"family": "(\w+)"`).FindStringSubmatch(text)
	if family == nil {
		family = regexp.MustCompile(`family: (\w+)`).FindStringSubmatch(files["manifest.yaml"])
	}
	if family == nil {
		return "row"
	}
	if _, err := os.Stat(filepath.Join(schemaDir, "row."+family[1]+".schema.json")); err != nil {
		return "row"
	}
	return "row." + family[1]
}

// parseAny reads a document that is valid JSON or YAML.
func parseAny(file, text string) (any, bool) {
	var d document.Document
	var problems document.Problems
	if strings.HasSuffix(file, ".jsonl") {
		problems = d.ParseJSON([]byte(strings.TrimSpace(text)), 1)
	} else {
		problems = d.ParseYAML([]byte(text))
	}
	return d.Root().Any(), len(problems) == 0
}
