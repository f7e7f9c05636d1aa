package workspace

import (
	"os"
	"path"
	"slices"
	"strings"
)

// maxLinks is how many links the kernel follows in one lookup, path_resolution(7).
const maxLinks = 40

// Follow resolves an absolute path and returns where it leads. readlink returns the target of the
// link at a resolved path; "" for anything else. At each step Follow calls visit, unless nil, with the
// resolved path and a stack of the remaining names, the next on top. It stops if visit returns true,
// or if there are more links than the kernel follows.
func Follow(at string, readlink func(at string) string, visit func(done string, rest []string) bool) string {
	done, rest := "/", push(nil, at)
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		part := rest[len(rest)-1]
		rest = rest[:len(rest)-1]
		if part == "" || part == "." {
			continue
		}
		done = path.Join(done, part) // ".." applies to the resolved path
		if visit != nil && visit(done, rest) {
			break
		}
		target := readlink(done)
		if target == "" {
			continue
		}
		links++
		done = path.Dir(done)
		if path.IsAbs(target) {
			done = "/"
		}
		rest = push(rest, target)
	}
	return done
}

// push puts the names of a path on a stack, the first on top.
func push(stack []string, p string) []string {
	names := strings.Split(p, "/")
	slices.Reverse(names)
	return append(stack, names...)
}

// InImage returns where the path p, from the root, leads in an image: a path relative to the root.
func InImage(image *os.Root, p string) string {
	readlink := func(at string) string {
		target, _ := image.Readlink(strings.TrimPrefix(at, "/")) // "" for anything but a link
		return target
	}
	return strings.TrimPrefix(Follow(p, readlink, nil), "/")
}
