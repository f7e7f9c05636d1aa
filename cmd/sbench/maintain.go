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
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/runtime/hostcheck"
)

type doctorCmd struct{ jsonFlag }

// Run prints a line for each finding. If one of them is an error, the exit code is 3.
func (cmd *doctorCmd) Run(ctx context.Context, a *app) error {
	findings := containerd.Diagnose(ctx, a.options(nil))
	bad := 0
	for _, f := range findings {
		if f.Severity == hostcheck.Error {
			bad++
		}
	}
	err := printList(a, cmd.JSON, findings, func(f hostcheck.Finding) string {
		line := fmt.Sprintf("%s\t%s\t%s", f.Severity, f.Check, f.Detail)
		if f.Cure != "" {
			line += "\n\t\tcure: " + f.Cure
		}
		return line
	})
	if err == nil && bad > 0 {
		err = fmt.Errorf("%w: %d findings keep sandboxes from running", run.ErrInfrastructure, bad)
	}
	return err
}

type dfCmd struct{ jsonFlag }

// taken is the space that something takes on disk.
type taken struct {
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
	_, state := containerd.DefaultDirectories()
	daemon := filepath.Join(c.Root(), "containerd")
	all := []taken{
		{"images", daemon, 0, "sbench image prune --all"},
		{"agents", tools.Dir, 0, "sbench harness rm"},
		{"runs' volumes and calibrations", c.Root(), 0, "sbench gc"},
		{"locks and mounts", cmp.Or(a.flags.State, state), 0, "sbench gc"},
	}
	onDisk := all
	var list []containerd.ImageInfo
	if !c.Private() {
		onDisk, all[0].Path = all[1:], c.Address()
		list, err = c.Images(ctx)
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
	return printList(a, cmd.JSON, all, func(t taken) string {
		return fmt.Sprintf("%s\t%s\t%s\t%s", t.What, report.Bytes(float64(t.Bytes)), t.Path, t.Remove)
	})
}

// diskUsage returns the bytes that a directory tree takes, 0 if it does not exist. It leaves
// out other file systems and the path without, unless that is the tree itself.
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

type gcCmd struct{ jsonFlag }

func (cmd *gcCmd) Run(ctx context.Context, a *app) error {
	c, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	gone, err := c.GC(ctx)
	err = errors.Join(err, c.Close(ctx))
	if len(gone.Left) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: not all could be removed: %w", run.ErrInfrastructure, errors.Join(gone.Left...)))
	}
	if cmd.JSON {
		return errors.Join(err, a.json(map[string]any{"removed": append([]string{}, gone.Removed...)}))
	}
	return errors.Join(err, printTable(a, gone.Removed, func(id string) string { return "removed what run " + id + " left" }))
}
