package pack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// references say which images tasks have.
type references struct {
	template string // of references: the operator's or, if there is none, the format's
	perRow   bool   // rows name images: their own or, if the import does not write the manifest, the operator's
}

// OwnImages reports whether each task has its own image.
func (r references) OwnImages() bool { return strings.Contains(r.template, "{") }

// Reference returns a row's own image, from the template.
func (r references) Reference(names map[string]string) (string, error) {
	var pairs []string
	for name, value := range names {
		pairs = append(pairs, "{"+name+"}", value)
	}
	ref := strings.NewReplacer(pairs...).Replace(r.template)
	if strings.ContainsAny(ref, "{}") {
		return "", fmt.Errorf("image template %q: a row of this format has the names %s", r.template, strings.Join(slices.Sorted(maps.Keys(names)), ", "))
	}
	return ref, nil
}

// set sets the row's image from the template, unless the task or the manifest names one.
func (r references) set(row *Row) error {
	if _, given := row.Environment["image"].(string); given || !r.perRow {
		return nil
	}
	ref, err := r.Reference(row.Names)
	if err != nil {
		return err
	}
	if row.Environment == nil {
		row.Environment = map[string]any{}
	}
	row.Environment["image"] = ref
	return nil
}
