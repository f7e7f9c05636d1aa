package compiler_test

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/corpus"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/domain"
)

// seed adds to the corpus every document of this name in the test cases, and what
// fuzzing has found before.
func seed(f *testing.F, name string) {
	corpus.Seed[[]byte](f)
	archives := must.Glob(f, "testdata/cases/*.txtar")
	for _, path := range archives {
		archive, err := txtar.ParseFile(path)
		must.Do(f, err)
		for _, file := range archive.Files {
			if strings.HasSuffix(file.Name, "/"+name) {
				f.Add(file.Data)
			}
		}
	}
}

func put(t *testing.T, path string, text []byte) {
	t.Helper()
	must.Do(t, os.WriteFile(path, text, 0o600))
}

// checkError checks that an error holds problems with messages.
func checkError(t *testing.T, err error) {
	t.Helper()
	var problems compiler.Problems
	if !errors.As(err, &problems) || len(problems) == 0 {
		t.Fatalf("error %v has no problems", err)
	}
	for _, p := range problems {
		if p.File == "" || p.Message == "" || p.Line < 0 {
			t.Fatalf("problem %+v", p)
		}
	}
}

func FuzzManifest(f *testing.F) {
	seed(f, "manifest.yaml")
	dir := f.TempDir()
	manifest, tasks := filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl")
	f.Fuzz(func(t *testing.T, text []byte) {
		put(t, manifest, text)
		put(t, tasks, nil)
		pack, err := family.OpenPack(manifest, tasks)
		if err != nil {
			checkError(t, err)
			return
		}
		for _, root := range []string{pack.PublicRoot, pack.EvalRoot} {
			if !strings.HasPrefix(root, dir+"/") {
				t.Fatalf("root %q leads out of the pack", root)
			}
		}
		if paths.Overlap(pack.PublicRoot, pack.EvalRoot) {
			t.Fatalf("roots %q and %q overlap", pack.PublicRoot, pack.EvalRoot)
		}
		if pack.ID == "" || pack.ManifestDigest() == "" {
			t.Fatal("pack without id")
		}
	})
}

func FuzzRow(f *testing.F) {
	seed(f, "tasks.jsonl")
	dir := f.TempDir()
	manifest, tasks := filepath.Join(dir, "manifest.yaml"), filepath.Join(dir, "tasks.jsonl")
	must.Do(f, os.WriteFile(manifest, []byte("id: p\nversion: 1\ndefaults: {family: terminal_task, environment: {image: i}}\n"), 0o600))
	f.Fuzz(func(t *testing.T, text []byte) {
		put(t, tasks, text)
		pack, err := family.OpenPack(manifest, tasks)
		must.Do(t, err)
		ids := map[string]bool{}
		for task, err := range pack.Tasks() {
			if err != nil {
				checkError(t, err)
				continue
			}
			if ids[task.ID()] {
				t.Fatalf("id %q twice", task.ID())
			}
			ids[task.ID()] = true
			checkTask(t, task)
		}
		if _, err := validate.Files(t.Context(), []string{dir}, nil, func(compiler.Problem) {}); err != nil {
			t.Fatal(err)
		}
	})
}

// checkTask checks that everything a task returns is valid.
func checkTask(t *testing.T, task *compiler.Task) {
	t.Helper()
	if payload := task.AgentView().Payload(); !json.Valid(payload) {
		t.Fatalf("payload %s", payload)
	}
	for _, component := range []compiler.Component{compiler.TestSandbox, compiler.Evaluator} {
		for _, r := range task.Resources(component) {
			if !component.Sees(r.Lane) || !json.Valid(r.Value.Reveal()) {
				t.Fatalf("%s sees %s %q", component, r.Lane, r.Name)
			}
			checkRef(t, r)
		}
	}
	_, err := json.Marshal(task.ResourceSummary())
	must.Do(t, err)
	_, err = json.Marshal(task.Metadata())
	must.Do(t, err)
	if e := task.Environment(); !filepath.IsAbs(e.Workdir) || e.Timeout < 0 || e.Resources.Memory < 0 {
		t.Fatalf("environment %+v", e)
	}
	switch task.Family().Name {
	case "terminal_task":
		if checker := family.TerminalTaskOf(task).Checker; checker.Command.IsZero() == (checker.Path == "") {
			t.Fatalf("checker %q %v", checker.Path, checker.Command)
		}
	case "multiple_choice":
		family.MultipleChoiceOf(task)
	case "short_answer":
		family.ShortAnswerOf(task)
	case "free_response":
		family.FreeResponseOf(task)
	case "code_completion":
		family.CodeCompletionOf(task)
	case "repo_patch":
		family.RepoPatchOf(task)
	}
}

func checkRef(t *testing.T, r compiler.Resource) {
	t.Helper()
	if r.File == nil {
		return
	}
	ref := *r.File
	if !filepath.IsLocal(ref.Path) || !filepath.IsLocal(ref.Mount) || filepath.Clean(ref.Mount) != ref.Mount {
		t.Fatalf("file %+v leads outside", ref)
	}
	root := map[compiler.Lane]string{compiler.EvaluationInputs: paths.EvaluationInputsRoot, compiler.HiddenLane: paths.EvaluatorRoot}[ref.Lane]
	if root != "" && ref.Mount != root && !strings.HasPrefix(ref.Mount, root+"/") {
		t.Fatalf("file %+v lies in another lane", ref)
	}
	if root == "" {
		must.Do(t, compiler.CheckMount(compiler.Public, ref.Mount))
	}
}

func FuzzTester(f *testing.F) {
	seed(f, "tester.yaml")
	path := filepath.Join(f.TempDir(), "tester.yaml")
	f.Fuzz(func(t *testing.T, text []byte) {
		put(t, path, text)
		tester, warnings, err := testerfile.Load(path, harness.AgentTypes())
		if err != nil {
			checkError(t, err)
			return
		}
		for _, w := range warnings {
			if !w.Warning {
				t.Fatalf("an error among the warnings: %v", w)
			}
		}
		c := tester.Harness.Config
		must.Do(t, compiler.CheckMount(compiler.Public, c.TaskFile))
		if (tester.Harness.Type == testerfile.HarnessCommand) == c.Command.IsZero() {
			t.Fatalf("type %q, command %v", tester.Harness.Type, c.Command)
		}
		for _, allowed := range c.AllowedDomains {
			if again, err := domain.Parse(allowed.String()); err != nil || again != allowed {
				t.Fatalf("domain %q: %q, %v", allowed, again, err)
			}
		}
		if !filepath.IsAbs(tester.Run.OutputDir) || !filepath.IsAbs(tester.Benchmark.Manifest) || c.Timeout < 0 {
			t.Fatalf("%+v", tester)
		}
	})
}
