// Package contrast detects candidates that pass tests without solving the task: when the tests no longer say what
// they expect, such a candidate cannot answer as the tests expect. [List] makes tests in Python blind: their assertions
// are questions, and the answers are noted. A [Calibration] has the answers that a reference solution gives, with which
// [Calibration.Wrong] compares a candidate's.
package contrast

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/securebench/sbench/runtime"
)

//go:embed names.py
var names string

//go:embed blind.py
var blind string

// program makes tests blind: it reads a request as JSON from standard input, and writes the answer as JSON.
var program = names + blind

// Ask is the text of the Python function by which blind tests note answers. It needs a function write, which keeps a line.
//
//go:embed ask.py
var Ask string

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

// A File is a test file.
type File struct {
	Path string `json:"path"` // any name; questions and edits refer to it
	Text string `json:"text"`
}

// A Question is an assertion that a blind file asks.
type Question struct {
	Place
	ID int `json:"id"` // from 1, in all files
	// Expected are the answers that can be right; nil if only a reference solution tells.
	Expected []string `json:"expected"`
	// Raises are the names of the exceptions that can be right; nil for a question that has an answer.
	Raises []string `json:"raises"`
	// Near says how far numbers may be from the expected ones, absolutely and in proportion.
	Near [2]float64 `json:"near"`
	// Loose says that the order of the answers depends on the candidate.
	Loose bool `json:"loose,omitempty"`
	// Optional says that a right candidate may choose that the question is not asked.
	Optional bool `json:"optional,omitempty"`
	// Looped says that the question stands in a loop that a right candidate may leave without anything.
	Looped bool `json:"looped,omitempty"`
	// Weak says that the answer is yes: who says yes to everything is right.
	Weak bool `json:"weak,omitempty"`
}

// A Place is where a test file has an assertion.
type Place struct {
	Path string `json:"path"`
	Line int    `json:"line"` // from 1
	// Told are the lines, from 1, that say what is expected.
	Told []int `json:"told"`
}

// An Edit replaces the bytes of a file from Start up to End by New.
type Edit struct {
	Path  string `json:"path"`
	Start int    `json:"start"`
	End   int    `json:"end"`
	New   string `json:"new"`
}

// Options of [List]. The zero Options are for code that is judged beside its tests.
type Options struct {
	Names   []string // that belong to the candidate even if they are built-in
	Selects string   // the tests' command: rows of tables that it names by their values stay
	Answers string   // the file to which blind tests append answers; "" if the process that runs them declares Ask
	Bare    bool     // what is expected stays where it stands outside of assertions
}

// Apply returns the text of file, changed by the edits that have its path. It fails for edits that
// overlap or lie outside the text.
func Apply(file File, edits ...Edit) (string, error) {
	own := slices.DeleteFunc(slices.Clone(edits), func(e Edit) bool { return e.Path != file.Path })
	slices.SortFunc(own, func(a, b Edit) int { return b.Start - a.Start })
	text, end := file.Text, len(file.Text)
	for _, e := range own {
		if e.Start < 0 || e.Start > e.End || e.End > end {
			return "", fmt.Errorf("an edit of byte %d of %q does not fit", e.Start, file.Path)
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
		start := fmt.Sprintf("import sys; exec(compile(sys.stdin.buffer.read(%d), 'blind', 'exec'))", len(program))
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
	// Questions are what the blind Files ask.
	Questions []Question
	// Stays are assertions that stay in the blind Files.
	Stays []Place
	Files []File
	// Canary are insertions that together make every test fail at its end. A file without tests fails at its own end.
	Canary []Edit
	// Broken are the paths of files that do not compile.
	Broken []string
	// Unread are the paths of files at which this package's program fails. They are unchanged in Files.
	Unread []string
}

// List makes files blind with the help of python. A file that does not compile is listed in Broken and is not an error.
func List(ctx context.Context, python Python, files []File, o Options) (Listing, error) {
	request, err := json.Marshal(map[string]any{
		"files": files, "ask": Ask, "answers": o.Answers, "names": o.Names, "selects": o.Selects, "bare": o.Bare,
	})
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
