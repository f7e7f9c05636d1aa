package pack

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// references say which images tasks have.
type references struct {
	template string                                                // of references: the operator's or, if there is none, the format's
	perRow   bool                                                  // rows name images: their own or, if the import does not write the manifest, the operator's
	resolve  func(ctx context.Context, ref string) (string, error) // see Options.Pinned
	pinned   map[string]string                                     // by the reference without a digest
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

// set sets the row's image from the template, unless the task or the manifest names
// one, and pins an image that the row names.
func (r references) set(ctx context.Context, row *Row) error {
	ref, given := row.Environment["image"].(string)
	if !given && !r.perRow {
		return nil
	}
	var err error
	if !given {
		ref, err = r.Reference(row.Names)
	}
	if err == nil {
		ref, err = r.pin(ctx, ref)
	}
	if err != nil {
		return err
	}
	if row.Environment == nil {
		row.Environment = map[string]any{}
	}
	row.Environment["image"] = ref
	return nil
}

func (r references) pin(ctx context.Context, ref string) (string, error) {
	if r.resolve == nil || strings.Contains(ref, "@") {
		return ref, nil
	}
	if r.pinned[ref] == "" {
		pinned, err := r.resolve(ctx, ref)
		if err != nil {
			return "", err
		}
		r.pinned[ref] = pinned
	}
	return r.pinned[ref], nil
}
