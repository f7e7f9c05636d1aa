// Package compilertest keeps inputs that fuzzing has found interesting, for the fuzz
// targets of compiler, its subpackages and workspace.
//
// The fuzzer itself keeps such inputs in the build cache, one file each. A corpus
// file holds those of one target as text, so that thousands can be committed and
// read.
package compilertest

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Seed adds the inputs of a corpus file to a fuzz target: one per line, each a quoted
// Go string.
func Seed[T string | []byte](f *testing.F, path string) {
	f.Helper()
	text, err := os.ReadFile(path)
	if err != nil || len(text) == 0 {
		f.Fatalf("%s has no inputs: %v", path, err)
	}
	for line := range strings.Lines(string(text)) {
		input, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil {
			f.Fatalf("%s: line %q: %v", path, line, err)
		}
		f.Add(T(input))
	}
}
