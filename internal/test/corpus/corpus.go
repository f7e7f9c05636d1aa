// Package corpus reads the inputs of fuzz targets that fuzzing has found interesting.
//
// The fuzzer itself keeps such inputs in the build cache, one file each. A corpus file holds the inputs of one fuzz
// target as text, so that thousands can be committed and read.
package corpus

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// Seed adds the inputs of testdata/corpus/NAME.txt to the fuzz target of that name: one per line, each a quoted Go string.
func Seed[T string | []byte](f *testing.F) {
	f.Helper()
	path := "testdata/corpus/" + f.Name() + ".txt"
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
