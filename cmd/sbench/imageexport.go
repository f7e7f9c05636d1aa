package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/workspace"
)

type imageExportCmd struct {
	RunDir  string `arg:"" name:"run-dir" help:"Output directory of a run."`
	Task    string `arg:"" help:"Id of the task."`
	Attempt int    `default:"1" placeholder:"N" help:"Attempt of the task. Default: 1."`
	Output  string `short:"o" required:"" placeholder:"FILE" help:"File to write, which must not exist."`
	As      string `placeholder:"REF" default:"sbench.local/export:latest" help:"Name of the image in the archive. Default: ${default}"`
	Key     string `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the end of the records."`

	AcceptUnsigned bool `help:"Accept records that are not sealed, or not signed by --key."`
}

// Run writes the task's image with the recorded workspace and, if there is one, the layer of the machine.
func (cmd *imageExportCmd) Run(ctx context.Context, a *app) error {
	key, err := keyFrom("--key", cmd.Key, record.LoadPublicKey)
	if err != nil {
		return err
	}
	as, err := containerd.NormalizeRef(cmd.As)
	if err != nil {
		return fmt.Errorf("%w: --as: %w", errUsage, err)
	}
	rec, err := cmd.find(record.Trust{Key: key, AcceptUnsigned: cmd.AcceptUnsigned})
	if err != nil {
		return err
	}
	to, err := os.OpenFile(cmd.Output, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("%w: --output: %w", errUsage, err)
	}
	kept, err := run.Stored(ctx, cmd.RunDir, rec)
	if err == nil {
		err = cmd.write(ctx, a, rec, kept, to, as)
	}
	if err = errors.Join(err, to.Sync(), to.Close()); err != nil {
		err = errors.Join(err, os.Remove(cmd.Output))
	}
	return err
}

func (cmd *imageExportCmd) write(ctx context.Context, a *app, rec record.Record, kept candidate.Candidate, to io.Writer, as string) error {
	return a.withClient(ctx, nil, func(c *containerd.Client) (err error) {
		base, err := c.Image(ctx, rec.Image, containerd.PullMissing)
		if err == nil && base.Digest != rec.ImageID {
			err = fmt.Errorf("image %s is now %s, and the attempt had %s: import or pull that one", base.Ref, base.Digest, rec.ImageID)
		}
		if err != nil {
			return err
		}
		engine, err := c.NewRun(ctx)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, engine.Close(ctx)) }()
		f, err := os.CreateTemp("", "sbench-layer-*")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
		files, err := workspaceLayer(ctx, engine, base, rec, kept, f)
		if err != nil {
			return err
		}
		content := io.NewSectionReader(f, 0, files.Size)
		layers := []runtime.Layer{{
			Content: content, Digest: files.Digest, DiffID: files.DiffID, Size: files.Size, CreatedBy: "workspace of " + rec.TaskID,
		}}
		if kept.Layer != "" {
			stored, err := kept.OpenLayer()
			if err != nil {
				return err
			}
			defer func() { _ = stored.Close() }() // only read from
			machine, err := machineLayer(stored, kept.Layer, rec.TaskID)
			if err != nil {
				return err
			}
			layers = append(layers, machine)
		}
		// A name of its own: nobody loses an image of the name that the archive gets.
		own := fmt.Sprintf("sbench.local/export-%d:latest", os.Getpid())
		if _, err = c.Commit(ctx, runtime.Commit{Base: base.Ref, As: own, Layers: layers}); err != nil {
			return err
		}
		return errors.Join(c.Export(ctx, to, own, as), c.RemoveImage(context.WithoutCancel(ctx), own))
	})
}

// find returns the record of the attempt, which must have a workspace.
func (cmd *imageExportCmd) find(trust record.Trust) (rec record.Record, err error) {
	found := false
	_, err = record.Read(cmd.RunDir, trust, func(r record.Record) error {
		if r.TaskID == cmd.Task && r.Attempt == cmd.Attempt {
			rec, found = r, true // the last one counts
		}
		return nil
	})
	switch {
	case err != nil:
		return rec, fmt.Errorf("%s: %w", filepath.Join(cmd.RunDir, record.RecordsFile), err)
	case !found:
		return rec, fmt.Errorf("%w: attempt %d of %q is not recorded", errUsage, cmd.Attempt, cmd.Task)
	case rec.CandidateWorkspace == nil || rec.Workdir == "":
		return rec, fmt.Errorf("%w: attempt %d of %q left no workspace: only tasks of terminal_task do", errUsage, cmd.Attempt, cmd.Task)
	}
	return rec, nil
}

// machineLayer returns the layer in f, which is of the whole machine.
func machineLayer(f *os.File, digest, task string) (runtime.Layer, error) {
	info, err := f.Stat()
	if err != nil {
		return runtime.Layer{}, err
	}
	id, err := layer.DiffID(io.NewSectionReader(f, 0, info.Size()))
	content := io.NewSectionReader(f, 0, info.Size())
	return runtime.Layer{Content: content, Digest: digest, DiffID: id, Size: info.Size(), CreatedBy: "machine of " + task}, err
}

// workspaceLayer writes the workspace, in the place of what the image has there, as a layer.
func workspaceLayer(ctx context.Context, e *containerd.Run, base runtime.Image, rec record.Record, c candidate.Candidate, to *os.File) (r layer.Report, err error) {
	limits := candidate.LayerBudget(max(rec.Provenance.Policy.WorkspaceBytes, 64<<20))
	vol, err := e.NewVolume(ctx, runtime.VolumeConfig{Bytes: limits.Bytes + 64<<20, Inodes: limits.Entries})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, vol.Close()) }()
	view, err := e.View(ctx, base)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, view.Close()) }()
	upper, err := os.OpenRoot(vol.Path())
	if err != nil {
		return r, err
	}
	defer func() { _ = upper.Close() }()
	at := workspace.Follow(rec.Workdir, func(at string) string {
		target, _ := view.Root().Readlink(strings.TrimPrefix(at, "/"))
		return target
	}, nil)
	name := strings.TrimPrefix(at, "/")
	if err := errors.Join(layer.MakeParents(upper, view.Root(), name), upper.Mkdir(name, 0o755)); err != nil {
		return r, err
	}
	dir, err := upper.OpenRoot(name)
	if err != nil {
		return r, err
	}
	defer func() { _ = dir.Close() }()
	stored, err := c.StoredTree()
	if err != nil {
		return r, err
	}
	defer func() { _ = stored.Root.Close() }()
	if _, err := stored.Restore(ctx, dir, workspace.TreeOptions{MaxBytes: limits.Bytes, MaxFiles: limits.Entries}); err != nil {
		return r, err
	}
	return layer.Write(ctx, to, runtime.Changes{Dir: vol.Path(), Replaced: path.Clean(at)}, limits)
}
