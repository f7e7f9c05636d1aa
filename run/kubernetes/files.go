package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// ErrNoConfigMap means that files cannot be in a ConfigMap.
var ErrNoConfigMap = errors.New("cannot be in a ConfigMap")

// ReadFiles reads the sources, which are files or directories below the directory top, in lexical order. It
// leaves out *.env and .git, and the paths in never.
func ReadFiles(top string, sources, never []string) ([]File, error) {
	found := map[string]File{}
	for _, source := range sources {
		err := filepath.WalkDir(source, func(name string, d fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case strings.HasSuffix(d.Name(), ".env"), slices.Contains(never, name), d.IsDir() && d.Name() == ".git":
				if d.IsDir() {
					return fs.SkipDir
				}
				return nil
			case d.IsDir():
				return nil
			case !d.Type().IsRegular():
				return fmt.Errorf("%s is no regular file, and %w", name, ErrNoConfigMap)
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Size() > maxFiles {
				return fmt.Errorf("%s has %d bytes, and %w", name, info.Size(), ErrNoConfigMap)
			}
			within, err := filepath.Rel(top, name)
			if err != nil {
				return err
			}
			text, err := os.ReadFile(name)
			found[within] = File{Path: filepath.ToSlash(within), Text: text, Executable: info.Mode()&0o111 != 0}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	var files []File
	for _, name := range slices.Sorted(maps.Keys(found)) {
		files = append(files, found[name])
	}
	return files, nil
}
