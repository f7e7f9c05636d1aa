package pack

import (
	"encoding/json"
	"fmt"
	"path"
	"path/filepath"

	"github.com/securebench/sbench/compiler"
)

// maxProvenance bounds an import's record in bytes.
const maxProvenance = 64 << 20

// Images returns the images to build from contexts in the pack in the directory dir. It
// reads them from the record of the import, and checks that the contexts are inside the
// pack. An error holds compiler.Problems.
func Images(dir string) ([]BuiltImage, error) {
	name := filepath.Join(dir, provenanceFile)
	at := Place{File: name}
	text, err := readBounded(name, maxProvenance)
	if err != nil {
		return nil, at.problem("", "%v", compiler.Bare(err))
	}
	var p struct {
		Images []BuiltImage `json:"images"`
	}
	if err := json.Unmarshal(text, &p); err != nil {
		return nil, at.problem("", "%v", err)
	}
	var problems compiler.Problems
	for i, image := range p.Images {
		clean, err := compiler.ParsePath(image.Context)
		if err != nil || path.Dir(clean) != ImagesDir || image.Ref == "" {
			problems = append(problems, at.problem(fmt.Sprintf("$.images[%d]", i), "no context below %s with a reference", ImagesDir)...)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	return p.Images, nil
}
