// Package examples has the example packs that the program writes.
package examples

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed split starter
var packs embed.FS

// A Pack is an example with a tester file.
type Pack struct {
	Files []string // relative
	files fs.FS
}

// Starter returns a small pack to start from: with plain checkers or, if split is true, with split checks.
func Starter(split bool) (p Pack, err error) {
	name := "starter"
	if split {
		name = "split"
	}
	if p.files, err = fs.Sub(packs, name); err != nil {
		return p, err
	}
	err = fs.WalkDir(p.files, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			p.Files = append(p.Files, name)
		}
		return err
	})
	return p, err
}

// Fits returns an error if a file of the pack is in the directory already.
func (p Pack) Fits(dir string) error {
	for _, name := range p.Files {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, fs.ErrNotExist) {
			return errors.Join(fmt.Errorf("%s is there already: name another directory", filepath.Join(dir, name)), err)
		}
	}
	return nil
}

// Write writes the pack into the directory, with the image for its tasks.
func (p Pack) Write(dir, image string) error {
	for _, name := range p.Files {
		data, err := fs.ReadFile(p.files, name)
		if err != nil {
			return err
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = f.WriteString(strings.ReplaceAll(string(data), "${IMAGE}", image))
		if err = errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	return nil
}
