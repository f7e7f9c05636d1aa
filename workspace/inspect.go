package workspace

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/hidden"
)

// Inspection shows what every component sees of a task, file by file. Only with
// InspectOptions.Reveal does it contain values that are not public.
type Inspection struct {
	TaskID     string              `json:"task_id"`
	Family     string              `json:"family"`
	Line       int                 `json:"line"` // of the task's row in the pack
	Candidate  string              `json:"candidate_kind"`
	Digests    compiler.Digests    `json:"digests"`
	Components []ComponentFiles    `json:"components"`         // agent, test_sandbox and evaluator
	Problems   []string            `json:"problems,omitempty"` // such as missing files
	Metadata   map[string]any      `json:"metadata"`           // for people and records, never for a harness
	Summary    []InspectedResource `json:"resources"`          // every value of the task
	Network    string              `json:"network,omitempty"`  // what "network: none" means for the task; "" for any other task
}

// ComponentFiles are the files that one component sees.
type ComponentFiles struct {
	Component compiler.Component `json:"component"`
	Files     []InspectedFile    `json:"files"`
}

// InspectedFile is one file.
type InspectedFile struct {
	// Path is relative to the workspace, or absolute for a file outside it.
	Path     string        `json:"path"`
	Lane     compiler.Lane `json:"lane"`
	Resource string        `json:"resource"` // name of the value or file; "task" for the task file
	ReadOnly bool          `json:"read_only,omitempty"`
	// Size is in bytes; 0 for a redacted value, because its length could help to guess an answer.
	Size    int64  `json:"size,omitempty"`
	Source  string `json:"source,omitempty"`  // path of a file of the pack, relative to its root
	Content string `json:"content,omitempty"` // a value's JSON, or "<redacted>"; "" for a file of the pack
}

// InspectedResource is one value of the task and who sees it.
type InspectedResource struct {
	Name  string        `json:"name"`
	Lane  compiler.Lane `json:"lane"`
	Value string        `json:"value"` // JSON, or "<redacted>"
	// SeenBy are the components that see the value. A result always contains its name.
	SeenBy []compiler.Component `json:"seen_by"`
}

// InspectOptions say what to show.
type InspectOptions struct {
	Reveal   bool   // show values that are not public
	TaskFile string // the harness's task file; task.json if empty
	Provider bool   // the harness has a provider
}

// Inspect returns what agent, test_sandbox and evaluator see of a task. Missing files are Problems of the inspection,
// not errors.
func Inspect(t *compiler.Task, p *compiler.Pack, opts InspectOptions) (Inspection, error) {
	if t.Stepped() {
		var steps []string
		for _, s := range t.Steps() {
			steps = append(steps, s.ID())
		}
		return Inspection{}, fmt.Errorf("%w: %q has steps: name one of %s", ErrNoTask, t.ID(), strings.Join(steps, ", "))
	}
	in := inspector{opts: opts, pack: p}
	payload := t.AgentView().Payload()
	taskFile := InspectedFile{
		Path: cmp.Or(opts.TaskFile, "task.json"), Lane: compiler.Public, Resource: "task", Size: int64(len(payload)), Content: string(payload),
	}
	checker := in.files(checkerPlan(t, p))
	for i := range checker {
		checker[i].Path = path.Join(t.Checker().Mount, checker[i].Path)
	}
	agent := append([]InspectedFile{taskFile}, in.files(agentPlan(t.AgentView(), p))...)
	sandbox := append(in.files(resourcePlan(t, p, compiler.TestSandbox)), checker...)
	result := Inspection{
		TaskID: t.ID(), Family: t.Family().Name, Line: t.Line(), Candidate: string(t.Family().CandidateKind),
		Components: []ComponentFiles{
			{compiler.Agent, agent},
			{compiler.TestSandbox, sandbox},
			{compiler.Evaluator, in.files(resourcePlan(t, p, compiler.Evaluator))},
		},
		Metadata: t.Metadata(),
		Summary:  in.resources(t),
	}
	var err error
	if result.Digests, err = t.Digests(); err != nil {
		in.problem(err)
	}
	switch {
	case !t.Environment().NetworkNone:
	case opts.Provider:
		result.Network = "none except the agent's requests to its provider, through the relay"
	default:
		result.Network = "none: nothing leaves the harness's sandbox"
	}
	result.Problems = in.problems
	return result, nil
}

type inspector struct {
	opts     InspectOptions
	pack     *compiler.Pack
	problems []string
}

func (in *inspector) problem(err error) {
	if text := err.Error(); !slices.Contains(in.problems, text) {
		in.problems = append(in.problems, text)
	}
}

func (in *inspector) files(plan Plan) []InspectedFile {
	var files []InspectedFile
	for _, e := range plan.Entries {
		file := InspectedFile{
			Path: e.Dest, Lane: e.Lane, Resource: e.Name, Size: e.Source.Size, ReadOnly: e.ReadOnly, Source: e.Source.Path,
		}
		if e.Source.Root == "" {
			file.Content = in.show(e.Lane, string(e.Source.Data.Reveal()))
			if file.Content == hidden.Redacted {
				file.Size = 0
			}
			files = append(files, file)
			continue
		}
		err := cmp.Or(e.withhold(in.pack), e.walk(func(rel string, info fs.FileInfo) {
			file.Path, file.Source, file.Size = path.Join(e.Dest, rel), path.Join(e.Source.Path, rel), info.Size()
			files = append(files, file)
		}))
		if err != nil {
			in.problem(fmt.Errorf("%s: %w", e.Name, err))
		}
	}
	slices.SortStableFunc(files, func(a, b InspectedFile) int { return cmp.Compare(a.Path, b.Path) })
	return files
}

func (in *inspector) show(lane compiler.Lane, content string) string {
	if lane != compiler.Public && !in.opts.Reveal {
		return hidden.Redacted
	}
	return content
}

func (in *inspector) resources(t *compiler.Task) []InspectedResource {
	values := map[string]string{}
	for _, r := range append(t.Resources(compiler.TestSandbox), t.Resources(compiler.Evaluator)...) {
		values[r.Name] = string(r.Value.Reveal())
	}
	var all []InspectedResource
	for _, s := range t.ResourceSummary() {
		r := InspectedResource{Name: s.Name, Lane: s.Lane, Value: string(s.Value)}
		if s.Lane != compiler.Public {
			r.Value = in.show(s.Lane, values[s.Name])
		}
		for _, c := range []compiler.Component{compiler.Agent, compiler.TestSandbox, compiler.Evaluator, compiler.Result} {
			if c.Sees(s.Lane) {
				r.SeenBy = append(r.SeenBy, c)
			}
		}
		all = append(all, r)
	}
	return all
}

// Write writes the inspection as text.
func (in Inspection) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "task %q, %s, line %d, candidate: %s\n\n", in.TaskID, in.Family, in.Line, in.Candidate)
	in.writeFiles(&b)
	b.WriteString("\nvalues\n")
	for _, r := range in.Summary {
		fmt.Fprintf(&b, "\n%s (%s)\n    %s\n", r.Name, r.Lane, strings.ReplaceAll(strings.TrimRight(r.Value, "\n"), "\n", "\n    "))
	}
	fmt.Fprintf(&b, "\nrow        %s\nevaluation %s\nassets     %s\n", in.Digests.Row, in.Digests.Evaluation, in.Digests.Assets)
	for _, problem := range in.Problems {
		fmt.Fprintf(&b, "\nproblem: %s\n", problem)
	}
	if in.Network != "" {
		fmt.Fprintf(&b, "\nnetwork    %s\n", in.Network)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFiles writes a table with a line for each file and a column for each component. The column of the
// result shows what a record contains of the file's resource.
func (in Inspection) writeFiles(b *strings.Builder) {
	seen := map[string][]compiler.Component{}
	var files []InspectedFile
	for _, c := range in.Components {
		for _, f := range c.Files {
			if seen[f.Path] == nil {
				files = append(files, f)
			}
			seen[f.Path] = append(seen[f.Path], c.Component)
		}
	}
	t := tabwriter.NewWriter(b, 0, 8, 2, ' ', 0) // a strings.Builder never returns an error
	_, _ = fmt.Fprintln(t, "lane\tfile\tbytes\tagent\ttest_sandbox\tevaluator\tresult")
	for _, f := range files {
		size, record := fmt.Sprint(f.Size), "redacted"
		if f.Content == hidden.Redacted {
			size = "-"
		}
		switch {
		case f.Resource == "task":
			record = "-"
		case f.Lane == compiler.Public:
			record = "value"
		}
		_, _ = fmt.Fprintf(t, "%s\t%s\t%s", f.Lane, f.Path, size)
		for _, c := range in.Components {
			mark := "yes"
			switch {
			case !slices.Contains(seen[f.Path], c.Component):
				mark = "-"
			case f.ReadOnly:
				mark = "read-only"
			}
			_, _ = fmt.Fprintf(t, "\t%s", mark)
		}
		_, _ = fmt.Fprintf(t, "\t%s\n", record)
	}
	_ = t.Flush()
}

// ErrNoTask means that a pack has no task with the given id.
var ErrNoTask = errors.New("no such task")

// FindTask returns the task with this id. It skips invalid rows. If no valid row has the id, the
// error matches ErrNoTask and contains the problems of the skipped rows, since the task may be
// among them.
func FindTask(p *compiler.Pack, id string) (*compiler.Task, error) {
	var problems compiler.Problems
	near := ""
	for t, err := range p.Tasks() {
		var row compiler.Problems
		if t != nil {
			for _, s := range t.Steps() {
				if s.ID() == id {
					return s, nil
				}
			}
		}
		switch {
		case t != nil && t.ID() == id:
			return t, nil
		case t != nil && strings.HasSuffix(t.ID(), "/"+id):
			near = fmt.Sprintf(" (did you mean %q?)", t.ID())
		case errors.As(err, &row):
			problems = append(problems, row[:min(len(row), 100-len(problems))]...)
		case err != nil:
			return nil, err
		}
	}
	err := fmt.Errorf("%w: %q%s", ErrNoTask, id, near)
	if len(problems) > 0 {
		err = fmt.Errorf("%w\n%w", err, problems)
	}
	return nil, err
}
