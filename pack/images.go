package pack

import (
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/workspace/foreign"
)

// maxProvenance bounds an import's record in bytes.
const maxProvenance = 64 << 20

// provenance is what is read of provenance.json, the record of an import.
type provenance struct {
	Images []BuiltImage `json:"images"`
	// StandIn is set in the examples of public benchmarks, which have rows of sbench's own.
	StandIn string `json:"stand_in"`
}

func readProvenance(dir string) (p provenance, err error) {
	name := filepath.Join(dir, provenanceFile)
	text, err := foreign.ReadPath(name, maxProvenance)
	if err == nil {
		err = json.Unmarshal(text, &p)
	}
	if err != nil {
		return p, Place{File: name}.problem("", "%v", document.Bare(err))
	}
	return p, nil
}

// StandIn returns the command that puts a public benchmark's rows in place of the stand-ins in the pack
// in the directory dir; "" if the rows are no stand-ins.
func StandIn(dir string) string {
	p, err := readProvenance(dir)
	if err != nil {
		return "" // no import made the pack
	}
	return p.StandIn
}

// Images returns the images to build from contexts in the pack in the directory dir. It
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
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return p.Images, nil
}
