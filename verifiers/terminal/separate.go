package terminal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	artifactsMount = sbenchDir + "/artifacts" // where artifacts are collected
	loggedDir      = "/logs/artifacts"        // which is always an artifact
	collectTime    = time.Minute              // for a command without a limit, and for copying
	maxLeftOut     = 20                       // links and artifacts that a record names
	// artifactShare is which part of a workspace's bytes the artifacts that are files may have
	// together: each run of the checker gets copies of them, in a volume of a workspace's size that
	// also holds the hidden files and what the checker writes.
	artifactShare = 8
	maxDepth      = 512 // directories inside one another in an artifact, as in a workspace
)

// An artifact is what a checker with an image of its own gets of the candidate.
type artifact struct {
	source, dest string // host path, and absolute path in the sandbox
	dir          bool
}

// separately judges the candidate by a checker with an image of its own: only the artifacts go
// over from the candidate's machine. What the harness left running is there while they are collected.
func separately(ctx context.Context, e verifiers.Engine, in verifiers.Input, eval family.TerminalEval, capabilities []string) (v verifiers.Verdict, err error) {
	vol, err := in.Stage(ctx, e)
	if err != nil {
		return v, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	alone := in
	alone.Left = nil
	collected := func(in verifiers.Input) func() (runtime.Exit, error) {
		return func() (runtime.Exit, error) { return collect(ctx, e, in, eval, vol.Path()) }
	}
	exit, prevented, err := beside(ctx, in.Left, collected(in), collected(alone))
	switch {
	case errors.Is(err, runtime.ErrNotStarted): // the candidate's machine has no shell, and so leaves nothing
		exit = runtime.Exit{Reason: runtime.Exited, Code: 127}
	case prevented:
		return keptOut("the sandbox that collects the artifacts does not start"), nil
	case err != nil:
		return v, fmt.Errorf("collect artifacts: %w", err)
	}
	root, err := os.OpenRoot(vol.Path())
	if err != nil {
		return v, err
	}
	artifacts, leftOut, err := artifactsIn(root, append([]string{loggedDir}, eval.Checker.Artifacts...), in.WorkspaceBytes/artifactShare)
	if err = errors.Join(err, root.Close()); err != nil {
		return v, err
	}
	kept := in.Left != nil
	in.Image, in.Sidecars, in.Left = in.CheckerImage, nil, nil
	v, err = (&terminalCheck{checker: checker{engine: e, in: in, eval: eval, image: in.Image, separate: true, artifacts: artifacts, capabilities: capabilities}}).verify(ctx)
	if err != nil {
		return v, err
	}
	if kept {
		v = v.With("processes", "kept")
	}
	if !exit.Success() {
		v = v.With("collect", exit.String())
	}
	if len(leftOut) > 0 {
		v = v.With("left_out", leftOut)
	}
	return v, nil
}

// collectScript makes Harbor's directory of artifacts, runs the commands before --, each after its user ("" is
// the script's own) and its seconds, and copies what is there of the paths after it. A command may fail or be too late. Its shell
// is bash, as in Harbor, or sh on a machine without bash. BusyBox before 1.34 has no timeout -k, and then no command has a limit.
const collectScript = `mkdir -p "` + loggedDir + `" && chmod 777 "` + loggedDir + `"
shell=$(command -v bash || command -v sh)
within() { if timeout -k 1 1 sh -c : 2>/dev/null; then timeout -k 1 "$@"; else shift; "$@"; fi }
while [ "$1" != -- ]; do
	if [ "$1" ]; then within "$2" su -s "$shell" "$(id -un "$1")" -c "$3"; else within "$2" "$shell" -c "$3"; fi || echo "failed: $3" >&2
	shift 3
done
shift
for p; do
	[ -e "$p" ] && [ ! -L "$p" ] || continue
	mkdir -p "` + artifactsMount + `$(dirname "$p")" && cp -R "$p" "` + artifactsMount + `$(dirname "$p")/"
done`

// collect runs the commands that collect artifacts, and copies the artifacts to the directory dir. It does so on the machine
// as the agent left it: every program there, and so all that is in dir, is the candidate's.
func collect(ctx context.Context, e verifiers.Engine, in verifiers.Input, eval family.TerminalEval, dir string) (exit runtime.Exit, err error) {
	image, done, err := in.Candidate.Machine(ctx, e, in.Image, in.WorkspaceBytes, nil)
	if err != nil {
		return exit, err
	}
	defer func() { err = errors.Join(err, done()) }()
	env, limits := in.Task.Environment(), in.Limits
	args, wall, user, others := []string{"sh", "-c", collectScript, "collect"}, collectTime, env.User, ""
	if slices.ContainsFunc(eval.Checker.Collect, func(c compiler.Collect) bool { return c.User != "" }) { // root becomes anybody
		user, others = "0", cmp.Or(env.User, in.Image.User)
	}
	for _, c := range eval.Checker.Collect {
		as, _, _ := strings.Cut(cmp.Or(c.User, others), ":")
		limit := cmp.Or(c.Timeout, collectTime)
		args = append(args, as, strconv.Itoa(int(math.Ceil(limit.Seconds()))), cmp.Or(c.Command.Shell, compiler.ShellWords(c.Command.Argv...)))
		wall += limit + time.Second
	}
	args = append(append(args, "--", loggedDir), eval.Checker.Artifacts...)
	limits.LayerBytes = in.WorkspaceBytes
	return in.Run(ctx, e, runtime.Config{
		Name: "collect", NetworkOf: in.Left, Image: image, Limits: limits, Capabilities: env.Capabilities, Workdir: env.Dir(), User: user, Machine: true,
		Env: environment.Environ(env.Env), Mounts: []runtime.Mount{
			{Source: in.Candidate.Workspace, Dest: env.Workdir, Copy: true, Chown: !in.Candidate.HasOwners()},
			{Source: dir, Dest: artifactsMount, Writable: true, Chown: true},
		},
	}, runtime.Process{Args: args, Wall: wall})
}

// artifactsIn returns what was collected in root of the paths, up to most bytes of files. Links that lead out
// of their artifact are left out: the checker would follow them to its own files. So is an artifact that is too deep.
// leftOut names the first maxLeftOut: the candidate decides how many there are, and how long their paths are.
func artifactsIn(root *os.Root, paths []string, most int64) (found []artifact, leftOut []string, err error) {
	leave := func(name string) {
		if len(leftOut) < maxLeftOut {
			leftOut = append(leftOut, name)
		}
	}
	for _, p := range paths {
		name := strings.TrimPrefix(p, "/")
		info, err := root.Lstat(name)
		switch {
		case err != nil || !info.Mode().IsRegular() && !info.IsDir():
			continue // nobody has to leave any
		case slices.ContainsFunc(found, func(a artifact) bool { return a.dest == p }):
			continue // listed twice
		case info.Mode().IsRegular() && info.Size() > most:
			leave(p)
			continue
		}
		found = append(found, artifact{filepath.Join(root.Name(), name), p, info.IsDir()})
		if !info.IsDir() {
			most -= info.Size()
			continue
		}
		dir, err := root.OpenRoot(name)
		if err != nil {
			return nil, nil, err
		}
		err = foreign.Walk(dir, maxDepth, func(e foreign.Entry) error {
			if e.Info.Mode()&fs.ModeSymlink == 0 {
				return nil
			}
			target, err := e.Dir.Readlink(e.Name)
			upward := strings.Contains(target, "/..") && target != path.Clean(target) // from what may be a link itself
			at := path.Join(name, e.Path)
			if to := path.Join(path.Dir(at), target); err == nil && (path.IsAbs(target) || upward || to != name && !strings.HasPrefix(to, name+"/")) {
				leave("/" + at)
				err = e.Dir.Remove(e.Name)
			}
			return err
		})
		if errors.Is(err, foreign.ErrBig) {
			leave(p)
			found, err = found[:len(found)-1], nil
		}
		if err = errors.Join(err, dir.Close()); err != nil {
			return nil, nil, err
		}
	}
	return found, leftOut, nil
}

// artifactMounts mounts copies of the artifacts: directories in place of the image's, files for this run alone.
func (c *checker) artifactMounts(dir string) (mounts []runtime.Mount, err error) {
	for i, a := range c.artifacts {
		m := runtime.Mount{Source: a.source, Dest: a.dest, Copy: a.dir, Chown: true}
		if !a.dir {
			m.Source, m.Writable = filepath.Join(dir, fmt.Sprintf("artifact-%d", i)), true
			if err := copyFile(a.source, m.Source); err != nil {
				return nil, err
			}
		}
		mounts = append(mounts, m)
	}
	return mounts, nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, info.Mode().Perm())
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}
