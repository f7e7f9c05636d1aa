package pack

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
)

// Names of the files and directories of a pack.
const (
	manifestFile   = "manifest.yaml"
	tasksFile      = "tasks.jsonl"
	provenanceFile = "provenance.json"
	// HiddenDir holds what only a verifier sees.
	HiddenDir = "hidden"
	// ImagesDir holds the build contexts of images.
	ImagesDir = "images"
)

// maxProblems bounds the problems reported before an import gives up.
const maxProblems = 20

// errDone ends the reading of a source when the limit is reached.
var errDone = errors.New("enough rows")

// A Place says where in a source a task comes from.
type Place struct {
	File string // as the operator named it
	Line int    // 1-based; 0 if it is a whole file or directory
	Path string // JSON path in it, where that says more than the line
}

// A Row is one task of the pack, without the defaults of the manifest.
type Row struct {
	ID          string           `json:"id"`
	Input       map[string]any   `json:"input"`
	Eval        map[string]any   `json:"eval"`
	Environment map[string]any   `json:"environment,omitempty"`
	Metadata    map[string]any   `json:"metadata"`
	Assets      []map[string]any `json:"assets,omitempty"`
	// Step makes the row a step of a task; see [Builder.Add].
	Step *Step `json:"step,omitempty"`
	// Names are the values for {name} in the template of the image; see Format.Image.
	Names map[string]string `json:"-"`
}

// A Step names the task that a row is a step of, and says how the step counts.
type Step struct {
	Task      string `json:"task"`
	MinReward any    `json:"min_reward,omitempty"` // a number, or numbers by the names of rewards
	Strategy  string `json:"strategy,omitempty"`
}

// Builder takes the tasks of a source and writes them to an unfinished pack. It is not safe
// for concurrent use.
type Builder struct {
	Options
	tree              // the unfinished pack
	Format   Format   // that reads the source
	file     *os.File // of its rows
	out      *bufio.Writer
	template string // of references to images: the operator's or, if there is none, the format's
	perRow   bool   // rows name images: their own or, if the import does not write the manifest, the operator's

	places   []Place // of the rows, in order
	tasks    int     // that were added
	sources  []sourceFile
	problems compiler.Problems // of tasks that cannot be imported
	notes    compiler.Problems
	images   []BuiltImage
	leave    map[Place]compiler.Problem // of tasks that an earlier pass found unfit
	seen     int                        // tasks counted
	powers   int                        // rows that need capabilities
}

func newBuilder(f Format, o Options, root *os.Root, leave map[Place]compiler.Problem) (*Builder, error) {
	o.Limits = o.Limits.withDefaults()
	b := &Builder{Options: o, tree: tree{root}, Format: f, template: cmp.Or(o.Image, f.Image, defaultImage), leave: leave}
	b.perRow = b.OwnImages() || o.Fill && o.Image != ""
	var err error
	b.file, err = b.create(tasksFile, false)
	b.out = bufio.NewWriterSize(b.file, 1<<20)
	return b, errors.Join(err, root.Chmod(".", 0o755))
}

// read makes the format read the source to its end or to the limit.
func (b *Builder) read(ctx context.Context) error {
	err := b.Format.Read(ctx, b)
	if err == nil || errors.Is(err, errDone) {
		err = errors.Join(b.out.Flush(), b.file.Sync())
	}
	err = errors.Join(err, b.file.Close())
	var fatal, problems compiler.Problems
	if !b.Skip {
		fatal = slices.Clone(b.problems)
	}
	switch {
	case errors.As(err, &problems):
		return append(fatal, problems...)
	case err != nil:
		return err
	case len(fatal) > 0:
		return append(fatal, Place{File: b.Source}.hinted("--skip leaves out such tasks", "no pack is made")...)
	case len(b.places) == 0:
		return Place{File: b.Source}.hinted(b.emptyHint(), "no task to import")
	}
	return nil
}

func (b *Builder) emptyHint() string {
	left := append(slices.Clone(b.problems), sorted(b.leave)...)
	switch {
	case len(left) > 0:
		return "all were left out: " + left[0].String()
	case len(b.Tasks)+len(b.Exclude) > 0:
		return "no id matches the selection"
	}
	return "the source is empty"
}

// Wanted reports whether the task with this id is selected, and was not found unfit before. A format
// that knows the id early can skip the rest of the task if it is not.
func (b *Builder) Wanted(at Place, id string) bool {
	selected := compiler.Selector(b.Exclude, b.Tasks)
	_, unfit := b.leave[at]
	return !unfit && (selected == nil || selected(id))
}

// Count must be called once for each task of the source. It returns an error, which must end
// the import, if there are too many tasks or ctx is done.
func (b *Builder) Count(ctx context.Context, at Place) error {
	if b.seen++; b.seen > b.Options.Limits.Rows {
		return at.problem("", "more than %d tasks", b.Options.Limits.Rows)
	}
	return context.Cause(ctx)
}

// Reject records what is wrong with a task, which then gets no row. When too many tasks have
// been rejected, it returns an error, which must end the import.
func (b *Builder) Reject(problems ...compiler.Problem) error {
	b.problems = append(b.problems, problems...)
	if !b.Skip && len(b.problems) >= maxProblems {
		return Place{File: b.Source}.problem("", "stopped after %d problems", len(b.problems))
	}
	return nil
}

// Note records something about a task for the operator.
func (b *Builder) Note(at Place, format string, args ...any) {
	p := at.problem("", format, args...)[0]
	p.Warning = true
	b.notes = append(b.notes, p)
}

// Add writes the row of a task, or the rows of its steps, if the task is selected. A task with a row that cannot be
// written is rejected as a whole. An error must end the import; it is errDone once there are enough tasks.
func (b *Builder) Add(ctx context.Context, at Place, rows ...Row) error {
	id := rows[0].ID
	if step := rows[0].Step; step != nil {
		id = step.Task
	}
	if !b.Wanted(at, id) {
		return nil
	}
	if err := context.Cause(ctx); err != nil {
		return err
	}
	var lines []byte
	for i := range rows {
		line, err := b.line(&rows[i])
		if err != nil {
			return b.Reject(at.problem("", "%v", err)...)
		}
		lines = append(lines, line...)
	}
	if _, err := b.out.Write(lines); err != nil {
		return err
	}
	for _, row := range rows {
		b.places = append(b.places, at)
		if row.Environment["capabilities"] != nil {
			b.powers++
		}
	}
	b.tasks++
	if b.Limit > 0 && b.tasks >= b.Limit {
		return errDone
	}
	return nil
}

// line returns a row, with its image, as a line of the pack.
func (b *Builder) line(row *Row) ([]byte, error) {
	if err := b.setImage(row); err != nil {
		return nil, err
	}
	text, err := document.Marshal(row)
	text = append(text, '\n')
	if err == nil && len(text) > compiler.MaxLine {
		err = fmt.Errorf("the row has %d bytes, more than %d", len(text), compiler.MaxLine)
	}
	return text, err
}

// problem returns one problem at the place, as an error. path is relative to p.Path.
func (p Place) problem(path, format string, args ...any) compiler.Problems {
	if path == "" {
		path = p.Path
	} else if p.Path != "" {
		path = p.Path + strings.TrimPrefix(path, "$")
	}
	return compiler.Problems{{File: p.File, Line: p.Line, Path: path, Message: fmt.Sprintf(format, args...)}}
}

func (p Place) hinted(hint, format string, args ...any) compiler.Problems {
	problems := p.problem("", format, args...)
	problems[0].Hint = hint
	return problems
}

// AddImage records an image that has to be built from a context in the pack.
func (b *Builder) AddImage(image BuiltImage) { b.images = append(b.images, image) }

// OwnImages reports whether each task has its own image.
func (b *Builder) OwnImages() bool { return strings.Contains(b.template, "{") }

// Reference returns a row's own image, from the template.
func (b *Builder) Reference(names map[string]string) (string, error) {
	var pairs []string
	for name, value := range names {
		pairs = append(pairs, "{"+name+"}", value)
	}
	ref := strings.NewReplacer(pairs...).Replace(b.template)
	if strings.ContainsAny(ref, "{}") {
		return "", fmt.Errorf("image template %q: a row of this format has the names %s", b.template, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	return ref, nil
}

// setImage sets the row's image from the template, unless the task or the manifest names one.
func (b *Builder) setImage(row *Row) error {
	if _, given := row.Environment["image"].(string); given || !b.perRow {
		return nil
	}
	ref, err := b.Reference(row.Names)
	if row.Environment == nil {
		row.Environment = map[string]any{}
	}
	row.Environment["image"] = ref
	return err
}
