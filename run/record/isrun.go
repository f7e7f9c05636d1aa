package record

import (
	"fmt"
	"os"
	"path/filepath"
)

// IsRun reports whether a path is a run's output directory, with a manifest or records. It is an
// error if the path is a file of a run, or a directory of several runs.
func IsRun(source string) (bool, error) {
	has := func(parts ...string) bool {
		_, err := os.Lstat(filepath.Join(parts...))
		return err == nil
	}
	info, err := os.Stat(source)
	switch {
	case err != nil:
		return false, err
	case !info.IsDir():
		base := filepath.Base(source)
		if (base == RecordsFile || base == ManifestFile) && has(filepath.Dir(source), ManifestFile) {
			return false, fmt.Errorf("%q is a file of a run: name the run's directory", source)
		}
		return false, nil
	case has(source, ManifestFile):
		return true, nil
	case has(source, RecordsFile): // a run of SecureBench
		return false, nil
	}
	entries, err := os.ReadDir(source)
	for _, e := range entries {
		if e.IsDir() && has(source, e.Name(), ManifestFile) && has(source, e.Name(), RecordsFile) {
			return false, fmt.Errorf("%q holds the runs of a matrix or shards, such as %q: name one of them (sbench merge puts shards together)", source, e.Name())
		}
	}
	return false, err
}
