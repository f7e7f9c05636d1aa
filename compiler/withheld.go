package compiler

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"syscall"

	"github.com/securebench/sbench/compiler/paths"
)

// Withheld is a file or directory that no sandbox gets, although it lies in a directory that
// is mounted for evaluation.
type Withheld struct {
	Path string // clean, relative to Pack.EvalRoot
	By   string // what hides it, such as "$.eval.expected_state of line 3"
}

// Withheld returns the files and directories at or below name that no sandbox may get: everything that a
// field of the hidden lane refers to in any row, under every hard link, and the manifest and the rows.
// name is a file or directory below EvalRoot that is mounted for evaluation.
//
// It is an error if name itself is hidden, or WalkFiles fails. The first call reads all rows, and
// remembers a name for each hidden reference.
func (p *Pack) Withheld(name string) ([]Withheld, error) {
	hidden, err := p.hidden()
	if err != nil {
		return nil, fmt.Errorf("find hidden files: %w", err)
	}
	for above := name; above != "."; above = path.Dir(above) {
		if by := hidden.names[paths.Fold(above)]; by != "" {
			return nil, fmt.Errorf("%q is hidden: %s refers to %q", name, by, above)
		}
	}
	var all []Withheld
	err = WalkFiles(p.EvalRoot, name, func(below string, info fs.FileInfo) error {
		by := hidden.by(below, info)
		switch {
		case by == "":
		case below == name:
			return fmt.Errorf("%q is hidden: it is a hard link to a file of %s", name, by)
		default:
			all = append(all, Withheld{below, by})
			if info.IsDir() {
				return fs.SkipDir
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// hiddenFiles says by what the files and directories below a pack's eval root are hidden.
type hiddenFiles struct {
	names map[string]string // by the folded path; not of what lies in a hidden directory
	links map[inode]string  // files with several names, including those in hidden directories
}

// inode identifies a file, whatever its name.
type inode struct{ device, number uint64 }

// inodeOf returns the inode of a file that has a content and more than one name.
func inodeOf(info fs.FileInfo) (inode, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.Mode().IsRegular() || info.Size() == 0 || st.Nlink < 2 {
		return inode{}, false
	}
	return inode{st.Dev, st.Ino}, true
}

// by returns what hides the file or directory name; "" if nothing does.
func (h *hiddenFiles) by(name string, info fs.FileInfo) string {
	if by := h.names[paths.Fold(name)]; by != "" {
		return by
	}
	if id, ok := inodeOf(info); ok {
		return h.links[id]
	}
	return ""
}

// findHidden reads all rows. It skips invalid rows, since no run starts with them.
func (p *Pack) findHidden() (hiddenFiles, error) {
	h := hiddenFiles{names: map[string]string{}, links: map[inode]string{}}
	eval := assetRoot{path: p.EvalRoot}
	defer eval.close()
	hide := func(info fs.FileInfo, by string) {
		if id, ok := inodeOf(info); ok {
			h.links[id] = by
		}
	}
	for own, by := range map[string]string{p.ManifestPath: "the manifest", p.TasksPath: "the file of rows"} {
		info, err := os.Stat(own)
		if err != nil {
			return h, err
		}
		hide(info, by)
		if rel, err := relative(p.EvalRoot, own); err == nil && filepath.IsLocal(rel) {
			h.names[paths.Fold(filepath.ToSlash(rel))] = by
		}
	}
	var problems Problems
	for task, err := range p.rows() {
		if err != nil && !errors.As(err, &problems) {
			return h, err
		}
		if err != nil {
			continue
		}
		for _, v := range task.resources() {
			if v.file == nil || v.lane != HiddenLane {
				continue
			}
			by := fmt.Sprintf("%s of line %d", v.Path(), task.line)
			h.names[paths.Fold(v.file.Path)] = by
			// What cannot be read has no other names that could be.
			_ = eval.walk(v.file.Path, func(_ string, info fs.FileInfo) error {
				hide(info, by)
				return nil
			})
		}
	}
	return h, nil
}

// relative returns the path of a file relative to root, both without links.
func relative(root, file string) (string, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return "", err
	}
	if file, err = filepath.Abs(file); err == nil {
		file, err = filepath.EvalSymlinks(file)
	}
	if err != nil {
		return "", err
	}
	return filepath.Rel(root, file)
}
