package containerdtest

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
)

// WithFolder imports, as ref, the base image with a layer added that holds the host
// directory dir, owned by root, at the path dest.
func WithFolder(tb testing.TB, c *containerd.Client, ref, dir, dest string) runtime.Image {
	tb.Helper()
	ctx := context.Background()
	layer := folderLayer(tb, dir, dest)
	archive := filepath.Join(tb.TempDir(), "image.tar")
	if err := appendLayer(tb, layer, ref, archive); err != nil {
		tb.Fatal(err)
	}
	f, err := os.Open(archive)
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	images, err := c.Import(ctx, f, "")
	if err != nil || len(images) != 1 {
		tb.Fatalf("import %s: %d images, %v", ref, len(images), err)
	}
	return images[0]
}

func appendLayer(tb testing.TB, layer v1.Layer, ref, archive string) error {
	tb.Helper()
	img, err := mutate.AppendLayers(baseImage(tb), layer)
	if err != nil {
		return err
	}
	dir := tb.TempDir()
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return err
	}
	if err := p.AppendImage(img, layout.WithAnnotations(map[string]string{"io.containerd.image.name": ref})); err != nil {
		return err
	}
	return tarFolder(archive, dir)
}

// baseImage reads the archive of the base image.
func baseImage(tb testing.TB) v1.Image {
	tb.Helper()
	archive, err := Archive()
	if err != nil {
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	if err := untar(archive, dir); err != nil {
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

func untar(archive, dir string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	r := tar.NewReader(f)
	for {
		h, err := r.Next()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if h.Typeflag != tar.TypeReg {
			continue
		}
		if err := root.MkdirAll(filepath.Dir(h.Name), 0o755); err != nil {
			return err
		}
		out, err := root.Create(h.Name)
		if err != nil {
			return err
		}
		if _, err := io.Copy(out, r); err != nil {
			return err
		}
		if err := out.Close(); err != nil {
			return err
		}
	}
}

func tarFolder(archive, dir string) error {
	f, err := os.Create(archive)
	if err != nil {
		return err
	}
	w := tar.NewWriter(f)
	if err := w.AddFS(os.DirFS(dir)); err != nil {
		return err
	}
	if err := w.Close(); err != nil {
		return err
	}
	return f.Close()
}

// folderLayer returns a layer that holds dir at dest, owned by root.
func folderLayer(tb testing.TB, dir, dest string) v1.Layer {
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
		if err != nil {
			return err
		}
		_, err = w.Write(content)
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
