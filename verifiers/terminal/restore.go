package terminal

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/workspace"
)

const (
	restoredDir = "workspace" // within its volume
	// The copy may exceed the agent's workspace: hard links have become files, and files may
	// have grown when secrets were replaced.
	restoredTimes  = 3       // times WorkspaceBytes
	restoredInodes = 1000    // at least
	restoredInode  = 4 << 10 // bytes of WorkspaceBytes for each further inode
)

// AsLeft returns the input with the files' owners and modes as the agent left them: in the kept workspace, or
// in a copy, which done removes. With shared, every user may read and execute what the owner may, for a check
// that runs the candidate's programs as another user.
func AsLeft(ctx context.Context, e verifiers.Engine, in verifiers.Input, shared bool) (restored verifiers.Input, done func() error, err error) {
	if in.Candidate.Attributes == "" {
		return in, func() error { return nil }, nil
	}
	return copied(ctx, e, in, shared, nil)
}

// copied returns the input with a copy of the workspace as the agent left it but for some links, in a new
// volume. done removes the copy.
func copied(ctx context.Context, e verifiers.Engine, in verifiers.Input, shared bool, without []string) (restored verifiers.Input, done func() error, err error) {
	bytes, inodes := restoredTimes*in.WorkspaceBytes, restoredInodes+in.WorkspaceBytes/restoredInode
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: bytes, Inodes: inodes})
	if err != nil {
		return in, nil, err
	}
	dir := filepath.Join(vol.Path(), restoredDir)
	if err := restore(ctx, in, dir, workspace.TreeOptions{MaxBytes: bytes, MaxFiles: inodes, Shared: shared}, without); err != nil {
		return in, nil, errors.Join(err, vol.Close())
	}
	in.Candidate = in.Candidate.Restored(dir)
	return in, vol.Close, nil
}

var errNotTheCandidate = errors.New("the kept workspace is not the candidate's")

// restore copies the kept workspace to dir, which must not exist, and removes the links without from the copy.
func restore(ctx context.Context, in verifiers.Input, dir string, opts workspace.TreeOptions, without []string) error {
	kept, err := in.Candidate.StoredTree()
	if err != nil {
		return err
	}
	defer func() { _ = kept.Root.Close() }()
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	to, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	report, err := kept.Restore(ctx, to, opts)
	if err == nil && report.Digest != in.Candidate.Digest {
		err = errNotTheCandidate
	}
	for _, name := range without {
		err = cmp.Or(err, to.Remove(name))
	}
	return err
}
