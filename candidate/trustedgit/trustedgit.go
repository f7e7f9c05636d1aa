// Package trustedgit contains the shell scripts that use git inside sandboxes in which no
// agent has run. They keep git's own data on a volume at /sbench.
package trustedgit

import (
	"embed"
	"os"
)

// Paths inside a sandbox.
const (
	Dest    = "/opt/sbench/git" // where the scripts are mounted
	Scratch = "/sbench"         // where the scripts write
)

//go:embed *.sh
var programs embed.FS

// Stage writes the scripts into the new host directory dir, for mounting at Dest.
func Stage(dir string) error { return os.CopyFS(dir, programs) }
