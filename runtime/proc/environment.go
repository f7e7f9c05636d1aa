package proc

import (
	"os"
	"slices"
	"strings"
)

// Environment returns the variables that every program behind the sandboxes needs, and those
// named: others may hold credentials.
func Environment(more ...string) []string {
	kept := append([]string{"PATH", "HOME", "LANG", "XDG_RUNTIME_DIR"}, more...)
	return slices.DeleteFunc(os.Environ(), func(e string) bool {
		name, _, _ := strings.Cut(e, "=")
		return !slices.Contains(kept, name)
	})
}
