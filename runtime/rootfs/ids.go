package rootfs

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/mounts"
)

// privateDir prepares the directory if the sandbox has its own ids. Below it are the running
// sandbox's files: the sandbox's root has to pass it, and no other user of the host may.
func (f *FS) privateDir() error {
	if f.IDs == nil {
		return nil
	}
	if err := errors.Join(os.Chown(f.Dir, 0, int(f.IDs.Base())), os.Chmod(f.Dir, 0o710), os.Mkdir(f.shifted(""), 0o711)); err != nil {
		return err
	}
	return idmap.MountPrivate(f.Dir)
}

// Unmount detaches all mounts below the file system's directory.
func (f *FS) Unmount() error {
	if f.IDs != nil {
		return mounts.Detach(f.Dir) // see idmap.MountPrivate
	}
	return mounts.DetachBelow(f.Dir)
}

// shifted returns the path of a mount that has the sandbox's ids.
func (f *FS) shifted(name string) string { return filepath.Join(f.Dir, "ids", name) }

// shift mounts a directory or file at shifted(name), with the sandbox's ids.
func (f *FS) shift(source, name string, writable bool) error {
	if err := f.makeTarget(source, name); err != nil {
		return err
	}
	return f.IDs.Mount(source, f.shifted(name), writable)
}

func (f *FS) makeTarget(source, name string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if info.IsDir() {
		return os.Mkdir(f.shifted(name), 0o711)
	}
	return os.WriteFile(f.shifted(name), nil, 0o644)
}

// overlay mounts lowers at target as an overlay that writes to the directory name in the
// sandbox's layer, where every file has its owner in the sandbox.
func (f *FS) overlay(lowers []string, name, target string) error {
	if f.IDs == nil {
		return Overlay(lowers, filepath.Join(f.Layer.Path(), name), target)
	}
	if err := makeLayer(filepath.Join(f.Layer.Path(), name)); err != nil {
		return err
	}
	if _, err := os.Lstat(f.shifted("layer")); err != nil {
		if err := f.shift(f.Layer.Path(), "layer", true); err != nil {
			return err
		}
	}
	var shifted []string
	for i, lower := range lowers {
		at := name + "-" + strconv.Itoa(i)
		if err := f.shift(lower, at, false); err != nil {
			return err
		}
		shifted = append(shifted, at)
	}
	upper, work := filepath.Join("layer", name, "upper"), filepath.Join("layer", name, "work")
	return f.IDs.Overlay(f.shifted(""), target, layerOptions(shifted, upper, work))
}

// inside calls do as the user who can make files in the sandbox's root file system and
// copies: the sandbox's root if it has its own ids.
func (f *FS) inside(do func() error) error {
	if f.IDs == nil {
		return do()
	}
	return idmap.As(f.IDs.Base(), do)
}

// hostID returns the host's id for a sandbox's id.
func (f *FS) hostID(id uint32) int {
	if f.IDs == nil {
		return int(id)
	}
	return int(f.IDs.Base() + id)
}
