package compiler

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"iter"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/compiler/securebench"
	"github.com/securebench/sbench/workspace/foreign/lines"
)

// MaxLine is the largest size of a row in bytes.
const MaxLine = 16 << 20

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
	Warnings   Problems // of the manifest

	dir                string // the manifest's directory, absolute
	publicRel, evalRel string // as the manifest has them
	readOnly           bool
	roots              map[string]string // of SecureBench 2.0, relative to dir: public, runtime and host; else nil
	families           []*Family         // that rows may name
	defaultFamily      *Family
	environment        environment.Environment
	manifest           *document.Document

	hidden func() (hiddenFiles, error) // reads all rows, once
}

// Roots returns the directories of public and of other files as the manifest has them, relative to its directory.
func (p *Pack) Roots() (public, eval string) { return p.publicRel, p.evalRel }

// Tasks reads the rows and yields them as tasks, in order; rows that are the steps of one task are one task. For an
// invalid row it yields nil and an error that holds Problems, and continues with the next row. Any other error means
// that the file cannot be read, and ends the sequence. Tasks needs about 30 bytes of memory for each row, to find
// repeated ids.
func (p *Pack) Tasks() iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		var steps []*Task // of a task that may have more of them
		complete := func() bool {
			task := steps
			steps = nil
			return len(task) == 0 || yield(joinSteps(task), nil)
		}
		for task, err := range p.rows() {
			if err == nil {
				task.doc = task.doc.Clone() // the next row is read into the same document
			}
			if len(steps) > 0 && (err != nil || task.step == nil || task.step.Task != steps[0].step.Task) && !complete() {
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

// rows yields the rows as Tasks does. Each task is valid until the next row is read.
func (p *Pack) rows() iter.Seq2[*Task, error] {
	return func(yield func(*Task, error) bool) {
		f, err := os.Open(p.TasksPath)
		if err != nil {
			yield(nil, err)
			return
		}
		defer shut(f)
		if problem := document.Encoded(f); problem != nil {
			yield(nil, Problems{*problem}.In(p.TasksPath))
			return
		}
		rows := rowReader{
			pack:    p,
			lines:   lines.NewReader(f, 0, MaxLine),
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
	lines   *lines.Reader
	line    int // the number of the last line that was read, from 1
	doc     document.Document
	checker schema.Checker
	ids     map[uint64]int32 // the lines of the first rows that use an id, by the id's hash
	seed    maphash.Seed     // of the hashes
	rule    *schema.Object   // for what all rows have in common

	step            *Step                   // of the row before; nil if it is none
	stepEnvironment environment.Environment // of that row
	stepped         map[string]int          // the lines of the first steps of tasks, by the tasks' ids
}

// next returns the next row. The error holds Problems if reading can continue, and is io.EOF
// at the end.
func (r *rowReader) next() (*Task, error) {
	text, err := r.read()
	switch {
	case err == lines.ErrLong:
		message := fmt.Sprintf("line is longer than %d bytes", MaxLine)
		return nil, Problems{{File: r.pack.TasksPath, Line: r.line, Message: message}}
	case err != nil:
		return nil, err
	}
	if problems := r.doc.ParseJSON(text, r.line); len(problems) > 0 {
		opened := (text[0] == '{' || text[0] == '[') && !bytes.ContainsAny(text[len(text)-1:], "}]")
		if begin := text[0]; opened && r.continued() {
			hint := "jq -c . FILE writes it so"
			if begin == '[' {
				hint = "jq -c '.[]' FILE writes it so, if FILE is a list of rows"
			}
			problems = Problems{{Line: problems[0].Line, Message: "value goes on in the next line, but a row is one line", Hint: hint}}
		}
		// A file of another format gets one problem, not one for each line.
		if r.line == 1 && !opened && bytes.IndexByte([]byte("{[\xef"), text[0]) < 0 && r.lines.Peek() != '{' {
			problems = Problems{{Line: 1, Message: "file holds no rows", Hint: "a row is a JSON object in one line"}}
			for err = nil; err == nil || err == lines.ErrLong; {
				_, err = r.lines.Next()
			}
		}
		return nil, problems.In(r.pack.TasksPath)
	}
	r.checker.Reset()
	root := r.doc.Root()
	env := r.pack.environment.WithRow(root.Get("environment"))
	family := r.check(root, env)
	if r.pack.roots != nil && family != nil {
		env = r.securebenchTask(root, family, env)
	}
	problems := r.checker.Problems
	if problems.Failed() {
		return nil, problems
	}
	return &Task{
		label: label{r.pack.TasksPath, r.line, root.Get("id").Text(), family}, pack: r.pack, doc: &r.doc, environment: env, step: stepOf(root), warnings: problems,
	}, nil
}

// read returns the next line that is not blank, without white space around it.
func (r *rowReader) read() ([]byte, error) {
	for {
		r.line++
		l, err := r.lines.Next()
		if text := bytes.Trim(l.Text, " \t\r\n\v\f"); err != nil || len(text) > 0 {
			return text, err
		}
	}
}

// continued skips lines that continue the value of the last line, as in JSON printed for people: lines that are
// indented or begin with a closing bracket. It reports whether there were any.
func (r *rowReader) continued() (found bool) {
	for strings.IndexByte(" \t}]", r.lines.Peek()) >= 0 {
		if _, err := r.lines.Next(); err != nil && err != lines.ErrLong {
			return found // the next line has the same error
		}
		r.line++
		found = true
	}
	return found
}

// TasksFile returns the path of the file of rows of the pack in dir: tasks.jsonl or, if there is none but that,
// rows.jsonl, as packs of SecureBench 2.0 call it.
func TasksFile(dir string) string {
	tasks, rows := filepath.Join(dir, "tasks.jsonl"), filepath.Join(dir, "rows.jsonl")
	if _, err := os.Lstat(tasks); err != nil {
		if _, err := os.Lstat(rows); err == nil {
			return rows
		}
	}
	return tasks
}

// MatchTask reports whether a glob of run.tasks matches a task's id: * matches any text,
// including slashes, ? any character, and [abc] any of several. A malformed glob matches
// only the id that equals it.
func MatchTask(glob, id string) bool {
	if glob == id {
		return true
	}
	// path.Match stops * at slashes, which mean nothing in an id.
	const slash = "\x01"
	ok, err := path.Match(strings.ReplaceAll(glob, "/", slash), strings.ReplaceAll(id, "/", slash))
	return err == nil && ok
}

// Selector returns a function that reports whether an id matches at least one glob of each list, and
// none of exclude; see [MatchTask]. An empty list matches everything; if all are empty, the function is nil.
func Selector(exclude []string, lists ...[]string) func(id string) bool {
	lists = slices.DeleteFunc(lists, func(globs []string) bool { return len(globs) == 0 })
	if len(exclude)+len(lists) == 0 {
		return nil
	}
	return func(id string) bool {
		misses := func(globs []string) bool {
			return !slices.ContainsFunc(globs, func(g string) bool { return MatchTask(g, id) })
		}
		return misses(exclude) && !slices.ContainsFunc(lists, misses)
	}
}
