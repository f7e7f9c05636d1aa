// Package trustedgit holds the programs that work with git inside sandboxes that
// no agent has touched. They keep git's own data on a volume at /sbench.
package trustedgit

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
)

// Dest is where sandboxes find the programs, and Scratch where the programs
// find room to write.
const (
	Dest    = "/opt/sbench/git"
	Scratch = "/sbench"
)

//go:embed *.sh
var programs embed.FS

// Stage writes the programs into a new folder dir, which is to be mounted at
// Dest.
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
