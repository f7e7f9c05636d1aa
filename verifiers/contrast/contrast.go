// Package contrast detects candidates that pass tests without solving the task: when what the tests expect
// changes, an honest candidate fails. [List] finds changes to tests written in Python, [Calibrate] keeps those
// that make the reference solution fail, and [Calibration.Judge] tries some of them on a candidate.
package contrast

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/runtime"
)

// program finds changes: it reads a request as JSON from standard input, and writes the answer as JSON.
//
//go:embed mutate.py
var program string

// Mutants is the number of changed tests with which a candidate is tried.
const Mutants = 6

// Errors that are the fault of the pack or its image.
var (
	// ErrTests means that the image's Python interpreter cannot compile a test file.
	ErrTests = errors.New("the tests do not compile")
	// ErrPython means that the image has no python3 that can run this package's program.
	ErrPython = errors.New("the image's python3 cannot be used")
	// ErrLimit means that this package's program met a limit.
	ErrLimit = errors.New("listing the tests' assertions takes too much")
	// ErrReference means that the reference solution does not pass the tests.
	ErrReference = errors.New("the reference solution does not pass the tests")
)

// Kind says what is changed.
type Kind string

// The kinds. Without a reference solution, only a Value is known to make a right candidate fail.
const (
	Value Kind = "value" // the expected value of an equality
	Swap  Kind = "swap"  // a question, replaced by one with the opposite answer
	// An Opposite turns an assertion into its opposite, or expects no exception where the tests expect one.
	Opposite Kind = "opposite"
)

// A File is a test file.
type File struct {
	Path string `json:"path"` // any name; edits refer to it
	Text string `json:"text"`
}

// An Edit changes one assertion and keeps its number of lines. An honest candidate is
// expected to fail there and pass all earlier assertions.
type Edit struct {
	Path  string `json:"path"`
	Start int    `json:"start"` // New replaces the bytes from Start up to End
	End   int    `json:"end"`
	New   string `json:"new"`
	Kind  Kind   `json:"kind"`
	// Place numbers the assertion in its file: edits of one place are alternatives.
	Place int `json:"place"`
	// Line and Last are the assertion's first and last line, from 1. Start may be
	// elsewhere, such as in a table of cases.
	Line int `json:"line"`
	Last int `json:"last"`
	// Test names the function, "TestList::test_empty"; "" is the file's top level.
	Test string `json:"test"`
	// Row says that the edit changes a row of a table in which each row is a test of its own.
	Row bool `json:"row,omitempty"`
	// Shared says that any test of the file may use what is changed, and so fail, too.
	Shared bool `json:"shared,omitempty"`
}

// Options of [List]. The zero Options are for tests that run in milliseconds.
type Options struct {
	Seed  string   // edits are the same for the same seed, and differ between seeds
	Each  bool     // look for assertions in each test function and its helpers, and only there
	Names []string // that belong to the candidate even if they are built-in
}

// Overlaps reports whether both edits change the same text, so that they cannot be applied together.
func (e Edit) Overlaps(other Edit) bool {
	return e.Path == other.Path && e.Start < other.End && other.Start < e.End
}

// Before reports whether e's test runs before other's test. In one file it is above it, and not after it
// by name, since unittest sorts methods; for two files, their names are compared.
func (e Edit) Before(other Edit) bool {
	if e.Path != other.Path {
		return e.Path < other.Path
	}
	return e.Line < other.Line && (e.Test < other.Test || !strings.Contains(e.Test+other.Test, "::"))
}

// SameTest reports whether both edits change the same test function.
func (e Edit) SameTest(other Edit) bool { return e.Path == other.Path && e.Test == other.Test }

// Apply returns the text of file, changed by the edits that have its path. It fails for edits that
// overlap or lie outside the text.
func Apply(file File, edits ...Edit) (string, error) {
	own := slices.DeleteFunc(slices.Clone(edits), func(e Edit) bool { return e.Path != file.Path })
	slices.SortFunc(own, func(a, b Edit) int { return b.Start - a.Start })
	text, end := file.Text, len(file.Text)
	for _, e := range own {
		if e.Start < 0 || e.Start > e.End || e.End > end {
			return "", fmt.Errorf("edit of line %d of %q does not fit", e.Line, file.Path)
		}
		text, end = text[:e.Start]+e.New+text[e.End:], e.Start
	}
	return text, nil
}

// A Python runs this package's program in a sandbox that no candidate has touched. It writes
// request to the program's standard input and returns its standard output.
type Python func(ctx context.Context, request []byte) (answer []byte, err error)

// Sandboxes is what [InSandbox] needs from the runtime.
type Sandboxes interface {
	// Create makes a sandbox, which the caller closes.
	Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error)
}

const listWall = 2 * time.Minute

// InSandbox returns a [Python] that runs this package's program in a new sandbox each time. cfg needs
// only the image and the limits; it must not mount anything that a candidate wrote.
func InSandbox(e Sandboxes, cfg runtime.Config) Python {
	return func(ctx context.Context, request []byte) ([]byte, error) {
		sandbox, err := e.Create(ctx, cfg)
		if err != nil {
			return nil, err
		}
		var answer bytes.Buffer
		start := fmt.Sprintf("import sys; exec(compile(sys.stdin.buffer.read(%d), 'mutate', 'exec'))", len(program))
		exit, err := sandbox.Exec(ctx, runtime.Process{
			Args: []string{"python3", "-I", "-S", "-B", "-c", start}, Dir: "/",
			Stdin: bytes.NewReader(append([]byte(program), request...)), Stdout: &answer, Wall: listWall,
		})
		err = errors.Join(err, sandbox.Close(ctx))
		switch {
		case errors.Is(err, runtime.ErrNotStarted):
			return nil, fmt.Errorf("%w: %w", ErrPython, err)
		case err != nil:
			return nil, err
		case exit.Reason == runtime.WallTime || exit.Reason == runtime.OutOfMemory || exit.Reason == runtime.PidsLimit:
			return nil, fmt.Errorf("%w: it %s", ErrLimit, exit)
		case !exit.Success():
			return nil, fmt.Errorf("%w: listing the tests' assertions, it %s", ErrPython, exit)
		}
		return answer.Bytes(), nil
	}
}

// A Listing is what [List] found, and the answer of this package's program.
type Listing struct {
	Edits []Edit
	// Canary are insertions that together make every test fail at its end, or a file without
	// tests at the file's.
	Canary []Edit
	// Broken are the paths of files that do not compile.
	Broken []string
	// Unread are files at which this package's program fails.
	Unread []string
}

// List finds edits in files with the help of python. A file that does not compile is listed in Broken and is not an error.
func List(ctx context.Context, python Python, files []File, o Options) (Listing, error) {
	request, err := json.Marshal(map[string]any{"files": files, "seed": o.Seed, "each": o.Each, "names": o.Names})
	if err != nil {
		return Listing{}, err
	}
	answer, err := python(ctx, request)
	if err != nil {
		return Listing{}, err
	}
	var listing Listing
	if err := json.Unmarshal(answer, &listing); err != nil {
		return Listing{}, fmt.Errorf("%w: its answer: %w", ErrPython, err)
	}
	return listing, nil
}
