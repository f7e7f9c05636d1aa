// Package trustedgit contains the shell scripts that use git inside sandboxes in which no
// agent has run. They keep git's own data on a volume at /sbench.
package trustedgit

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// Paths inside a sandbox.
const (
	Dest    = "/opt/sbench/git" // where the scripts are mounted
	Scratch = "/sbench"         // where the scripts write
)

//go:embed *.sh
var programs embed.FS

// Stage writes the scripts into the new host folder dir, for mounting at Dest.
func Stage(dir string) error {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	entries, err := programs.ReadDir(".")
	if err != nil {
		return err
	}
	for _, e := range entries {
		text, err := programs.ReadFile(e.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, e.Name()), text, 0o644); err != nil {
			return fmt.Errorf("stage %s: %w", e.Name(), err)
		}
	}
	return nil
}
