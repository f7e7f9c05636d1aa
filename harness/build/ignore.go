package build

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/moby/patternmatcher"
	"github.com/moby/patternmatcher/ignorefile"
)

// tree is a directory that a COPY reads, without what is ignored there.
type tree struct {
	*os.Root
	ignored *patternmatcher.PatternMatcher // nil for nothing
}

// without returns the tree without what the patterns match, too.
func (t tree) without(patterns []string) (_ tree, err error) {
	if len(patterns) == 0 {
		return t, nil
	}
	var all []string
	if t.ignored != nil {
		for _, p := range t.ignored.Patterns() {
			if p.Exclusion() {
				all = append(all, "!"+p.String())
			} else {
				all = append(all, p.String())
			}
		}
	}
	t.ignored, err = patternmatcher.New(append(all, patterns...))
	return t, err
}

// skip reports whether a file or directory is left out; whole says that nothing below it is kept.
func (t tree) skip(name string) (skip, whole bool, err error) {
	if t.ignored == nil || name == "." {
		return false, false, nil
	}
	skip, err = t.ignored.MatchesOrParentMatches(filepath.FromSlash(name))
	return skip, skip && !t.ignored.Exclusions(), err
}

// openContext opens a build context without what its ignore file names. The ignore file is the
// Dockerfile's own or, if there is none, .dockerignore.
func openContext(dir, file string) (tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return tree{}, err
	}
	context := tree{Root: root}
	for _, name := range []string{file + ".dockerignore", ".dockerignore"} {
		f, err := root.Open(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		var patterns []string
		if err == nil {
			patterns, err = ignorefile.ReadAll(f)
			err = errors.Join(err, f.Close())
		}
		if err == nil {
			context, err = context.without(patterns)
		}
		if err != nil {
			return tree{}, errors.Join(Fault{err}, root.Close())
		}
		break
	}
	return context, nil
}
