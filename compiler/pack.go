package compiler

import (
	"errors"
	"fmt"
	"io"
	"iter"
	"os"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// Pack is an opened pack: its manifest, and where its rows and files are. It
// is safe for concurrent use.
type Pack struct {
	ID           string
	Version      int
	ManifestPath string // as it was given to OpenPack
	TasksPath    string // as it was given to OpenPack
	// PublicRoot and EvalRoot are absolute; they need not exist.
	PublicRoot string
	EvalRoot   string

	dir                string // absolute, of the manifest
	publicRel, evalRel string // as the manifest has them
	readOnly           bool
	defaultFamily      *family
	environment        Environment
	manifest           *document.Document
}

// Tasks reads the rows and yields them as tasks, in order. A row with mistakes
// yields nil and an error that holds its Problems, and the next row follows.
// An error that holds none is the file's, and the last. Memory does not grow
// with the number of rows, but for four bytes each by which ids are told apart.
func (p *Pack) Tasks() iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		for row, err := range p.rows() {
			var task *Task
			if err == nil {
				task = row.task(p)
			}
			if !yield(task, err) {
				return
			}
		}
	}
}

// rows yields the rows as Tasks does.
func (p *Pack) rows() iter.Seq2[row, error] {
	return func(yield func(row, error) bool) {
		f, err := os.Open(p.TasksPath)
		if err != nil {
			yield(row{}, err)
			return
		}
		defer shut(f)
		rows := p.newRowReader(f)
		for {
			next, err := rows.next()
			if err == io.EOF {
				return
			}
			var problems Problems
			if !yield(next, err) || err != nil && !errors.As(err, &problems) {
				return
			}
		}
	}
}

// rowReader reads and checks one row after another, in memory that it uses
// again.
type rowReader struct {
	pack    *Pack
	lines   *lineReader
	doc     document.Document
	checker schema.Checker
	ids     *idSet
}

func (p *Pack) newRowReader(r io.Reader) *rowReader {
	return &rowReader{
		pack:    p,
		lines:   newLineReader(r, DefaultMaxLine),
		checker: schema.Checker{File: p.TasksPath},
		ids:     newIDSet(p.TasksPath),
	}
}

// row is one row that has been checked. It is valid until the next is read.
type row struct {
	doc      *document.Document
	line     int
	family   *family
	warnings Problems
}

// next returns the next row. Its error holds Problems if reading can go on,
// and is io.EOF at the end.
func (r *rowReader) next() (row, error) {
	text, err := r.lines.next()
	if errors.Is(err, errLongLine) {
		return row{}, Problems{{
			File: r.pack.TasksPath, Line: r.lines.line, Message: fmt.Sprintf("line is longer than %d bytes", r.lines.max),
		}}
	}
	if err != nil {
		return row{}, err
	}
	if problems := r.doc.ParseJSON(text, r.lines.line); len(problems) > 0 {
		return row{}, problems.In(r.pack.TasksPath)
	}
	r.checker.Reset()
	family := r.check(r.doc.Root())
	errs, warnings := r.checker.Problems.Split()
	if len(errs) > 0 {
		return row{}, r.checker.Problems
	}
	return row{doc: &r.doc, line: r.lines.line, family: family, warnings: warnings}, nil
}

// task makes a task of the row that shares no memory with it.
func (r row) task(p *Pack) *Task {
	doc := r.doc.Clone()
	return &Task{
		pack: p, doc: doc, line: r.line, family: r.family, id: doc.Root().Get("id").Text(),
		environment: p.environment.withRow(doc.Root().Get("environment")),
	}
}
