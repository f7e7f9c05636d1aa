package harbor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/pack"
)

// Detect returns the format of the tasks in a directory, and the name of the file that marks a task of this format. The
// first task decides.
func Detect(dir string) (format pack.Format, marker string, err error) {
	known := markers()
	err = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil || known[d.Name()] == "" {
			return err
		}
		marker = d.Name()
		return fs.SkipAll
	})
	if marker == "" {
		return format, "", errors.Join(err, fmt.Errorf("%q holds neither a manifest.yaml nor tasks with a task.toml (Harbor) or task.yaml (Terminal-Bench)", dir))
	}
	format, err = pack.Named(Formats(), known[marker])
	return format, marker, err
}

// TaskAt returns the id of the task to which a file of the source belongs, and the file's path in the task.
func TaskAt(source, file, marker string) (id, rel string) {
	at := source
	for dir := file; len(dir) > len(source); dir = filepath.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(dir, marker)); err == nil {
			at = dir
			break
		}
	}
	id, _ = filepath.Rel(source, at)
	rel, _ = filepath.Rel(at, file)
	if id == "." {
		id = filepath.Base(source)
	}
	return filepath.ToSlash(id), filepath.ToSlash(rel)
}
