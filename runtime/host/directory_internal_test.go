package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestStateDirectory: a directory in which other users can replace something is refused.
func TestStateDirectory(t *testing.T) {
	for mode, good := range map[os.FileMode]bool{0o700: true, 0o711: true, 0o755: true, 0o775: false, 0o777: false, 0o777 | os.ModeSticky: false} {
		dir := filepath.Join(t.TempDir(), "state")
		must.Do(t, os.Mkdir(dir, 0o700))
		must.Do(t, os.Chmod(dir, mode))
		if _, err := stateDirectory(dir); (err == nil) != good || !good && !strings.Contains(err.Error(), "): chmod go-w "+dir+", or ") {
			t.Errorf("%v: %v", mode, err)
		}
	}
	_, err := stateDirectory(filepath.Join(t.TempDir(), "new"))
	must.Report(t, err)
}
