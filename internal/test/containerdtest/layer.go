package containerdtest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
)

// WithDirectory makes the image ref: the base image with an additional layer that contains the host
// directory dir, which belongs to this user, at dest.
func WithDirectory(tb testing.TB, c *host.Host, ref, dir, dest string) runtime.Image {
	tb.Helper()
	ctx, upper, content := context.Background(), tb.TempDir(), &bytes.Buffer{}
	at := filepath.Join(upper, dest)
	err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), exec.Command("cp", "-a", dir, at).Run())
	must.Do(tb, err)
	report, err := layer.Write(ctx, content, runtime.Changes{Dir: upper}, layer.Budget{Bytes: 1 << 30, Entries: 1 << 20})
	must.Do(tb, err)
	image, err := c.Images.Commit(ctx, runtime.Commit{Base: Image, As: ref, Key: "test", Layers: []runtime.Layer{
		{Content: content, Digest: report.Digest, DiffID: report.DiffID, Size: report.Size, CreatedBy: tb.Name()},
	}})
	must.Do(tb, err)
	return image
}
