package compiler

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"sync"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/securebench"
)

// Pack is an opened pack: its manifest, and the paths of its rows and files. It is
// safe for concurrent use.
type Pack struct {
	ID           string
	Version      int
	ManifestPath string // as it was given to OpenPack
	TasksPath    string // as it was given to OpenPack
	// PublicRoot and EvalRoot are absolute; they need not exist.
	PublicRoot string
	EvalRoot   string

	dir                string // the manifest's directory, absolute
	publicRel, evalRel string // as the manifest has them
	readOnly           bool
	roots              map[string]string // of SecureBench 2.0, relative to dir: public, runtime and host; else nil
	families           []*Family         // that rows may name
	defaultFamily      *Family
	environment        environment.Environment
	manifest           *document.Document
	warnings           Problems // of the manifest

	hiddenOnce sync.Once // for the next two
	hidden     hiddenFiles
	hiddenErr  error
}

// Tasks reads the rows and yields them as tasks, in order; rows that are the steps of one task are one task. For an
// invalid row it yields nil and an error that holds Problems, and continues with the next row. Any other error means
// that the file cannot be read, and ends the sequence. Tasks needs about 30 bytes of memory for each row, to find
// repeated ids.
func (p *Pack) Tasks() iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		var steps []*Task // of a task of which there may be more
		complete := func() bool {
			task := steps
			steps = nil
			return len(task) == 0 || yield(joined(task), nil)
		}
		for row, err := range p.rows() {
			var task *Task
			if err == nil {
				task = row.task
				task.doc = task.doc.Clone() // the next row is read into the same document
			}
			if len(steps) > 0 && (err != nil || task.TaskID() != steps[0].TaskID()) && !complete() {
				return
			}
			if err == nil && task.step != nil {
				steps = append(steps, task)
			} else if !yield(task, err) {
				return
			}
		}
		complete()
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
		rows := rowReader{
			pack:    p,
			lines:   document.NewLines(f),
			checker: schema.Checker{File: p.TasksPath},
			ids:     map[uint64]int32{},
			seed:    maphash.MakeSeed(),
			rule:    rowRule(p.families),
			stepped: map[string]int{},
		}
		if p.roots != nil {
			rows.rule = securebench.Row()
		}
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

// rowReader reads and checks one row after another, and reuses its memory.
type rowReader struct {
	pack    *Pack
	lines   *document.Lines
	doc     document.Document
	checker schema.Checker
	ids     map[uint64]int32 // the lines of the first rows that use an id, by the id's hash
	seed    maphash.Seed     // of the hashes
	rule    *schema.Object   // for what all rows have in common

	step            *Step                   // of the row before; nil if it is none
	stepEnvironment environment.Environment // of that row
	stepped         map[string]int          // the lines of the first steps of tasks, by the tasks' ids
}

// row is one row that has been checked.
type row struct {
	task     *Task // valid until the next row is read
	warnings Problems
}

// next returns the next row. The error holds Problems if reading can continue, and is io.EOF
// at the end.
func (r *rowReader) next() (row, error) {
	text, err := r.lines.Next()
	switch {
	case err == document.ErrLongLine:
		message := fmt.Sprintf("line is longer than %d bytes", document.MaxLine)
		return row{}, Problems{{File: r.pack.TasksPath, Line: r.lines.Line, Message: message}}
	case err != nil:
		return row{}, err
	}
	if problems := r.doc.ParseJSON(text, r.lines.Line); len(problems) > 0 {
		opened := (text[0] == '{' || text[0] == '[') && !bytes.ContainsAny(text[len(text)-1:], "}]")
		if begin := text[0]; opened && r.lines.Continued() {
			hint := "jq -c . FILE writes it so"
			if begin == '[' {
				hint = "jq -c '.[]' FILE writes it so, if FILE is a list of rows"
			}
			problems = Problems{{Line: problems[0].Line, Message: "value goes on in the next line, but a row is one line", Hint: hint}}
		}
		return row{}, problems.In(r.pack.TasksPath)
	}
	r.checker.Reset()
	root := r.doc.Root()
	family := r.check(root)
	environment := r.pack.environment.WithRow(root.Get("environment"))
	if r.pack.roots != nil && family != nil {
		environment = r.securebenchTask(root, family)
	}
	problems := r.checker.Problems
	if problems.Failed() {
		return row{}, problems
	}
	return row{&Task{
		pack: r.pack, doc: &r.doc, line: r.lines.Line, family: family, id: root.Get("id").Text(),
		environment: environment, step: stepOf(root),
	}, problems}, nil
}
