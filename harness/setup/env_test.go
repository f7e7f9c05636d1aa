package setup_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness/setup"
	"github.com/securebench/sbench/internal/test/must"
)

// TestEnv: the environment wins over the env file, even with an empty value, which is reported like a missing one.
func TestEnv(t *testing.T) {
	tester := &testerfile.File{Harness: testerfile.HarnessSection{Env: []string{"SBENCH_BOTH", "SBENCH_FILE", "SBENCH_SET", "SBENCH_EMPTY", "SBENCH_NONE"}}}
	file := map[string]string{"SBENCH_BOTH": "file", "SBENCH_FILE": "f", "SBENCH_EMPTY": "file", "SBENCH_OTHER": "o"}
	t.Setenv("SBENCH_BOTH", "environment")
	t.Setenv("SBENCH_SET", "a=b")
	t.Setenv("SBENCH_EMPTY", "")
	_, err := setup.Env(t.Context(), tester, file, t.Output())
	var problems compiler.Problems
	if !errors.As(err, &problems) {
		t.Fatalf("error %v", err)
	}
	var got []string
	for _, p := range problems {
		got = append(got, p.Path+" "+p.Message)
	}
	want := []string{`$.harness.env[3] environment variable "SBENCH_EMPTY" has no value`, `$.harness.env[4] environment variable "SBENCH_NONE" has no value`}
	if !slices.Equal(got, want) {
		t.Errorf("problems %q", got)
	}
	t.Setenv("SBENCH_EMPTY", "e")
	t.Setenv("SBENCH_NONE", "n")
	values, err := setup.Env(t.Context(), tester, file, t.Output())
	must.Do(t, err)
	if !maps.Equal(values, map[string]string{"SBENCH_BOTH": "environment", "SBENCH_FILE": "f", "SBENCH_SET": "a=b", "SBENCH_EMPTY": "e", "SBENCH_NONE": "n"}) {
		t.Errorf("values %q", values)
	}
}

// TestSecrets: values of harness.env come from the environment, else from the env file, else from harness.secrets.
func TestSecrets(t *testing.T) {
	dir := t.TempDir()
	tester, vars := filepath.Join(dir, "tester.yaml"), filepath.Join(dir, "env")
	must.Do(t, os.WriteFile(vars, []byte("SBENCH_B=from the env file\n"), 0o600))
	must.Do(t, os.WriteFile(filepath.Join(dir, "key.txt"), []byte("from a file\n"), 0o600))
	t.Setenv("SBENCH_A", "from the environment")
	load := func(secrets string) (map[string]string, error) {
		must.Do(t, os.WriteFile(tester, []byte(`schema_version: "0.2"
run: {id: r, output_dir: out}
benchmark: {manifest: manifest.yaml, tasks: tasks.jsonl}
harness: {type: command, env: [SBENCH_A, SBENCH_B, SBENCH_C, SBENCH_D], secrets: {`+secrets+`}, config: {command: x}}
`), 0o600))
		loaded, _, err := testerfile.Load(tester, nil)
		must.Do(t, err)
		file, err := testerfile.LoadEnv(vars)
		must.Do(t, err)
		return setup.Env(t.Context(), loaded, file, t.Output())
	}
	got, err := load(`SBENCH_A: {command: "exit 1"}, SBENCH_B: {file: none}, SBENCH_C: {command: [printf, 'from a command\n']}, SBENCH_D: {file: key.txt}`)
	must.Do(t, err)
	want := map[string]string{"SBENCH_A": "from the environment", "SBENCH_B": "from the env file", "SBENCH_C": "from a command", "SBENCH_D": "from a file"}
	if !maps.Equal(got, want) {
		t.Errorf("%v", got)
	}
	for secrets, message := range map[string]string{
		`SBENCH_C: {command: "echo sk-secret; exit 3"}`:          "$.harness.secrets.SBENCH_C: sh: exit status 3",
		`SBENCH_C: {file: none}`:                                 "no such file",
		`SBENCH_C: {command: "true"}, SBENCH_D: {file: key.txt}`: `"SBENCH_C" has no value`,
	} {
		if _, err := load(secrets); err == nil || !strings.Contains(err.Error(), message) || strings.Contains(err.Error(), "sk-secret") {
			t.Errorf("%s: %v", secrets, err)
		}
	}
}
