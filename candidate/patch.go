package candidate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
	"unicode/utf8"

	"github.com/securebench/sbench/candidate/trustedgit"
	"github.com/securebench/sbench/runtime"
)

const (
	maxPatchBytes = 16 << 20
	patchTimeout  = 5 * time.Minute
	patchInodes   = 1 << 18

	left = "/candidate" // where the agent's files are mounted
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

// ExtractPatch returns the agent's changes as a patch in git's format, in UTF-8. The image's
// git compares the tree with the image's repository in a fresh sandbox. Git follows the agent's
// ignore rules unless s.Ignored is set, but not its configuration, attributes or hooks. A Failure is the candidate's fault.
// An error means that sbench could not create the patch.
func ExtractPatch(ctx context.Context, e Engine, s PatchSource) (patch string, failure *Failure, err error) {
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: s.MaxBytes, Inodes: patchInodes})
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	scratch, scripts := filepath.Join(vol.Path(), "scratch"), filepath.Join(vol.Path(), "scripts")
	if err := errors.Join(os.Mkdir(scratch, 0o755), trustedgit.Stage(scripts)); err != nil {
		return "", nil, err
	}
	sandbox, err := e.Create(ctx, runtime.Config{
		Name: "extraction", Image: s.Image, Limits: s.Limits, User: s.User, Workdir: "/", Persistent: true,
		Mounts: []runtime.Mount{
			{Source: scripts, Dest: trustedgit.Dest},
			{Left: s.Left, Dest: left},
			{Source: scratch, Dest: trustedgit.Scratch, Writable: true, Chown: true},
		},
	})
	if err != nil {
		return "", nil, err
	}
	patch, failure, err = s.diff(ctx, sandbox)
	return patch, failure, errors.Join(err, sandbox.Close(ctx))
}

// diff asks git for a text patch. Records must be UTF-8, so if this patch is not, diff asks for a
// binary patch.
func (s PatchSource) diff(ctx context.Context, sandbox runtime.Sandbox) (string, *Failure, error) {
	var env []string
	if s.Ignored {
		env = []string{"SBENCH_IGNORED=yes"}
	}
	for _, form := range []string{"text", "binary"} {
		exit, err := sandbox.Exec(ctx, runtime.Process{
			Args: append([]string{"sh", trustedgit.Dest + "/diff.sh", s.Repo, left + s.Repo, form}, s.Exclude...), Env: env,
			Wall: patchTimeout, OutputBytes: 2 * maxPatchBytes,
		})
		if err != nil {
			return "", nil, err
		}
		if !exit.Success() {
			return "", &Failure{"candidate_unreadable", phase, "git could not compare the files with the image's repository: git " + exit.String()}, nil
		}
		patch := exit.Stdout.Bytes()
		switch {
		case exit.Stdout.Total > maxPatchBytes:
			return "", &Failure{"candidate_too_big", phase, fmt.Sprintf("the patch is longer than %d bytes", maxPatchBytes)}, nil
		case utf8.Valid(patch):
			return string(patch), nil, nil
		}
	}
	return "", &Failure{"candidate_unreadable", phase, "the patch is not UTF-8 even in binary form"}, nil
}
