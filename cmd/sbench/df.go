package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"

	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

type dfCmd struct{ jsonFlag }

// usage is the disk space of one thing that sbench stores.
type usage struct {
	What   string `json:"what"`
	Path   string `json:"path"` // a directory, or a daemon's socket
	Bytes  int64  `json:"bytes"`
	Remove string `json:"remove"` // the command that frees some of it
}

// Run prints a line for everything that sbench keeps, except the output of runs.
func (cmd *dfCmd) Run(ctx context.Context, a *app, tools *agentcli.Cache) error {
	c, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	_, state := host.DefaultDirectories()
	daemon := filepath.Join(c.Root(), "containerd")
	all := []usage{
		{"images", daemon, 0, "sbench image prune --all"},
		{"agents", tools.Dir, 0, "sbench harness rm"},
		{"runs' volumes and calibrations", c.Root(), 0, "sbench gc"},
		{"locks and mounts", cmp.Or(a.flags.State, state), 0, "sbench gc"},
	}
	onDisk := all
	var list []images.Info
	if !c.Private() {
		onDisk, all[0].Path = all[1:], c.Address()
		list, err = c.Images.List(ctx)
		for _, i := range list {
			all[0].Bytes += i.Bytes
		}
	}
	if err = errors.Join(err, c.Close(ctx)); err != nil {
		return err
	}
	for i, t := range onDisk {
		if onDisk[i].Bytes, err = diskUsage(t.Path, daemon); err != nil {
			return err
		}
	}
	return printList(a, cmd.JSON, all, func(t usage) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", t.What, report.Bytes(float64(t.Bytes)), t.Path, t.Remove)
	})
}

// diskUsage returns the bytes that a directory tree takes, 0 if it does not exist. It does not count
// other file systems, nor the path without unless this is the tree itself.
func diskUsage(dir, without string) (int64, error) {
	var bytes int64
	var device uint64
	linked := map[uint64]bool{} // inodes with several names
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if errors.Is(err, fs.ErrNotExist) { // removed meanwhile
			return nil
		}
		if err != nil {
			return err
		}
		stat := info.Sys().(*syscall.Stat_t)
		if path == dir {
			device = stat.Dev
		} else if stat.Dev != device || path == without {
			if d.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if !d.IsDir() && stat.Nlink > 1 {
			if linked[stat.Ino] {
				return nil
			}
			linked[stat.Ino] = true
		}
		bytes += stat.Blocks * 512
		return nil
	})
	return bytes, err
}
