package verifiers

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/runtime"
)

const maxLinks = 40 // what the kernel follows in one lookup, path_resolution(7)

// forgingLinks counts the symbolic links in a candidate's workspace through
// which the checker would read, as the candidate's answer, a file of its own:
// those that lead into a trusted folder once they stand at workdir, and those
// through /proc, where a path can lead anywhere. An agent has no honest use for
// either: it never saw these folders.
func forgingLinks(ctx context.Context, e Engine, image runtime.Image, dir, workdir string, trusted []string) (int, error) {
	view, err := e.View(ctx, image)
	if err != nil {
		return 0, err
	}
	defer func() { _ = view.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	l := linkResolver{candidate: root, image: view.Root(), workdir: workdir, trusted: trusted}
	count := 0
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case name == trustedDir && d.IsDir():
			return fs.SkipDir // covered by the trusted one
		case name == trustedDir:
			return nil
		case d.Type()&fs.ModeSymlink == 0:
			return nil
		}
		forging, err := l.forges(path.Join(workdir, name))
		if forging {
			count++
		}
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("links of the workspace: %w", err)
	}
	return count, nil
}

// linkResolver follows paths as a process of the verifier's sandbox would.
type linkResolver struct {
	candidate, image *os.Root
	workdir          string
	trusted          []string
}

// forges says whether the absolute path at leads where it must not.
func (l linkResolver) forges(at string) (bool, error) {
	done, rest := "/", strings.Split(strings.Trim(at, "/"), "/")
	for hops := 0; len(rest) > 0; {
		part := rest[0]
		rest = rest[1:]
		if part == "" || part == "." {
			continue
		}
		done = path.Join(done, part) // ".." is resolved against what was followed
		if l.denied(path.Join(done, path.Join(rest...)), done) {
			return true, nil
		}
		target, err := l.readlink(done)
		if err != nil {
			return false, err
		}
		if target == "" {
			continue
		}
		if hops++; hops > maxLinks {
			return false, nil // the kernel gives up, too
		}
		if path.IsAbs(target) {
			done = "/"
		} else {
			done = path.Dir(done)
		}
		rest = append(strings.Split(target, "/"), rest...)
	}
	return false, nil
}

// denied judges a path that has been followed up to done.
func (l linkResolver) denied(whole, done string) bool {
	for _, t := range l.trusted {
		if done == t || strings.HasPrefix(done, t+"/") {
			return true
		}
	}
	if done != "/proc" && !strings.HasPrefix(done, "/proc/") && done != "/dev/fd" {
		return false
	}
	harmless := []string{"/proc/mounts", "/proc/self/mounts", "/proc/self/fd/0", "/proc/self/fd/1", "/proc/self/fd/2", "/dev/fd/0", "/dev/fd/1", "/dev/fd/2"}
	return !slices.Contains(harmless, whole)
}

// readlink returns the target of a link, "" for anything else. In an image
// that is a plain file system; /proc and /dev are judged by name.
func (l linkResolver) readlink(at string) (string, error) {
	root, name := l.image, strings.TrimPrefix(at, "/")
	if rest, ok := strings.CutPrefix(at+"/", l.workdir+"/"); ok {
		root, name = l.candidate, strings.TrimSuffix(rest, "/")
	}
	if name == "" {
		return "", nil
	}
	target, err := root.Readlink(name)
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) { // no link, or nothing there
		return "", nil
	}
	return target, err
}
