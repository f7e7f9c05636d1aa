package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/userns"
)

// TestFindGVisor: runsc gets all its flags or is not used, and where it is missing, the error names the package. Without root
// it is not even looked for.
func TestFindGVisor(t *testing.T) {
	for name, tt := range map[string]struct{ program, err string }{
		"missing":      {"", "install the package runsc"},
		"knows all":    {"echo runsc version 2023", ""},
		"too old":      {`case "$*" in *overlay2*) exit 2;; esac; echo runsc version 2022`, "needs a runsc of 2023 or later"},
		"cannot start": {`case "$*" in *oci-seccomp*) kill -9 $$;; esac; echo runsc version 2023`, "signal: killed"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("PATH", dir)
			if tt.program != "" {
				must.Do(t, os.WriteFile(filepath.Join(dir, runsc), []byte("#!/bin/sh\n"+tt.program+"\n"), 0o755))
			}
			if userns.Inside() {
				tt.err = "cannot be used without root: runsc makes"
			}
			r, err := findGVisor(t.Context())
			if tt.err == "" && (err != nil || len(r.flags) != len(runscFlags()) || r.version != "runsc version 2023") {
				t.Errorf("%+v, %v", r, err)
			}
			if tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)) {
				t.Errorf("%+v, %v, want %s", r, err, tt.err)
			}
		})
	}
}
