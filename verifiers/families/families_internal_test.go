package families

import (
	"testing"

	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/compiler/schema"
	"github.com/securebench/sbench/internal/test/must"
)

// TestFamilies: every family has a verifier and references, unless its rows may hold anything.
func TestFamilies(t *testing.T) {
	var want, got []string
	for _, f := range family.All() {
		if f.Input.Unknown == schema.Refuse {
			want = append(want, f.Name)
		}
	}
	for _, f := range registry() {
		got = append(got, f.Name)
		if f.Verify == nil || (f.Reference == nil) == (f.Solution == nil) {
			t.Errorf("%s is incomplete", f.Name)
		}
	}
	must.Equal(t, want, got)
}
