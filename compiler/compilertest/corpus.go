// Package compilertest keeps what fuzzing has found interesting, for the fuzz
// targets of compiler, compiler/patch and workspace.
//
// The fuzzer has a folder of its own for that, with a file for every input, in
// the build cache. Corpus files hold the same in one text file a target, so
// that thousands of inputs can be kept and read:
//
//	go test -fuzz '^FuzzRow$' -fuzztime 10m ./compiler
//	go test ./compiler/compilertest -keep "$(go env GOCACHE)/fuzz"
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

// Seed adds the inputs of a corpus file to a fuzz target: one a line, each a
// quoted Go string. A file that does not exist has none.
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
