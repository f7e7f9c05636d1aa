package machine

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	// maxSteps bounds how many names are resolved for one link, maxAllSteps for a workspace. A candidate with
	// more keeps the verifier busy on purpose, and its links count as forging.
	maxSteps    = 2000
	maxAllSteps = 2_000_000
	// maxNames bounds the bytes of the paths of forging links, which are in memory: a path can have 130,000. A candidate with
	// more is denied.
	maxNames = 4 << 20
	maxDepth = 512 // directories inside one another, as in a workspace
)

// ForgingLinks returns the symbolic links in dir, a candidate's workspace mounted at workdir, and in its
// machine's changes, through which the checker would read something other than the candidate's answer: a
// trusted directory, a device, a place where a checker writes, or /proc, where a path can lead anywhere.
func ForgingLinks(ctx context.Context, e verifiers.Engine, image runtime.Image, dir, workdir string, trusted []string) (inWorkspace, inMachine []string, err error) {
	view, err := e.View(ctx, image)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = view.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = root.Close() }()
	l := &linkResolver{candidate: root, image: view.Root(), workdir: "/" + workspace.InImage(view.Root(), workdir), machine: image.UpperDir != ""}
	for _, t := range trusted {
		l.trusted = append(l.trusted, "/"+workspace.InImage(view.Root(), t))
	}
	inWorkspace, err = l.forging(ctx, root, l.workdir)
	if err == nil && l.machine {
		var over *os.Root
		if over, err = os.OpenRoot(image.UpperDir); err == nil {
			inMachine, err = l.forging(ctx, over, "/")
			_ = over.Close()
		}
	}
	switch {
	case err != nil:
		return nil, nil, fmt.Errorf("links of the candidate: %w", err)
	case l.names > maxNames:
		return nil, append(inWorkspace, inMachine...), nil
	}
	return inWorkspace, inMachine, nil
}

// linkResolver follows paths as a process of the verifier's sandbox would.
type linkResolver struct {
	candidate, image *os.Root
	// Both with the image's links resolved, such as /var/run.
	workdir string
	trusted []string
	machine bool // image has the candidate's files, too, also in /tmp and /run
	steps   int  // of all links together
	names   int  // bytes of the paths of forging links
}

// forging returns the forging links below root. The checker has the files of root at top. Once the paths have more
// than maxNames bytes, it looks at no further link.
func (l *linkResolver) forging(ctx context.Context, root *os.Root, top string) (all []string, err error) {
	err = foreign.Walk(root, maxDepth, func(e foreign.Entry) error {
		if e.Info.Mode()&fs.ModeSymlink != 0 && l.names <= maxNames && l.forges(path.Join(top, e.Path)) {
			l.names += len(e.Path)
			all = append(all, e.Path)
		}
		return context.Cause(ctx)
	})
	slices.Sort(all)
	return all, err
}

// harmless are targets of links that packages make outside a workspace.
var harmless = []string{"/dev/stdout", "/dev/stderr", "/proc/mounts", "/proc/self/mounts", "/proc/self/fd/1", "/proc/self/fd/2"}

// forges reports whether the absolute path at leads to a denied place.
func (l *linkResolver) forges(at string) bool {
	if l.machine && !paths.IsBelow(at, l.workdir) && slices.Contains(harmless, l.readlink(at)) {
		return false
	}
	denied, steps := false, 0
	workspace.Follow(at, l.readlink, func(done string, rest []string) bool {
		steps++
		l.steps++
		denied = steps > maxSteps || l.steps > maxAllSteps || l.denied(done, rest)
		return denied
	})
	return denied
}

// denied reports whether a path resolved up to done leads to a denied place. Outside the
// workspace it may lead to the image's files, which nothing writes to, and to /dev/null.
func (l *linkResolver) denied(done string, rest []string) bool {
	within := func(dir string) bool { return paths.IsBelow(done, dir) }
	if done == "/dev" && len(rest) > 0 || done == "/dev/null" && len(rest) == 0 {
		return false
	}
	inside := within(l.workdir)
	return slices.ContainsFunc(l.trusted, within) ||
		!inside && slices.ContainsFunc([]string{"/proc", "/sys", "/dev", "/logs"}, within) ||
		!inside && !l.machine && slices.ContainsFunc([]string{"/tmp", "/run"}, within)
}

// readlink returns the target of a link; "" for anything else and on errors.
func (l *linkResolver) readlink(at string) string {
	root, name := l.image, strings.TrimPrefix(at, "/")
	if rest, ok := strings.CutPrefix(at+"/", l.workdir+"/"); ok {
		root, name = l.candidate, strings.TrimSuffix(rest, "/")
	}
	if name == "" {
		return ""
	}
	target, err := root.Readlink(name)
	if err != nil {
		return ""
	}
	return target
}
