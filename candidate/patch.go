package candidate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/securebench/sbench/candidate/trustedgit"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	maxPatchBytes = 16 << 20
	patchTimeout  = 5 * time.Minute
	patchInodes   = 1 << 18

	leftDest = "/candidate" // where the agent's files are mounted
	leftFile = "left-out"   // of diff.sh
	maxLeft  = 100          // names
)

// Engine is what extracting, restoring and judging a candidate need from the runtime. Its methods
// are safe for concurrent use.
type Engine interface {
	// Create creates a sandbox, which the caller closes.
	Create(ctx context.Context, cfg runtime.Config) (runtime.Sandbox, error)
	// NewVolume creates a volume, which the caller closes after the sandboxes that mount it.
	NewVolume(ctx context.Context, cfg runtime.VolumeConfig) (runtime.Volume, error)
	// View opens the files of an image. The caller closes the view.
	View(ctx context.Context, image runtime.Image) (runtime.View, error)
}

// A PatchSource describes a repository in which an agent worked.
type PatchSource struct {
	Image runtime.Image
	Repo  string // path of the repository in the image
	// Left is the sandbox in which the agent has worked. Repo is a directory there, too.
	Left     runtime.Sandbox
	Exclude  []string // paths of sbench's own files, relative to the repository
	Ignored  bool     // take files that git ignores, too
	User     string   // the agent's user, who can read the agent's files
	Limits   runtime.Limits
	MaxBytes int64 // of the objects that git creates
}

// ExtractPatch returns the agent's changes as a patch in git's format, in UTF-8. The image's git compares the tree with the
// image's repository in a fresh sandbox. Unless s.Ignored is set, the patch lacks files that the agent's ignore rules name
// and the agent's index does not. Git never follows the agent's configuration, attributes or hooks. A Failure is the
// candidate's fault; an error means that sbench could not create the patch. left names what else the patch lacks:
//
//   - files that git cannot read
//   - repositories without a commit
//   - new files of more than 16 MiB or, if the patch would be too long, of more than a MiB
func ExtractPatch(ctx context.Context, e Engine, s PatchSource) (patch string, left []string, failure *Failure, err error) {
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: s.MaxBytes, Inodes: patchInodes})
	if err != nil {
		return "", nil, nil, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	scratch, scripts := filepath.Join(vol.Path(), "scratch"), filepath.Join(vol.Path(), "scripts")
	if err := errors.Join(os.Mkdir(scratch, 0o755), trustedgit.Stage(scripts)); err != nil {
		return "", nil, nil, err
	}
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: "extraction", Image: s.Image, Limits: s.Limits, User: s.User, Workdir: "/", Persistent: true,
		Mounts: []runtime.Mount{
			{Source: scripts, Dest: trustedgit.Dest},
			{Left: s.Left, Dest: leftDest, Writable: true},
			{Source: scratch, Dest: trustedgit.Scratch, Writable: true, Chown: true},
		},
	})
	if err != nil {
		return "", nil, nil, err
	}
	patch, failure, err = s.diff(ctx, sandbox)
	if err = errors.Join(err, sandbox.Close(ctx)); err == nil && failure == nil {
		left, err = readLeft(scratch)
	}
	return patch, left, failure, err
}

func readLeft(scratch string) (left []string, err error) {
	root, err := os.OpenRoot(scratch)
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	text, err := foreign.Read(root, leftFile, maxPatchBytes)
	for name := range strings.SplitSeq(string(text), "\x00") {
		if name != "" && len(left) < maxLeft {
			left = append(left, strings.ToValidUTF8(name, "\uFFFD")+" (not in the patch)")
		}
	}
	return left, err
}

// diff asks git for a text patch. Records must be UTF-8, so if this patch is not, diff asks for a
// binary patch. If the patch is too long, diff asks for one without large new files.
func (s PatchSource) diff(ctx context.Context, sandbox runtime.Sandbox) (string, *Failure, error) {
	var failure *Failure
	for _, most := range []string{"SBENCH_MOST=16384", "SBENCH_MOST=1024"} {
		env := []string{most}
		if s.Ignored {
			env = append(env, "SBENCH_IGNORED=yes")
		}
		for _, form := range []string{"text", "binary"} {
			exit, err := sandbox.Exec(ctx, runtime.Process{
				Args: append([]string{"sh", trustedgit.Dest + "/diff.sh", s.Repo, leftDest + s.Repo, form}, s.Exclude...), Env: env,
				Wall: patchTimeout, OutputBytes: 2 * maxPatchBytes,
			})
			if err != nil {
				return "", nil, err
			}
			if !exit.Success() {
				return "", &Failure{"candidate_unreadable", phase, "git could not compare the files with the image's repository: git " + exit.String()}, nil
			}
			patch := exit.Stdout.Bytes()
			if exit.Stdout.Total > maxPatchBytes {
				failure = &Failure{"candidate_too_big", phase, fmt.Sprintf("the patch is longer than %d bytes, even without new files of more than a MiB", maxPatchBytes)}
				break
			}
			if utf8.Valid(patch) {
				return string(patch), nil, nil
			}
			failure = &Failure{"candidate_unreadable", phase, "the patch is not UTF-8 even in binary form"}
		}
	}
	return "", failure, nil
}
