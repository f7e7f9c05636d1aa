package testerfile

import (
	"path/filepath"
	"regexp"
	"slices"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// A Variant is a configuration in the matrix of a tester file: the file with the settings applied. It
// runs in a directory of its own.
type Variant struct {
	Name     string
	Settings []Setting
}

func matrixSchema() *schema.Schema {
	const doc = "Variants of this file, by name, each with other values of some keys, such as harness.config.model. They are run one after the other, in subdirectories of run.output_dir."
	s := schema.Map(doc, schema.Open("Values of keys, by path."))
	s.Object.Named = regexp.MustCompile(`^[A-Za-z0-9_-][A-Za-z0-9._-]*$`).MatchString
	s.Object.Misnamed = "names no directory: letters, digits and . _ - do"
	return schema.Nullable(s)
}

// Variants returns the variants of the tester file, in their order. A setting of the file that a variant has, too, is a
// problem of [LoadVariant].
func (t *File) Variants() (all []Variant) {
	for name, values := range t.doc.Root().Get("matrix").Fields() {
		v := Variant{Name: name.Text()}
		for key, value := range values.Fields() {
			v.Settings = append(v.Settings, Setting{Key: key.Text(), Value: value.Plain()})
		}
		all = append(all, v)
	}
	return all
}

// LoadVariant is Load for a variant. It adds the variant's name to the run's id, and as a
// subdirectory to the output directory.
func LoadVariant(file string, agents []AgentType, v Variant, settings ...Setting) (*File, document.Problems, error) {
	t, warnings, err := Load(file, agents, slices.Concat(settings, v.Settings)...)
	if err != nil {
		problems := document.ProblemsOf(file, err)
		for i := range problems {
			if problems[i].File == settingsFile {
				problems[i].File = file
			}
			problems[i].Path = "$.matrix." + v.Name + ": " + problems[i].Path
		}
		return nil, nil, problems
	}
	t.Run.ID, t.Run.OutputDir = t.Run.ID+"-"+v.Name, filepath.Join(t.Run.OutputDir, v.Name)
	return t, warnings, nil
}
