package setup

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/workspace"
)

func (h Harness) files(ctx context.Context) (all harness.Files, err error) {
	sum := sha256.New()
	for i, f := range h.tester.Harness.Config.Files {
		digest, err := readable(ctx, f.Source)
		if err != nil {
			return all, h.problem(fmt.Sprintf("config.files[%d].source", i), "the path is relative to the tester file; everything in it has to be readable by other users: chmod -R o+rX", err.Error())
		}
		_, _ = fmt.Fprintf(sum, "%q %s\n", f.Dest, digest)
		all.Mounts = append(all.Mounts, runtime.Mount{Source: f.Source, Dest: f.Dest})
	}
	if len(all.Mounts) > 0 {
		all.Digest = workspace.DigestOf(sum)
	}
	return all, nil
}

// readable returns the digest of a file or directory. It is an error unless every user can read all of it:
// the users in sandboxes are not the file's owner.
func readable(ctx context.Context, name string) (string, error) {
	err := filepath.WalkDir(name, func(p string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil {
			info, err = d.Info()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p, document.Bare(err))
		}
		switch mode := info.Mode(); {
		case mode.IsRegular() && mode&0o004 == 0, mode.IsDir() && mode&0o005 != 0o005:
			return fmt.Errorf("other users cannot read %s", p)
		case !mode.IsRegular() && !mode.IsDir() && mode&fs.ModeSymlink == 0:
			return fmt.Errorf("%s is neither a file, a directory nor a link", p)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if info, err := os.Stat(name); err != nil || !info.IsDir() {
		text, readErr := os.ReadFile(name)
		return fmt.Sprintf("sha256:%x", sha256.Sum256(text)), errors.Join(err, readErr)
	}
	root, err := os.OpenRoot(name)
	if err != nil {
		return "", err
	}
	defer func() { _ = root.Close() }()
	report, err := workspace.DigestTree(ctx, root, workspace.TreeOptions{})
	return report.Digest, err
}
