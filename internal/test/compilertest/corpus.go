// Package compilertest keeps inputs that fuzzing has found interesting, for the fuzz
// targets of compiler, its subpackages and workspace.
//
// The fuzzer itself keeps such inputs in the build cache, one file each. A corpus
// file holds those of one target as text, so that thousands can be committed and
// read. To collect more:
//
//	go test -fuzz '^FuzzRow$' -fuzztime 10m ./compiler
//	go test ./internal/test/compilertest -keep "$(go env GOCACHE)/fuzz"
package compilertest

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"testing"
)

// Seed adds the inputs of a corpus file to a fuzz target: one per line, each a quoted
// Go string. A file that does not exist has none.
func Seed[T string | []byte](f *testing.F, path string) {
	f.Helper()
	inputs, err := Read(path)
	if err != nil {
		f.Fatal(err)
	}
	for _, input := range inputs {
		f.Add(T(input))
	}
}

// Read returns the inputs in the corpus file path, none if it does not exist.
func Read(path string) ([]string, error) {
	text, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var inputs []string
	for line := range strings.Lines(string(text)) {
		input, err := strconv.Unquote(strings.TrimSpace(line))
		if err != nil {
			return nil, fmt.Errorf("%s: line %q: %w", path, line, err)
		}
		inputs = append(inputs, input)
	}
	return inputs, nil
}
