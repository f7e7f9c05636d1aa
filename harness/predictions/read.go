package predictions

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	maxLine    = 64 << 20     // bytes
	maxFile    = 1 << 30      // bytes
	completion = "completion" // the key of an answer that continues the task's prompt
)

// idKeys are the keys that may name a prediction's task. The first that is set counts.
var idKeys = []string{"id", "instance_id", "task_id"}

// answerKeys are the keys of a prediction for each kind of candidate.
var answerKeys = map[compiler.CandidateKind][]string{
	compiler.CandidatePatch: {"model_patch", "patch", "candidate_patch"},
	compiler.CandidateCode:  {completion, "solution", "code", "candidate_text"},
	compiler.CandidateText:  {"answer", "text", "response", "candidate_text"},
}

// Read reads the predictions for a pack from a file or a directory (docs/records.md,
// "Candidates that exist"). The n-th prediction for a task is the candidate of its n-th attempt.
//
//	name           holds
//	a .json file   a list of predictions, or an object of predictions by the task's id
//	another file   one prediction on each line
//	a directory    for each task what an agent left: a directory or a file, named after the task
//
// A prediction is an object with an id and an answer, such as SWE-bench's (instance_id, model_patch),
// HumanEval's (task_id, completion), or a record of SecureBench (task_id, candidate_text or
// candidate_patch; a workspace is in the directory workspaces beside the file). With fenced, Read finds
// the program in an answer as family.CodeCompletionEval.Program does, whatever the task says. An error
// lists compiler.Problems, which name everything that is wrong.
func Read(ctx context.Context, name string, pack *compiler.Pack, fenced bool) (*Set, error) {
	r := &reader{file: name, fenced: fenced, tasks: map[string]*compiler.Task{}, set: &Set{Candidates: map[string][]candidate.Candidate{}}}
	for task, err := range pack.Tasks() {
		if err != nil {
			return nil, err
		}
		r.tasks[task.ID()] = task
		r.ids = append(r.ids, task.ID())
	}
	var err error
	if info, statErr := os.Stat(name); statErr == nil && info.IsDir() {
		err = r.directory(ctx)
	} else {
		err = r.openFile(ctx)
	}
	if err != nil {
		r.problems = append(r.problems, document.ProblemsOf(name, err)...)
	}
	if len(r.problems) == 0 && len(r.set.Candidates) == 0 {
		r.wrong(0, "", "", "there are no predictions")
	}
	if len(r.problems) > 0 {
		return nil, r.problems
	}
	return r.set, nil
}

type reader struct {
	file     string
	fenced   bool
	tasks    map[string]*compiler.Task
	ids      []string
	set      *Set
	problems compiler.Problems
}

func (r *reader) wrong(line int, path, hint, format string, args ...any) {
	r.problems = append(r.problems, compiler.Problem{File: r.file, Line: line, Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// maxProblems bounds the list of problems: a file with more of them is no file of predictions.
const maxProblems = 100

// enough returns an error if the rest of the file need not be read.
func (r *reader) enough(ctx context.Context) error {
	if len(r.problems) >= maxProblems {
		return errors.New("there are too many problems: the rest was not read")
	}
	return context.Cause(ctx)
}

func (r *reader) openFile(ctx context.Context) error {
	name, err := filepath.EvalSymlinks(r.file)
	if err != nil {
		return err
	}
	f, err := foreign.OpenPath(name, maxFile)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	if problem := document.Encoded(f); problem != nil {
		return document.Problems{*problem}.In(r.file)
	}
	if r.set.Digest, err = foreign.Digest(ctx, f); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	switch {
	case err != nil:
		return err
	case filepath.Ext(r.file) == ".json":
		return r.whole(ctx, f)
	}
	return r.lines(ctx, f)
}

func (r *reader) lines(ctx context.Context, f io.Reader) error {
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, maxLine)
	for n := 1; lines.Scan(); n++ {
		if err := r.enough(ctx); err != nil {
			return err
		}
		line := bytes.TrimSpace(bytes.TrimPrefix(lines.Bytes(), []byte("\ufeff")))
		if len(line) == 0 {
			continue
		}
		if err := r.prediction(ctx, line, n, ""); err != nil {
			return err
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return fmt.Errorf("a line has more than %d bytes", maxLine)
	}
	return lines.Err()
}

// whole reads a file that is one JSON value, one prediction at a time.
func (r *reader) whole(ctx context.Context, f io.Reader) error {
	in, seen := newSplitter(f), map[string]bool{}
	return in.each(func(id string, item json.RawMessage) error {
		if err := r.enough(ctx); err != nil {
			return err
		}
		line := in.line() // on which the item ends
		if id != "" && seen[id] {
			r.wrong(line, "", "", "the key %q is there twice", id)
		}
		seen[id] = true
		return r.prediction(ctx, item, line, id)
	})
}

// prediction adds one prediction. id is its task's id, or "" if a key of the prediction names the task.
func (r *reader) prediction(ctx context.Context, text []byte, line int, id string) error {
	switch {
	case !json.Valid(text):
		r.parse(text, line) // which says what is wrong
		return nil
	case text[0] != '{':
		r.wrong(line, "", `{"id": "…", "answer": "…"}`, "expected an object, found %s", kindOf(text))
		return nil
	}
	fields, err := fieldsOf(text)
	if err != nil {
		r.wrong(line, "", "", "%v", err)
		return nil
	}
	for _, key := range idKeys {
		if value := fields[key]; id == "" && kindOf(value) == document.String {
			named, ok := r.parse(value, line)
			if !ok {
				return nil
			}
			id = named.Text()
		}
	}
	if id == "" {
		r.wrong(line, "", "", "the prediction names no task: it has no %s", strings.Join(idKeys, ", "))
		return nil
	}
	task := r.task(line, id)
	if task == nil {
		return nil
	}
	keys := answerKeys[task.Family().CandidateKind]
	if keys == nil && fields["hidden_values"] != nil { // a record of SecureBench
		return r.workspace(ctx, task, fields["candidate_workspace"], line)
	}
	if keys == nil {
		r.wrong(line, "", "give a directory that holds the task's directory", "a candidate of %q, a %s, is not a text", id, task.Family().Name)
		return nil
	}
	var found []string
	for _, key := range keys {
		if fields[key] != nil {
			found = append(found, key)
		}
	}
	if len(found) > 1 {
		found = slices.DeleteFunc(found, func(key string) bool { return kindOf(fields[key]) == document.Null })
	}
	if len(found) != 1 {
		r.wrong(line, "", "", "a prediction for %q, a %s, has one of %s, found %d", id, task.Family().Name, strings.Join(keys, ", "), len(found))
		return nil
	}
	value := fields[found[0]]
	if k := kindOf(value); k != document.String && k != document.Null { // some tools write null for an empty patch
		r.wrong(line, "$."+found[0], "", "expected text, found %s", k)
		return nil
	}
	if answer, ok := r.parse(value, line); ok {
		r.add(task, found[0], answer.Text())
	}
	return nil
}

// parse parses a value, more strictly than encoding/json does.
func (r *reader) parse(text []byte, line int) (document.Value, bool) {
	var d document.Document
	if problems := d.ParseJSON(text, line); len(problems) > 0 {
		r.problems = append(r.problems, problems.In(r.file)...)
		return document.Value{}, false
	}
	return d.Root(), true
}

// workspace adds the workspace that a record of SecureBench refers to: the directory of that name in
// workspaces beside the file, wherever the run was when it was recorded.
func (r *reader) workspace(ctx context.Context, task *compiler.Task, value []byte, line int) error {
	name := workspace.TaskDir(task.ID())
	if kindOf(value) == document.String {
		named, ok := r.parse(value, line)
		if !ok {
			return nil
		}
		name = path.Base(named.Text())
	}
	dir, err := filepath.Abs(filepath.Join(filepath.Dir(r.file), "workspaces", name))
	if err != nil {
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil || !info.IsDir() || !filepath.IsLocal(name) {
		r.wrong(line, "$.candidate_workspace", "", "there is no directory %q for %q", filepath.Join("workspaces", name), task.ID())
		return nil
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, r.set.Digest) // a hash takes everything
	err = r.entry(ctx, task, dir, fs.FileInfoToDirEntry(info), sum)
	r.set.Digest = workspace.DigestOf(sum)
	return err
}

// task returns the task with the id; nil if there is none.
func (r *reader) task(line int, id string) *compiler.Task {
	task := r.tasks[id]
	if task == nil {
		hint := "the predictions are for another pack, or for tasks that this pack does not have"
		r.wrong(line, "", cmp.Or(schema.Suggest(id, r.ids), hint), "the pack has no task %q", id)
	}
	return task
}

func (r *reader) add(task *compiler.Task, key, answer string) {
	var c candidate.Candidate
	if task.Family().CandidateKind == compiler.CandidatePatch {
		c.Patch, c.Foreign = answer, true
	} else if c.Text = answer; task.Family().CandidateKind == compiler.CandidateCode && r.fenced {
		c.Text = family.CodeCompletionOf(task).Program(answer)
	} else if key == completion {
		c.Text = family.CodeCompletionOf(task).Continue(answer)
	}
	r.set.Candidates[task.ID()] = append(r.set.Candidates[task.ID()], c)
}

// directory reads a directory with an entry for each task: a directory for a terminal_task, and a
// file for any other task. If the whole machine was the candidate, its layer is beside the directory.
func (r *reader) directory(ctx context.Context) error {
	dir, err := filepath.Abs(r.file)
	if err != nil {
		return err
	}
	ids := map[string]string{} // by the name that a task's directory has in a run
	for _, id := range r.ids {
		ids[workspace.TaskDir(id)] = id
	}
	sum := sha256.New()
	err = r.below(ctx, dir, "", ids, sum)
	r.set.Digest = workspace.DigestOf(sum)
	return err
}

// below reads the entries of dir. The ids of their tasks begin with prefix: a task's id with slashes is the path of its
// entry.
func (r *reader) below(ctx context.Context, dir, prefix string, ids map[string]string, sum io.Writer) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") || strings.HasSuffix(e.Name(), layer.Suffix) || strings.HasSuffix(e.Name(), workspace.AttributesSuffix) {
			continue
		}
		id := prefix + e.Name()
		if r.tasks[id] == nil && e.IsDir() && slices.ContainsFunc(r.ids, func(of string) bool { return strings.HasPrefix(of, id+"/") }) {
			if err := r.below(ctx, filepath.Join(dir, e.Name()), id+"/", ids, sum); err != nil {
				return err
			}
			continue
		}
		if _, ok := r.tasks[id]; !ok && e.Type().IsRegular() {
			id = strings.TrimSuffix(id, filepath.Ext(id))
		}
		id = cmp.Or(ids[id], id)
		if task := r.task(0, id); task != nil {
			if len(r.set.Candidates[id]) > 0 {
				r.wrong(0, "", "", "%s: there is another candidate of %q already", prefix+e.Name(), id)
			}
			if err := r.entry(ctx, task, filepath.Join(dir, e.Name()), e, sum); err != nil {
				return fmt.Errorf("%s: %w", prefix+e.Name(), document.Bare(err))
			}
		}
	}
	return nil
}

// entry adds the candidate that an entry of the directory is for a task, and adds its digest to sum.
func (r *reader) entry(ctx context.Context, task *compiler.Task, name string, e fs.DirEntry, sum io.Writer) error {
	kind := task.Family().CandidateKind
	digest := ""
	switch {
	case kind == compiler.CandidateWorkspace && e.IsDir():
		c := candidate.Candidate{Workspace: name}
		tree, err := c.TreeDigest(ctx, 0)
		if err != nil && !errors.Is(err, workspace.ErrTooBig) { // Produce says so of this candidate
			return err
		}
		f, err := foreign.OpenPath(name+layer.Suffix, math.MaxInt64)
		if err == nil {
			c.Layer, err = foreign.Digest(ctx, f)
			err = errors.Join(err, f.Close())
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		digest = tree + " " + c.Layer
		r.set.Candidates[task.ID()] = append(r.set.Candidates[task.ID()], c)
	case kind != compiler.CandidateWorkspace && e.Type().IsRegular():
		text, err := foreign.ReadPath(name, maxLine)
		if err != nil {
			return err
		}
		digest = fmt.Sprintf("sha256:%x", sha256.Sum256(text))
		r.add(task, "", string(text))
	default:
		r.wrong(0, "", "", "%s: a candidate of %q, a %s, is a directory for a terminal_task and a file for any other task", filepath.Base(name), task.ID(), task.Family().Name)
	}
	_, err := fmt.Fprintf(sum, "%q %s\n", task.ID(), digest)
	return err
}
