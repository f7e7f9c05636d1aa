package verifiers

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/runtime"
)

// cellFiles are the programs of the cells; docs/cells.md says what they do. What
// begins with "cell" is a part of all but shared.py.
//
//go:embed cell/*.py
var cellFiles embed.FS

const (
	cellMount  = "/opt/securebench/cell"
	cellInodes = 64
	// cellLayer is what a cell may write over its read-only root, which is next to
	// nothing.
	cellLayer   = 4 << 20
	callTimeout = time.Minute
)

// Isolations of code_completion, as the record names them.
const (
	isolationCells  = "cells"  // tests and candidate in a sandbox each
	isolationShared = "shared" // tests and candidate in one interpreter
)

// codeCompletion runs the hidden tests in one sandbox and the candidate in
// another. The exit status of the tests' process is the verdict.
func codeCompletion(ctx context.Context, e Engine, in Input) (Verdict, error) {
	eval, ok := in.Task.CodeCompletion()
	if !ok {
		return Verdict{}, fmt.Errorf("task %q is no code_completion", in.Task.ID())
	}
	if eval.Language != "python" {
		return Verdict{Status: Pending, Reason: "language_without_verifier", Message: "no verifier for code in the language of this task; only python has one"}, nil
	}
	if !eval.Inline {
		return Verdict{Status: Pending, Reason: "tests_without_verifier", Message: "no verifier for tests that are not inline"}, nil
	}
	return judgeCode(ctx, e, in, codeTests{source: eval.Tests, public: eval.Prompt + "\n" + eval.StarterCode, isolation: isolationOf(eval)})
}

func isolationOf(eval compiler.CodeCompletionEval) string {
	if eval.Shared {
		return isolationShared
	}
	return isolationCells
}

// codeTests is what a candidate's code is judged by.
type codeTests struct {
	source    string
	public    string // what the candidate's author saw
	isolation string
}

func judgeCode(ctx context.Context, e Engine, in Input, tests codeTests) (Verdict, error) {
	folders, err := tests.folders(in.Candidate.Text, in.Cells != nil)
	if err != nil {
		return Verdict{}, err
	}
	stage, err := stageCells(ctx, e, folders)
	if err != nil {
		return Verdict{}, fmt.Errorf("stage the cells: %w", err)
	}
	c := cells{engine: e, in: in, stage: stage.Path(), call: timeout(in.CallTimeout, callTimeout)}
	v, err := c.way(ctx, tests)
	if v.Metadata == nil {
		v.Metadata = map[string]any{}
	}
	v.Metadata["isolation"] = tests.isolation
	return v, errors.Join(err, stage.Close())
}

// way judges in the way the task and the caller want.
func (c cells) way(ctx context.Context, tests codeTests) (Verdict, error) {
	switch {
	case tests.isolation == isolationShared:
		return c.judgeShared(ctx)
	case c.in.Cells == nil:
		return c.judge(ctx, newMailbox(), c.freshTests)
	}
	k, err := c.in.Cells.take(ctx, c)
	if err != nil {
		return Verdict{}, err
	}
	return c.judge(ctx, k.in, func(ctx context.Context, x *exchange) cellEnd { return c.in.Cells.judge(ctx, c, k, tests, x) })
}

// folders returns the files of each cell, by folder and name. The candidate's has
// nothing of the tests. A kept cell has the tests' files already.
func (t codeTests) folders(candidate string, kept bool) (map[string]files, error) {
	if t.isolation == isolationShared {
		return map[string]files{
			sharedDir: {"shared.py": program("shared.py"), "candidate.py": candidate, "tests.py": t.source},
		}, nil
	}
	folders := map[string]files{candidateDir: peerFiles("server.py")}
	folders[candidateDir]["candidate.py"] = candidate
	if kept {
		return folders, nil
	}
	functions, classes := t.declared()
	task, err := json.Marshal(map[string]any{"functions": functions, "classes": classes})
	if err != nil {
		return nil, err
	}
	folders[testsFolder] = peerFiles("judge.py")
	folders[testsFolder]["tests.py"], folders[testsFolder]["task.json"] = t.source, string(task)
	return folders, nil
}

// files are texts by name.
type files map[string]string

func program(name string) string {
	text, err := cellFiles.ReadFile("cell/" + name)
	if err != nil {
		panic(err) // it is compiled in
	}
	return string(text)
}

// peerFiles are what a program that takes part in an exchange consists of.
func peerFiles(programs ...string) files {
	all := files{}
	entries, err := cellFiles.ReadDir("cell")
	if err != nil {
		panic(err) // it is compiled in
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "cell") || slices.Contains(programs, e.Name()) {
			all[e.Name()] = program(e.Name())
		}
	}
	return all
}

// declared returns the functions and classes that the candidate's author was
// given.
func (t codeTests) declared() (functions, classes []string) {
	return declared(t.public, `(?:async[ \t]+)?def`), declared(t.public, `class`)
}

// declared returns the names that a text declares at the start of a line.
func declared(text, keyword string) []string {
	names := []string{}
	for _, m := range regexp.MustCompile(`(?m)^`+keyword+`[ \t]+([A-Za-z_][A-Za-z0-9_]*)`).FindAllStringSubmatch(text, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// stageCells writes the folders to a volume that just holds them.
func stageCells(ctx context.Context, e Engine, folders map[string]files) (runtime.Volume, error) {
	size := int64(cellBytes)
	for _, texts := range folders {
		for _, text := range texts {
			size += int64(len(text)) + cellBlockBytes
		}
	}
	stage, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: size, Inodes: cellInodes})
	if err != nil {
		return nil, err
	}
	for folder, texts := range folders {
		if err := writeFiles(filepath.Join(stage.Path(), folder), texts); err != nil {
			return nil, errors.Join(err, stage.Close())
		}
	}
	return stage, nil
}

func writeFiles(dir string, texts files) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// pythonArgs starts a program of ours: isolated from the environment and the
// user's folder, without site packages, writing no bytecode.
func pythonArgs(program string) []string {
	return []string{"python3", "-I", "-S", "-B", cellMount + "/" + program}
}

// judgeShared runs candidate and tests in one interpreter. The candidate can do
// all that the tests can: the verdict is worth what the candidate's honesty is.
// The token only keeps an early exit from being taken for success.
func (c cells) judgeShared(ctx context.Context) (Verdict, error) {
	box, err := c.engine.Create(ctx, c.config(sharedDir, c.stage))
	if err != nil {
		return Verdict{}, err
	}
	token := randomName()
	exit, err := box.Exec(ctx, runtime.Process{
		Args: pythonArgs("shared.py"), Stdin: strings.NewReader(token), Wall: c.wall(), OutputBytes: c.in.OutputBytes,
	})
	if err := errors.Join(missingPython(err), box.Close(ctx)); err != nil {
		return Verdict{}, err
	}
	v := judge(exit)
	if exit.Success() && !strings.HasSuffix(string(exit.Stdout.Tail), token) && !strings.HasSuffix(string(exit.Stdout.Head), token) {
		v.Status, v.Score, v.Reason, v.Message = Failed, 0, "tests_not_finished", "the process ended before the tests did"
	}
	v.Stdout = runtime.Output{}
	return v, nil
}

// missingPython tells an image without an interpreter, which no candidate can
// bring about.
func missingPython(err error) error {
	if errors.Is(err, runtime.ErrNotStarted) {
		return fmt.Errorf("the image cannot run python3: %w", err)
	}
	return err
}
