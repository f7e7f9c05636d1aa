package candidate

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/runtime"
)

const (
	// The volume for a machine has room for what the file system itself needs: a block for each
	// entry, and a mark for each entry of the image in a directory that hides it.
	machineBlock = 4 << 10
	machineMarks = 1 << 18
	// maxUsers bounds /etc/passwd and /etc/group, in bytes: OCI runtimes read them, and fail on
	// lines of more than 64 KiB.
	maxUsers = 60 << 10
)

// Unreadable reports whether an OCI runtime may fail on an entry: it reads the users, through links, too.
func Unreadable(e *layer.Entry) bool {
	users := e.Path == "etc/passwd" || e.Path == "etc/group"
	return users && e.Kind != layer.Removed && (e.Kind != layer.File || e.Size > maxUsers)
}

// Machine puts the candidate's changes over an image, in a new volume. maxBytes is what bounded the
// layer. keep, called with the image's files, returns what decides which entries are put there; nil
// keeps all but those that are Unreadable. done removes the volume.
func (c Candidate) Machine(ctx context.Context, e Engine, image runtime.Image, maxBytes int64, keep func(image *os.Root) func(*layer.Entry) (bool, error)) (machine runtime.Image, done func() error, err error) {
	if c.Layer == "" {
		return image, func() error { return nil }, nil
	}
	limits := LayerBudget(maxBytes)
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: limits.Bytes + (limits.Entries+machineMarks)*machineBlock, Inodes: limits.Entries + machineMarks})
	if err != nil {
		return image, nil, err
	}
	if keep == nil {
		keep = func(*os.Root) func(*layer.Entry) (bool, error) {
			return func(e *layer.Entry) (bool, error) { return !Unreadable(e), nil }
		}
	}
	machine = image
	machine.UpperDir = filepath.Join(vol.Path(), "machine")
	if err := c.apply(ctx, e, image, machine.UpperDir, limits, keep); err != nil {
		return image, nil, errors.Join(err, vol.Close())
	}
	return machine, vol.Close, nil
}

func (c Candidate) apply(ctx context.Context, e Engine, image runtime.Image, over string, limits layer.Budget, keep func(image *os.Root) func(*layer.Entry) (bool, error)) error {
	view, err := e.View(ctx, image)
	if err != nil {
		return err
	}
	defer func() { _ = view.Close() }()
	if err := os.Mkdir(over, 0o755); err != nil {
		return err
	}
	to, err := os.OpenRoot(over)
	if err != nil {
		return err
	}
	defer func() { _ = to.Close() }()
	changes, err := c.OpenLayer(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = changes.Close() }()
	return layer.Apply(ctx, changes, to, view.Root(), limits, keep(view.Root()))
}
