// Package pack makes packs from the files in which public benchmarks are published.
//
// Terms: a format is a way in which tasks are published; an import reads one source
// in one format and writes one pack, with a tester file for every type of harness and
// a record of where each row came from.
//
// An import is reproducible: the same source and options give the same bytes,
// anywhere and at any time. It is atomic: the pack appears complete, by a rename, or
// not at all. Errors in a source are reported as compiler.Problems, each with the
// source's file and line.
package pack

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/securebench/sbench/compiler"
)

// A Format is a kind of source: its name and description, the manifest of the packs
// made from it, and how its tasks are read.
type Format struct {
	Name   string // what the command line calls the format
	Source string // describes the source for users
	Family compiler.Family
	// Image is the reference of the rows' images, in which {name} is replaced by the
	// row's value in Row.Names. Empty means defaultImage.
	Image       string
	Environment map[string]any // of the manifest's defaults, besides the image and, unless it is here, Timeout
	Timeout     int            // seconds that a harness has, in the tester files
	// Options points to a struct of the options that only some formats have, which Read
	// obeys; nil if there are none. The command line makes a flag of each field, which is
	// exported, with the tags of kong, and the provenance has the struct's JSON.
	Options any
	// Read passes every task of the source to b, in the source's order. What is wrong
	// with one task goes to b.Reject; an error ends the import.
	Read func(ctx context.Context, b *Builder) error
}

// defaultImage has Python, git and pytest; "make image" builds it.
const defaultImage = "sbench.local/base:bookworm"

// Formats returns all formats, sorted by name, each with options that nobody else has
// set. Formats that share options point to the same ones.
func Formats() []Format {
	tasks := &taskOptions{}
	return []Format{harbor(tasks), humanEval(), mmlu(), squad(), sweBench(), terminalBench(tasks), truthfulQA()}
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

// Options say of any format what to import, and how. The provenance has their JSON, which
// is what decides which rows there are.
type Options struct {
	Source string `json:"-"` // file or directory
	Out    string `json:"-"` // directory to make; see Fill
	// Fill adds rows to the existing directory Out, which must contain a manifest, no
	// rows, and only plain files. Its manifest and its tester files stay as they are.
	Fill  bool     `json:"-"`
	ID    string   `json:"-"`                // of the pack; empty means one derived from the format and the source
	Image string   `json:"image,omitempty"`  // reference, with {name} for a row's names; empty means the format's
	Limit int      `json:"limit,omitempty"`  // rows at most; 0 means all
	Tasks []string `json:"select,omitempty"` // globs of ids, as compiler.MatchTask has them; none means all
	// Skip leaves out tasks that cannot be imported, or that validation would warn
	// of, and reports them. Otherwise one such task is an error.
	Skip bool `json:"skip,omitempty"`
	// Agents get a tester file each, besides the one for a command.
	Agents []compiler.AgentType `json:"-"`
	// Pin returns the reference with its current digest. If it is nil, references
	// stay as they are.
	Pin    func(ctx context.Context, ref string) (string, error) `json:"-"`
	Limits Limits                                                `json:"-"`
}

// Limits bound what an import reads. Zero fields mean the default.
type Limits struct {
	Rows      int   // tasks of a source
	Text      int64 // bytes of a source file, decompressed
	Line      int   // bytes of one line or record
	File      int64 // bytes of one file of a task directory
	TaskFiles int   // files of one task directory
	TaskBytes int64 // bytes of one task directory
	AllBytes  int64 // bytes of all task directories
}

// withDefaults replaces zero limits by ones far above any published benchmark.
func (l Limits) withDefaults() Limits {
	return Limits{
		Rows:      cmp.Or(max(l.Rows, 0), 1_000_000),
		Text:      cmp.Or(max(l.Text, 0), 512<<20),
		Line:      cmp.Or(max(l.Line, 0), compiler.DefaultMaxLine),
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
	Rows   int    `json:"rows"`
	// Left are the tasks that were left out, with what is wrong with them.
	Left compiler.Problems `json:"left_out"`
	// Notes are what the operator should know; they are not errors.
	Notes compiler.Problems `json:"notes"`
	// Images have to be built from contexts in the pack's directory images.
	Images []BuiltImage `json:"images"`
}

// A BuiltImage is an image whose Dockerfile came with a task.
type BuiltImage struct {
	Ref     string `json:"ref"`
	Context string `json:"context"` // relative to the pack
	Digest  string `json:"digest"`  // of the context: SHA-256 in hexadecimal
}
