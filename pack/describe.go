package pack

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
)

// describe writes the rest of the pack: provenance, manifest and tester files. A pack
// that is filled keeps its own manifest and tester files.
func (b *Builder) describe(ctx context.Context) error {
	if err := b.provenance(); err != nil {
		return err
	}
	if b.Fill {
		return b.keep()
	}
	manifest, err := b.manifest(ctx)
	if err != nil {
		return err
	}
	if err := b.write(manifestFile, manifest, false); err != nil {
		return err
	}
	config := "  config:\n    # Put your agent here. It finds its task in task.json, and leaves " + candidateOf(b.format.Family) + ".\n    command: \"true\"\n"
	err = b.tester(compiler.HarnessCommand, config)
	for _, a := range b.Agents {
		err = errors.Join(err, b.tester(a.Name, "  env: ["+a.Key+"]\n  config:\n    model: "+a.Model+"\n"))
	}
	return err
}

// keep copies the files of the directory that is filled, except an old provenance.
func (b *Builder) keep() error {
	entries, err := os.ReadDir(b.Out)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == provenanceFile {
			continue
		}
		text, err := readBounded(filepath.Join(b.Out, e.Name()), b.Limits.File)
		if err != nil {
			return compiler.Problems{{File: filepath.Join(b.Out, e.Name()), Message: plain(err).Error()}}
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if err := b.write(e.Name(), text, info.Mode()&0o100 != 0); err != nil {
			return err
		}
	}
	return nil
}

// manifest returns the manifest, YAML whose values are written as JSON, which is
// valid YAML.
func (b *Builder) manifest(ctx context.Context) ([]byte, error) {
	environment := map[string]any{}
	maps.Copy(environment, b.format.Environment)
	if !b.perRow() {
		image, err := b.pin(ctx, b.template())
		if err != nil {
			return nil, compiler.Problems{{File: b.Source, Message: err.Error()}}
		}
		environment["image"] = image
	}
	text := fmt.Sprintf("id: %s\nversion: 1\ndefaults:\n  family: %s\n", inYAML(b.ID), inYAML(b.format.Family))
	if len(environment) > 0 {
		text += "  environment:\n"
	}
	for _, key := range sortedKeys(environment) {
		text += "    " + key + ": " + inYAML(environment[key]) + "\n"
	}
	return []byte(text), nil
}

// inYAML returns a string or number as JSON, which is valid YAML.
func inYAML(v any) string {
	text, err := marshal(v)
	if err != nil {
		panic(err) // impossible for strings and numbers
	}
	return strings.TrimSpace(string(text))
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// provenance writes what the pack was made from. It contains no time and no path of
// the host, so that it is the same everywhere.
func (b *Builder) provenance() error {
	left := make([]string, 0, len(b.problems)+len(b.leave))
	for _, p := range b.problems {
		left = append(left, b.relative(p.File, p.Line, p.Path)+": "+p.Message)
	}
	for at := range b.leave {
		left = append(left, b.relative(at.File, at.Line, at.Path)+": validation warns of it")
	}
	slices.Sort(left)
	text, err := json.MarshalIndent(map[string]any{
		"format": b.format.Name, "importer": 1, "id": b.ID, "options": b.Options,
		"sources": append([]sourceFile{}, b.sources...), "rows": len(b.places), "left_out": left,
		"images": append([]BuiltImage{}, b.images...), "pinned": b.pinned,
	}, "", "  ")
	if err != nil {
		return err
	}
	return b.write(provenanceFile, append(text, '\n'), false)
}

// relative names a place by its path relative to the source.
func (b *Builder) relative(file string, line int, path string) string {
	name := filepath.Base(file)
	if rel, err := filepath.Rel(b.Source, file); err == nil && filepath.IsLocal(rel) && rel != "." {
		name = rel
	}
	if line > 0 {
		name += fmt.Sprintf(":%d", line)
	}
	return strings.TrimSpace(name + " " + path)
}

// tester writes a tester file for one type of harness.
func (b *Builder) tester(kind, config string) error {
	name := strings.ReplaceAll(kind, "_", "-")
	run := b.ID + "-" + name
	head := fmt.Sprintf("schema_version: \"0.2\"\nrun:\n  id: %s\n  output_dir: %s\nbenchmark:\n  manifest: %s\n  tasks: %s\nharness:\n  type: %s\n",
		inYAML(run), inYAML("runs/"+run), manifestFile, tasksFile, kind)
	return b.write("tester-"+name+".yaml", fmt.Appendf(nil, "%s%s    timeout_seconds: %d\n", head, config, b.format.Timeout), false)
}

// candidateOf says what a command has to produce, and where.
func candidateOf(family compiler.Family) string {
	switch family {
	case compiler.CodeCompletion:
		return "its code in candidate.py"
	case compiler.RepoPatch:
		return "its changes in the repository"
	case compiler.TerminalTask:
		return "its work in the working directory"
	}
	return "its answer on standard output"
}
