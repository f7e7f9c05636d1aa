// Package pack makes packs from the files in which public benchmarks are published.
//
// Terms: a format is a way in which tasks are published; an import reads one source in one
// format and writes one pack, with a tester file for every type of harness and a record of
// where each row came from.
//
// An import is reproducible: the same source and options give the same bytes anywhere, at
// any time. It is atomic: the pack appears complete, by a rename, or not at all. Errors in a
// source are reported as compiler.Problems with the source's file and line.
package pack

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/testerfile"
)

// A Format is a kind of source: its name, how its tasks are read, and the
// manifest of the packs made from it.
type Format struct {
	Name   string // what the command line calls the format
	Family *compiler.Family
	// Image is the template of the rows' image references: a row's value in Row.Names
	// replaces {name}. Empty means defaultImage.
	Image       string
	Environment map[string]any // of the manifest's defaults; image and, unless set here, Timeout are added
	Timeout     int            // of a harness, in seconds; also written to the tester files
	// Options points to a struct of options that only some formats have and Read obeys; nil
	// if there are none. The command line makes a flag of each field, which must be exported
	// and tagged for kong. The provenance has the struct's JSON.
	Options any
	// Read passes every task of the source to b, in the source's order. Problems with a task
	// go to b.Reject; an error ends the import.
	Read func(ctx context.Context, b *Builder) error
}

// defaultImage has Python, git and pytest; "make image" builds it.
const defaultImage = "sbench.local/base:bookworm"

// Formats returns the formats of this package, with options of this call's own. Formats that share
// options point to the same ones.
func Formats() []Format {
	swebench := &sweBenchOptions{}
	return []Format{
		{Name: "humaneval", Family: family.CodeCompletion(), Timeout: 300, Read: each(humanEvalRow)},
		{Name: "mmlu", Family: family.MultipleChoice(), Timeout: 300, Read: readMmlu},
		{Name: "squad", Family: family.ShortAnswer(), Timeout: 300, Read: readSquad},
		{
			// The images are those published by the benchmark's authors.
			Name: "swebench", Family: family.RepoPatch(), Image: "docker.io/swebench/sweb.eval.x86_64.{instance}:latest",
			Environment: map[string]any{"workdir": testbed}, Timeout: 1800, Options: swebench, Read: each(swebench.row),
		},
		{Name: "truthfulqa", Family: family.FreeResponse(), Timeout: 300, Read: readTruthfulQA},
	}
}

// Named returns the format with this name, or an error that lists all names.
func Named(formats []Format, name string) (Format, error) {
	var names []string
	for _, f := range formats {
		if f.Name == name {
			return f, nil
		}
		names = append(names, f.Name)
	}
	return Format{}, fmt.Errorf("no format %q: there are %s", name, strings.Join(names, ", "))
}

// Options say what to import of any format, and how. The command line makes flags of them. The provenance has their
// JSON, which contains what determines the rows.
type Options struct {
	Source string `json:"-" arg:"" help:"File or directory with the benchmark's tasks."`
	Out    string `json:"-" short:"o" required:"" placeholder:"DIR" help:"Directory to create."`
	// Fill needs a directory of plain files. Its manifest and tester files stay as they are.
	Fill    bool     `json:"-" help:"Put the rows into an existing directory that has a manifest, in place of rows of an earlier import."`
	ID      string   `json:"-" placeholder:"NAME" help:"The pack's id. Default: made from the format and the source."`
	Image   string   `json:"image,omitempty" placeholder:"REF" help:"Image of the tasks. A {name} stands for a row's own name, such as {task} in task directories."`
	Limit   int      `json:"limit,omitempty" short:"n" placeholder:"N" help:"Import only the first N tasks."` // 0 means all
	Tasks   []string `json:"select,omitempty" name:"task" short:"t" placeholder:"GLOB" help:"Import only the tasks whose id matches one of these patterns."`
	Exclude []string `json:"exclude,omitempty" placeholder:"GLOB" help:"Do not import the tasks whose id matches one of these patterns."`
	// Without Skip, a task that is left out with it is an error.
	Skip bool `json:"skip,omitempty" help:"Leave out, and report, tasks that cannot be imported or that validation would warn of."`
	// Agents get a tester file each, besides the one for a command.
	Agents []testerfile.AgentType `json:"-" kong:"-"`
	Limits ImportLimits           `json:"-" kong:"-"`
}

// ImportLimits bound what an import reads. Zero fields mean the default.
type ImportLimits struct {
	Rows      int   // tasks of a source
	Text      int64 // bytes of a source file, decompressed
	Line      int   // bytes of one line or record
	File      int64 // bytes of one file of a task directory
	TaskFiles int   // files of one task directory
	TaskBytes int64 // bytes of one task directory
	AllBytes  int64 // bytes of the files that all task directories bring to the pack
}

// withDefaults replaces zero limits by defaults far above any published benchmark.
func (l ImportLimits) withDefaults() ImportLimits {
	return ImportLimits{
		Rows:      cmp.Or(max(l.Rows, 0), 1_000_000),
		Text:      cmp.Or(max(l.Text, 0), 512<<20),
		Line:      cmp.Or(max(l.Line, 0), compiler.MaxLine),
		File:      cmp.Or(max(l.File, 0), 256<<20),
		TaskFiles: cmp.Or(max(l.TaskFiles, 0), 10_000),
		TaskBytes: cmp.Or(max(l.TaskBytes, 0), 1<<30),
		AllBytes:  cmp.Or(max(l.AllBytes, 0), 8<<30),
	}
}

// A Report says what an import did. Its JSON is the output of sbench pack import --json.
type Report struct {
	Format string `json:"format"`
	ID     string `json:"id"`
	Out    string `json:"out"`
	Tasks  int    `json:"tasks"`
	// Left are the tasks that were left out, with their problems.
	Left compiler.Problems `json:"left_out"`
	// Notes are for the operator; they are not errors.
	Notes compiler.Problems `json:"notes"`
	// Images must be built from contexts in the pack's directory images.
	Images []BuiltImage `json:"images"`
}

// A BuiltImage is an image whose Dockerfile came with a task.
type BuiltImage struct {
	Ref     string `json:"ref"`
	Context string `json:"context"` // relative to the pack
	Digest  string `json:"digest"`  // of the context: SHA-256 in hexadecimal
}
