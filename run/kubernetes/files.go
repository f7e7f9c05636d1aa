package kubernetes

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/testerfile"
)

// TakeFiles takes the tester file, and the files that it names, into the Job, unless they are on the claim. It returns the
// path of the tester file in pods. The harness section names the files and directories in harness.
func (j *Job) TakeFiles(t *testerfile.File, harness []string) (tester string, err error) {
	sources := append(harness, t.Path, filepath.Dir(t.Benchmark.Manifest), filepath.Dir(t.Benchmark.Tasks))
	top := filepath.Dir(t.Path)
	for _, source := range sources {
		for !isWithin(source, top) {
			top = filepath.Dir(top)
		}
	}
	if tester, err = filepath.Rel(top, t.Path); err != nil {
		return "", err
	}
	if j.OnClaim != "" {
		return path.Join(resultsDir, j.OnClaim, tester), nil
	}
	if name := t.AbsolutePath(); name != "" {
		return "", fmt.Errorf("the tester file names %s, which pods do not have: name it relative to the tester file", name)
	}
	never := []string{t.Run.OutputDir}
	for _, secret := range t.Harness.Secrets {
		never = append(never, secret.File)
	}
	j.Files, err = readFiles(top, sources, never)
	return path.Join(filesDir, tester), err
}

func isWithin(name, dir string) bool {
	return name == dir || strings.HasPrefix(name, strings.TrimRight(dir, "/")+"/")
}

// ErrNoConfigMap means that files cannot be in a ConfigMap.
var ErrNoConfigMap = errors.New("cannot be in a ConfigMap")

// readFiles reads the sources, which are files or directories below the directory top, in lexical order. It
// leaves out *.env and .git, and the paths in never.
func readFiles(top string, sources, never []string) ([]File, error) {
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
