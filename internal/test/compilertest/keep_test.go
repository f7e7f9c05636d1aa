package compilertest_test

import (
	"cmp"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/compilertest"
)

var cache = flag.String("keep", "", "the fuzzer's directory, whose inputs are added to the corpus files")

// maxInput bounds the inputs that are kept, in bytes.
const maxInput = 4 << 10

// targets returns the corpus files of the fuzz targets.
func targets() map[string]string {
	return map[string]string{
		"compiler/FuzzManifest":      "../../../compiler/testdata/corpus/FuzzManifest.txt",
		"compiler/FuzzRow":           "../../../compiler/testdata/corpus/FuzzRow.txt",
		"compiler/FuzzTester":        "../../../compiler/testdata/corpus/FuzzTester.txt",
		"compiler/FuzzParseMount":    "../../../compiler/testdata/corpus/FuzzParseMount.txt",
		"compiler/document/FuzzJSON": "../../../compiler/document/testdata/corpus/FuzzJSON.txt",
		"compiler/document/FuzzYAML": "../../../compiler/document/testdata/corpus/FuzzYAML.txt",
		"compiler/patch/FuzzParse":   "../../../compiler/patch/testdata/corpus/FuzzParse.txt",
		"workspace/FuzzPlanWrite":    "../../../workspace/testdata/corpus/FuzzPlanWrite.txt",
	}
}

// TestCorpora reads every corpus file. With -keep it also adds what the fuzzer has
// found.
func TestCorpora(t *testing.T) {
	for target, path := range targets() {
		inputs, err := compilertest.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(inputs) == 0 {
			t.Errorf("%s: no inputs for %s", path, target)
		}
		if *cache == "" {
			continue
		}
		all := map[string]bool{}
		for _, input := range inputs {
			all[input] = true
		}
		files, err := filepath.Glob(filepath.Join(*cache, "github.com/securebench/sbench", target, "*"))
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			if input := readInput(t, file); len(input) <= maxInput {
				all[input] = true
			}
		}
		writeCorpus(t, path, all)
	}
}

// readInput reads one of the fuzzer's files: a line with the version of the format,
// and one with the Go expression string("…") or []byte("…").
func readInput(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	_, expression, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	_, quoted, _ := strings.Cut(expression, "(")
	input, err := strconv.Unquote(strings.TrimSuffix(quoted, ")"))
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return input
}

func writeCorpus(t *testing.T, path string, inputs map[string]bool) {
	t.Helper()
	sorted := slices.SortedFunc(maps.Keys(inputs), func(a, b string) int {
		return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
	})
	var b strings.Builder
	for _, input := range sorted {
		b.WriteString(strconv.QuoteToASCII(input) + "\n")
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d inputs", path, len(sorted))
}
