package pack

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/workspace/foreign"
)

// describe writes the rest of the pack: provenance, manifest and tester files. With Fill,
// the pack keeps its own manifest and tester files.
func (b *Builder) describe() error {
	if err := b.provenance(); err != nil {
		return err
	}
	if b.Fill {
		return b.keepOwnFiles()
	}
	manifest, err := b.manifest()
	if err != nil {
		return err
	}
	if err := b.Write(manifestFile, manifest, false); err != nil {
		return err
	}
	comment := "# Put your agent into harness.config.command. It finds its task in the file $SBENCH_TASK_FILE, and leaves " + candidateOf(b.Format.Family.CandidateKind) + ".\n"
	err = b.tester(comment, harnessSection{Type: testerfile.HarnessCommand, Config: map[string]any{"command": "true"}})
	for _, a := range b.Agents {
		if len(a.Credentials) == 0 { // an agent that a file of the operator's describes
			continue
		}
		err = errors.Join(err, b.tester("", harnessSection{a.Name, []string{a.Credentials[0].Name}, map[string]any{"model": a.Model}}))
	}
	return err
}

// keepOwnFiles copies the files of the directory to fill, except what an earlier import brought.
func (b *Builder) keepOwnFiles() error {
	entries, err := os.ReadDir(b.Out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if fromImport(e.Name()) {
			continue
		}
		name := filepath.Join(b.Out, e.Name())
		text, err := foreign.ReadPath(name, b.Limits.File)
		if err != nil {
			return Place{File: name}.problem("", "%v", document.Bare(err))
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := b.Write(e.Name(), text, info.Mode()&0o100 != 0); err != nil {
			return err
		}
	}
	return nil
}

func (b *Builder) manifest() ([]byte, error) {
	environment := map[string]any{"timeout_seconds": b.Format.Timeout}
	maps.Copy(environment, b.Format.Environment)
	if !b.perRow {
		environment["image"] = b.template
	}
	return yaml.Marshal(map[string]any{"id": b.ID, "version": 1, "defaults": map[string]any{"family": b.Format.Family.Name, "environment": environment}})
}

// provenance writes what the pack was made from. It contains no time and no host path, so it
// is the same everywhere.
func (b *Builder) provenance() error {
	left := make([]string, 0, len(b.problems)+len(b.leave))
	for _, p := range b.problems {
		left = append(left, relative(b.Source, p.File, p.Line, p.Path)+": "+p.Message)
	}
	for at := range b.leave {
		left = append(left, relative(b.Source, at.File, at.Line, at.Path)+": validation warns of it")
	}
	slices.Sort(left)
	options := map[string]any{}
	for _, part := range []any{b.Format.Options, b.Options} {
		text, err := json.Marshal(part)
		if err == nil {
			err = json.Unmarshal(text, &options)
		}
		if err != nil {
			return err
		}
	}
	text, err := json.MarshalIndent(map[string]any{
		"format": b.Format.Name, "importer": 1, "id": b.ID, "options": options,
		"sources": append([]sourceFile{}, b.sources...), "rows": len(b.places), "left_out": left,
		"images": append([]BuiltImage{}, b.images...),
	}, "", "  ")
	if err != nil {
		return err
	}
	return b.Write(provenanceFile, append(text, '\n'), false)
}

// relative names a place in the source.
func relative(source, file string, line int, path string) string {
	name := filepath.Base(file)
	if rel, err := filepath.Rel(source, file); err == nil && filepath.IsLocal(rel) && rel != "." {
		name = rel
	}
	if line > 0 {
		name += fmt.Sprintf(":%d", line)
	}
	return strings.TrimSpace(name + " " + path)
}

type harnessSection struct {
	Type   string         `json:"type"`
	Env    []string       `json:"env,omitempty"`
	Config map[string]any `json:"config"`
}

func (b *Builder) tester(comment string, h harnessSection) error {
	name := strings.ReplaceAll(h.Type, "_", "-")
	h.Config["timeout_seconds"] = b.Format.Timeout
	sections := map[string]any{
		"schema_version": "0.2",
		"run":            map[string]string{"id": b.ID + "-" + name, "output_dir": "runs/" + b.ID + "-" + name},
		"benchmark":      map[string]string{"manifest": manifestFile, "tasks": tasksFile},
		"harness":        h,
	}
	if b.powers > 0 {
		sections["runtime"] = map[string]bool{"allow_capabilities": true}
	}
	text, err := yaml.Marshal(sections)
	if err != nil {
		return err
	}
	return b.Write("tester-"+name+".yaml", append([]byte(comment), text...), false)
}

// candidateOf says what a command has to produce, and where.
func candidateOf(kind compiler.CandidateKind) string {
	switch kind {
	case compiler.CandidateCode:
		return "its code in candidate.py"
	case compiler.CandidatePatch:
		return "its changes in the repository"
	case compiler.CandidateWorkspace:
		return "its work in the working directory"
	}
	return "its answer on standard output"
}

const maxProvenance = 64 << 20

// provenance is what is read of provenance.json, the record of an import.
type provenance struct {
	Images []BuiltImage `json:"images"`
	// StandIn is set in the examples of public benchmarks, which have rows of sbench's own: a command that lacks --out.
	StandIn string `json:"stand_in"`
}

func readProvenance(dir string) (p provenance, err error) {
	name := filepath.Join(dir, provenanceFile)
	text, err := foreign.ReadPath(name, maxProvenance)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = errors.New("no import made this pack (build a directory with a Dockerfile: sbench image build DIRECTORY --as NAME)")
	case err == nil:
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, Place{File: name}.problem("", "%v", document.Bare(err))
	}
	return p, nil
}

// StandIn returns the command, without its flag --out, that puts a public benchmark's rows in place of the stand-ins
// in the pack in the directory dir; "" if the rows are no stand-ins.
func StandIn(dir string) string {
	p, err := readProvenance(dir)
	if err != nil {
		return "" // no import made the pack
	}
	return p.StandIn
}

// Images returns the images to build from contexts in the pack in the directory dir, which their contexts begin with. It
// reads them from the record of the import, and checks that the contexts are inside the
// pack. An error holds compiler.Problems.
func Images(dir string) ([]BuiltImage, error) {
	at := Place{File: filepath.Join(dir, provenanceFile)}
	p, err := readProvenance(dir)
	if err != nil {
		return nil, err
	}
	var problems compiler.Problems
	for i, image := range p.Images {
		clean, err := paths.Parse(image.Context)
		if err != nil || path.Dir(clean) != ImagesDir || image.Ref == "" {
			problems = append(problems, at.problem(fmt.Sprintf("$.images[%d]", i), "no context below %s with a reference", ImagesDir)...)
			continue
		}
		for _, name := range []string{ImagesDir, clean} {
			if info, err := os.Lstat(filepath.Join(dir, name)); err == nil && !info.IsDir() {
				problems = append(problems, at.problem(fmt.Sprintf("$.images[%d]", i), "%s is no directory of the pack", name)...)
			}
		}
		p.Images[i].Context = filepath.Join(dir, image.Context)
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return p.Images, nil
}
