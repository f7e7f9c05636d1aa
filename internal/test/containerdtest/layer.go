package containerdtest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/containerd/containerd/v2/pkg/archive"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
)

// WithDirectory imports, as ref, the base image with an additional layer that contains the
// host directory dir, owned by root, at dest.
func WithDirectory(tb testing.TB, c *host.Host, ref, dir, dest string) runtime.Image {
	tb.Helper()
	ctx := context.Background()
	img, err := mutate.AppendLayers(baseImage(tb), directoryLayer(tb, dir, dest))
	if err != nil {
		tb.Fatal(err)
	}
	tag, err := name.NewTag(ref, name.StrictValidation)
	if err != nil {
		tb.Fatal(err)
	}
	archive := filepath.Join(tb.TempDir(), "image.tar")
	if err := tarball.WriteToFile(archive, tag, img); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(archive)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	images, err := c.Images.Import(ctx, f, "")
	if err != nil || len(images) != 1 {
		tb.Fatalf("import %s: %d images, %v", ref, len(images), err)
	}
	return images[0]
}

// baseImage reads the archive of the base image.
func baseImage(tb testing.TB) v1.Image {
	tb.Helper()
	path, err := Archive()
	if err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	dir := tb.TempDir()
	if _, err := archive.Apply(context.Background(), dir, f, archive.WithNoSameOwner()); err != nil {
		tb.Fatal(err)
	}
	index, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		tb.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		tb.Fatalf("base image: %v", err)
	}
	img, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		tb.Fatal(err)
	}
	return img
}

// directoryLayer returns a layer with dir at dest, owned by root.
func directoryLayer(tb testing.TB, dir, dest string) v1.Layer {
	tb.Helper()
	var buf bytes.Buffer
	w := tar.NewWriter(&buf)
	err := filepath.WalkDir(dir, func(p string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		h, err := tar.FileInfoHeader(info, "")
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = filepath.Join(dest, rel), 0, 0, "", ""
		if err := w.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		content, err := os.ReadFile(p)
		if err == nil {
			_, err = w.Write(content)
		}
		return err
	})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		tb.Fatal(err)
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
	if err != nil {
		tb.Fatal(err)
	}
	return layer
}
