package sbench_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

const module = "github.com/securebench/sbench/"

// layout says which other directories of this module each directory may import. Packages below a directory count as the directory.
func layout() map[string][]string {
	return map[string][]string{
		"cmd/sbench":                    {"run", "run/site", "harness", "verifiers", "workspace", "compiler", "compiler/validate", "compiler/family", "compiler/testerfile", "runtime", "runtime/host", "runtime/images", "proxy/domain", "report", "pack", "pack/harbor", "docs", "examples"},
		"cmd/containerd-shim-sbench-v1": {"runtime"},
		"docs":                          {},
		"examples":                      {},
		"pack":                          {"workspace/foreign", "compiler", "compiler/validate", "compiler/family", "compiler/document", "compiler/patch", "compiler/paths", "compiler/testerfile"},
		"pack/harbor":                   {"workspace/foreign", "pack", "compiler", "compiler/family", "compiler/document", "compiler/paths"},
		"run":                           {"workspace/foreign", "harness", "verifiers", "verifiers/families", "verifiers/pool", "verifiers/contrast", "verifiers/judge", "candidate", "workspace", "compiler", "compiler/validate", "compiler/family", "compiler/securebench", "compiler/environment", "compiler/testerfile", "runtime", "proxy"},
		"run/site":                      {"run", "harness", "pack", "pack/harbor", "compiler", "compiler/environment", "compiler/family", "proxy", "proxy/domain", "runtime", "runtime/host", "runtime/sandbox", "runtime/images"},
		"report":                        {"workspace/foreign", "run", "harness", "verifiers", "candidate", "compiler", "proxy"},
		"harness":                       {"workspace/foreign", "candidate", "workspace", "compiler", "compiler/family", "compiler/environment", "compiler/document", "compiler/paths", "compiler/schema", "compiler/testerfile", "runtime", "proxy", "proxy/domain"},
		"verifiers":                     {"verifiers/pool", "verifiers/contrast", "verifiers/judge", "candidate", "workspace", "compiler", "compiler/environment", "runtime"},
		"verifiers/families":            {"verifiers", "verifiers/code", "verifiers/repo", "verifiers/terminal", "verifiers/split", "verifiers/text", "verifiers/judge", "candidate", "compiler", "compiler/family", "runtime"},
		"verifiers/code":                {"verifiers", "verifiers/pool", "verifiers/contrast", "candidate", "compiler", "compiler/family", "compiler/environment", "runtime"},
		"verifiers/repo":                {"workspace/foreign", "verifiers", "verifiers/suite", "verifiers/contrast", "candidate", "workspace", "compiler", "compiler/family", "compiler/patch", "runtime"},
		"verifiers/terminal":            {"workspace/foreign", "verifiers", "verifiers/suite", "verifiers/machine", "verifiers/contrast", "candidate", "workspace", "compiler", "compiler/family", "compiler/environment", "compiler/paths", "runtime"},
		"verifiers/split":               {"workspace/foreign", "verifiers", "verifiers/machine", "verifiers/repo", "verifiers/terminal", "candidate", "workspace", "compiler", "compiler/family", "compiler/securebench", "compiler/paths", "compiler/document", "runtime"},
		"verifiers/machine":             {"workspace/foreign", "verifiers", "candidate", "workspace", "runtime", "compiler/family", "compiler/environment", "compiler/paths"},
		"verifiers/suite":               {"verifiers", "verifiers/contrast", "runtime"},
		"verifiers/pool":                {"verifiers/contrast", "runtime"},
		"verifiers/contrast":            {"workspace", "runtime"},
		"verifiers/judge":               {},
		"verifiers/text":                {"compiler/family"},
		"candidate":                     {"workspace/foreign", "workspace", "compiler", "runtime"},
		"workspace":                     {"workspace/foreign", "compiler", "compiler/hidden", "compiler/paths"},
		"workspace/foreign":             {},
		"compiler/validate":             {"compiler", "compiler/paths", "compiler/securebench", "compiler/testerfile", "compiler/document", "compiler/family"},
		"compiler/family":               {"compiler", "compiler/document", "compiler/hidden", "compiler/schema", "compiler/patch"},
		"compiler":                      {"compiler/schema", "compiler/paths", "compiler/document", "workspace/foreign", "compiler/securebench", "compiler/environment", "compiler/hidden"},
		"compiler/securebench":          {"compiler/document", "compiler/schema", "compiler/environment", "compiler/hidden", "compiler/patch"},
		"compiler/environment":          {"compiler/document", "compiler/paths", "compiler/schema"},
		"compiler/hidden":               {"compiler/document", "compiler/schema"},
		"compiler/testerfile":           {"compiler/schema", "compiler/paths", "compiler/document", "proxy/domain"},
		"compiler/schema":               {"compiler/paths", "compiler/document", "proxy/domain"},
		"compiler/patch":                {"compiler/paths"},
		"compiler/paths":                {},
		"compiler/document":             {"workspace/foreign"},
		"runtime":                       {"workspace/foreign", "oci"},
		"runtime/host":                  {"runtime/sandbox", "runtime/task", "runtime/images", "runtime/owner", "runtime"},
		"runtime/sandbox":               {"runtime/task", "runtime/owner", "runtime", "oci"},
		"runtime/task":                  {"runtime"},
		"runtime/images":                {"runtime/owner", "runtime"},
		"runtime/owner":                 {"runtime"},
		"oci":                           {},
		"proxy":                         {"proxy/domain"},
		"proxy/domain":                  {},
		"internal/test":                 {"report", "verifiers", "candidate", "compiler", "compiler/family", "runtime", "runtime/host", "runtime/sandbox", "runtime/images"}, // which only tests may import
	}
}

// soleUsers lists modules, and the only directories that may import them.
func soleUsers() map[string][]string {
	return map[string][]string{
		"github.com/alecthomas/kong":              {"cmd/sbench"},
		"github.com/jotaen/kong-completion":       {"cmd/sbench"},
		"github.com/containerd/":                  {"runtime", "runtime/sandbox", "runtime/task", "runtime/images", "runtime/owner", "cmd/sbench", "internal/test"}, // the command quiets the client's log
		"github.com/opencontainers/runtime-spec":  {"oci", "runtime", "runtime/sandbox", "runtime/task", "run/site"},
		"k8s.io/":                                 {"run"},
		"sigs.k8s.io/yaml":                        {"pack", "run"},
		"go.yaml.in/yaml":                         {"compiler/document"},
		"github.com/elazarl/goproxy":              {"proxy"},
		"github.com/go-json-experiment/json":      {"proxy"},
		"github.com/pelletier/go-toml":            {"pack/harbor"},
		"github.com/google/go-containerregistry/": {"runtime/images", "internal/test"},
		"github.com/google/nftables":              {"runtime"},
		"github.com/mdlayher/netlink":             {"proxy", "runtime"},
		"github.com/moby/buildkit/":               {"harness"},
		"github.com/moby/docker-image-spec/":      {"harness", "runtime", "runtime/images"},
		"github.com/moby/sys/":                    {"runtime", "runtime/sandbox"},
		"github.com/vbauerster/mpb":               {"report"},
	}
}

// sources calls f for every source file of the module except tests.
func sources(t *testing.T, f func(path string)) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && path != "." || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			files++
			f(filepath.ToSlash(path))
		}
		return nil
	})
	if err != nil || files < 20 {
		t.Fatalf("found %d files: %v", files, err)
	}
}

// TestImports: every directory imports what the layout says, no more and no less.
func TestImports(t *testing.T) {
	imported := map[string][]string{}
	sources(t, func(path string) { checkFile(t, path, imported) })
	for directory, all := range layout() {
		for _, to := range all {
			if !slices.Contains(imported[directory], to) {
				t.Errorf("%s does not import %s", directory, to)
			}
		}
	}
}

// TestSuites: each test that scripts/suites gives to a target exists, and no other package has
// one of that name, because `make test` leaves tests out by their names.
func TestSuites(t *testing.T) {
	text := must.Read(t, "scripts/suites")
	packages := testFunctions(t)
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) < 3 {
			t.Fatalf("%q: want a target, a package and tests", line)
		}
		for _, name := range fields[2:] {
			name = strings.TrimLeft(name, "+-")
			if got := packages[name]; name != "*" && !slices.Equal(got, []string{fields[1]}) {
				t.Errorf("%s is a test of %v, not of %s alone", name, got, fields[1])
			}
		}
	}
}

// testFunctions returns the directories that have a test of each name.
func testFunctions(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, match := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(text, -1) {
			found[string(match[1])] = append(found[string(match[1])], filepath.ToSlash(filepath.Dir(path)))
		}
		return err
	})
	if err != nil || len(found) < 100 {
		t.Fatalf("found %d tests: %v", len(found), err)
	}
	return found
}

// checkFile checks the imports of a file, and adds the directories that it imports to imported.
func checkFile(t *testing.T, path string, imported map[string][]string) {
	t.Helper()
	directory := directoryOf(filepath.ToSlash(filepath.Dir(path)))
	if directory == "" {
		t.Errorf("%s: its directory is not in the layout", path)
		return
	}
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	must.Do(t, err)
	for _, spec := range f.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		must.Do(t, err)
		if ours, ok := strings.CutPrefix(name, module); ok {
			to := directoryOf(ours)
			if imported[directory] = append(imported[directory], to); to != directory && !slices.Contains(layout()[directory], to) {
				t.Errorf("%s: %s may not import %s (a package of its own needs a line in layout, in layout_test.go)", path, directory, ours)
			}
		}
		for prefix, users := range soleUsers() {
			if strings.HasPrefix(name, prefix) && !slices.Contains(users, directory) {
				t.Errorf("%s: %s may not import %s", path, directory, name)
			}
		}
	}
}

func directoryOf(pkg string) string {
	longest := ""
	for directory := range layout() {
		if (pkg == directory || strings.HasPrefix(pkg, directory+"/")) && len(directory) > len(longest) {
			longest = directory
		}
	}
	return longest
}

// TestDirectories: the top level holds what the layout names, and nothing else.
func TestDirectories(t *testing.T) {
	expected := []string{"benchmarks", "bin", "cmd", "dist", "examples", "scripts", "runs", "internal"}
	for directory := range layout() {
		expected = append(expected, directory)
	}
	entries, err := os.ReadDir(".")
	must.Do(t, err)
	for _, e := range entries {
		if e.IsDir() && !strings.HasPrefix(e.Name(), ".") && !slices.Contains(expected, e.Name()) {
			t.Errorf("%s: not in the layout", e.Name())
		}
	}
}

// TestWalkthrough: the walkthrough has at most ten stops, and each name that it links is
// declared in the linked file.
func TestWalkthrough(t *testing.T) {
	const page = "docs/design/walkthrough.md"
	text := must.Read(t, page)
	links := regexp.MustCompile("\\[`([\\w.]+)`\\]\\(([\\w/.]+)\\)").FindAllStringSubmatch(string(text), -1)
	if stops := len(regexp.MustCompile(`(?m)^\d+\. `).FindAllString(string(text), -1)); stops > 10 || len(links) < stops {
		t.Errorf("%d stops and %d links", stops, len(links))
	}
	for _, link := range links {
		source, err := os.ReadFile(filepath.Join(filepath.Dir(page), link[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		receiver, name, method := strings.Cut(link[1], ".")
		pattern := `(?m)^func ` + receiver + `\(`
		if method {
			pattern = `(?m)^func \(\w+ \*?` + receiver + `\) ` + name + `\(`
		}
		if !regexp.MustCompile(pattern).Match(source) {
			t.Errorf("%s has no %s", link[2], link[1])
		}
	}
}
