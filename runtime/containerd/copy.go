package containerd

import (
	"archive/tar"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/securebench/sbench/runtime"
)

// isDirectory reports whether the place of copies is a directory rather than a registry with a
// path: whether it begins with / or a dot.
func isDirectory(place string) bool {
	return strings.HasPrefix(place, "/") || strings.HasPrefix(place, ".")
}

// copyOf returns the name that the copy of an image has below a registry's path: all of its own
// name, so that two images never get the same name.
func copyOf(place, full string) (string, error) {
	named, err := reference.ParseNormalizedNamed(full)
	if err != nil {
		return "", err
	}
	rest := strings.TrimPrefix(full, reference.Domain(named)+"/")
	return strings.TrimSuffix(place, "/") + "/" + strings.ReplaceAll(reference.Domain(named), ":", "_") + "/" + rest, nil
}

// Copy copies an image, with its parts for all platforms, to place: a directory, which becomes
// an OCI image layout, or a registry with a path, such as registry.example.org/mirror. It is
// taken from its registry, with the credentials of the user's Docker configuration, or from the
// daemon if its name is [Local]. Bytes and so digests stay the same, and parts that are there
// are not copied again. Copy returns the digest.
func (c *Client) Copy(ctx context.Context, ref, place string) (digest string, err error) {
	full, err := NormalizeRef(ref)
	if err != nil {
		return "", err
	}
	fail := func(err error) (string, error) { return "", fmt.Errorf("copy image %s: %w", full, err) }
	from, done, err := c.original(ctx, full)
	if err != nil {
		return fail(err)
	}
	defer done()
	hash, err := from.Digest()
	if err != nil {
		return fail(err)
	}
	if isDirectory(place) {
		err = copyToLayout(place, full, from)
	} else {
		err = copyToRegistry(ctx, place, full, from)
	}
	if err != nil {
		return fail(err)
	}
	return hash.String(), nil
}

// original returns an image or index, either of package v1. The caller calls done.
func (c *Client) original(ctx context.Context, full string) (from partial.Describable, done func(), err error) {
	if !Local(full) {
		parsed, err := name.ParseReference(full)
		if err != nil {
			return nil, nil, err
		}
		found, err := remote.Get(parsed, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
		if err != nil {
			return nil, nil, err
		}
		if found.MediaType.IsIndex() {
			from, err = found.ImageIndex()
		} else {
			from, err = found.Image()
		}
		return from, func() {}, err
	}
	img, err := c.c.ImageService().Get(c.ctx(ctx), full)
	if err != nil {
		return nil, nil, native(err)
	}
	dir, err := os.MkdirTemp(c.opts.Root, "copy-")
	if err != nil {
		return nil, nil, err
	}
	done = func() { _ = os.RemoveAll(dir) }
	defer func() {
		if err != nil {
			done()
		}
	}()
	if err := c.export(ctx, dir, img); err != nil {
		return nil, nil, err
	}
	whole, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		return nil, nil, err
	}
	hash, err := v1.NewHash(img.Target.Digest.String())
	if err != nil {
		return nil, nil, err
	}
	if images.IsIndexType(img.Target.MediaType) {
		from, err = whole.ImageIndex(hash)
	} else {
		from, err = whole.Image(hash)
	}
	return from, done, err
}

// export writes an image of the daemon's as an image layout.
func (c *Client) export(ctx context.Context, dir string, img images.Image) error {
	read, write := io.Pipe()
	go func() {
		write.CloseWithError(c.c.Export(c.ctx(ctx), write, archive.WithImage(c.c.ImageService(), img.Name), archive.WithSkipDockerManifest()))
	}()
	defer func() { _ = read.Close() }()
	for files := tar.NewReader(read); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return native(err)
		}
		file := filepath.Join(dir, filepath.FromSlash(path.Clean("/"+header.Name)))
		if header.Typeflag == tar.TypeDir {
			if err := os.MkdirAll(file, 0o700); err != nil {
				return err
			}
			continue
		}
		if err := writeFrom(file, files); err != nil {
			return err
		}
	}
}

func writeFrom(file string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Close())
}

func copyToRegistry(ctx context.Context, place, full string, from partial.Describable) error {
	to, err := copyOf(place, full)
	if err != nil {
		return err
	}
	parsed, err := name.ParseReference(to)
	if err != nil {
		return err
	}
	with := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if index, ok := from.(v1.ImageIndex); ok {
		return remote.WriteIndex(parsed, index, with...)
	}
	return remote.Write(parsed, from.(v1.Image), with...)
}

func copyToLayout(dir, full string, from partial.Describable) error {
	to, err := layout.FromPath(dir)
	if errors.Is(err, os.ErrNotExist) {
		to, err = layout.Write(dir, empty.Index)
	}
	if err != nil {
		return err
	}
	named := layout.WithAnnotations(map[string]string{images.AnnotationImageName: full})
	same := match.Annotation(images.AnnotationImageName, full)
	if index, ok := from.(v1.ImageIndex); ok {
		return to.ReplaceIndex(index, same, named)
	}
	return to.ReplaceImage(from.(v1.Image), same, named)
}

// Prefetch makes an image ready for runs from a place that [Client.Copy] filled, or from its
// registry if place is empty, unless it is here. A name with a digest gets that content or
// none.
func (c *Client) Prefetch(ctx context.Context, ref, place string) (runtime.Image, error) {
	img, err := c.Image(ctx, ref, PullNever)
	if place == "" && !Local(ref) {
		return c.Image(ctx, ref, PullMissing)
	}
	if place == "" || !errors.Is(err, runtime.ErrNotFound) {
		return img, err
	}
	full, err := NormalizeRef(ref)
	if err != nil {
		return img, err
	}
	if isDirectory(place) {
		err = c.importFrom(ctx, place, full)
	} else {
		err = c.pullFrom(ctx, place, full)
	}
	if err != nil {
		return runtime.Image{}, fmt.Errorf("image %s from %s: %w", full, place, err)
	}
	return c.Image(ctx, full, PullNever)
}

// pullFrom pulls the copy of an image, and gives it the image's name.
func (c *Client) pullFrom(ctx context.Context, place, full string) error {
	from, err := copyOf(place, full)
	if err != nil {
		return err
	}
	if _, err := c.Pull(ctx, from); err != nil {
		return err
	}
	is := c.c.ImageService()
	ctx = c.ctx(ctx)
	copied, err := is.Get(ctx, from)
	if err != nil {
		return native(err)
	}
	copied.Name = full
	if _, err := is.Create(ctx, copied); err != nil && !errdefs.IsAlreadyExists(err) {
		return native(err)
	}
	return native(is.Delete(ctx, from))
}

// importFrom imports an image of an image layout.
func (c *Client) importFrom(ctx context.Context, dir, full string) error {
	from, err := layout.FromPath(dir)
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(dir, ocispec.ImageIndexFile))
	if err != nil {
		return err
	}
	var all ocispec.Index
	if err := json.Unmarshal(text, &all); err != nil {
		return err
	}
	for _, m := range all.Manifests {
		if m.Annotations[images.AnnotationImageName] != full {
			continue
		}
		if _, want, pinned := strings.Cut(full, "@"); pinned && m.Digest.String() != want {
			return fmt.Errorf("its digest is %s", m.Digest)
		}
		read, write := io.Pipe()
		go func() { write.CloseWithError(archiveOf(write, from, m)) }()
		defer func() { _ = read.Close() }()
		if _, err := c.Import(ctx, read, ""); err != nil {
			return err
		}
		return c.markPulled(ctx, full)
	}
	return fmt.Errorf("%w: sbench image copy puts it there", runtime.ErrNotFound)
}

// archiveOf writes an archive of one manifest or index of a layout.
func archiveOf(w io.Writer, from layout.Path, top ocispec.Descriptor) error {
	files := tar.NewWriter(w)
	write := func(file string, size int64, content io.Reader) error {
		if err := files.WriteHeader(&tar.Header{Name: file, Mode: 0o644, Size: size}); err != nil {
			return err
		}
		_, err := io.Copy(files, content)
		return err
	}
	for file, v := range map[string]any{
		ocispec.ImageLayoutFile: ocispec.ImageLayout{Version: ocispec.ImageLayoutVersion},
		ocispec.ImageIndexFile:  ocispec.Index{Versioned: specs.Versioned{SchemaVersion: 2}, Manifests: []ocispec.Descriptor{top}},
	} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := write(file, int64(len(text)), bytes.NewReader(text)); err != nil {
			return err
		}
	}
	written := map[digest.Digest]bool{}
	for todo := []ocispec.Descriptor{top}; len(todo) > 0; {
		next := todo[0]
		if todo = todo[1:]; written[next.Digest] {
			continue
		}
		written[next.Digest] = true
		hash, err := v1.NewHash(next.Digest.String())
		if err != nil {
			return err
		}
		blob, err := from.Blob(hash)
		if err != nil {
			return err
		}
		err = write(path.Join(ocispec.ImageBlobsDir, hash.Algorithm, hash.Hex), next.Size, blob)
		if err := errors.Join(err, blob.Close()); err != nil {
			return err
		}
		if !images.IsIndexType(next.MediaType) && !images.IsManifestType(next.MediaType) {
			continue
		}
		text, err := from.Bytes(hash)
		if err != nil {
			return err
		}
		parts, err := partsOf(next.MediaType, text)
		if err != nil {
			return err
		}
		todo = append(todo, parts...)
	}
	return files.Close()
}

// partsOf returns what an index or a manifest refers to.
func partsOf(mediaType string, text []byte) ([]ocispec.Descriptor, error) {
	if images.IsIndexType(mediaType) {
		var index ocispec.Index
		err := json.Unmarshal(text, &index)
		return index.Manifests, err
	}
	var manifest ocispec.Manifest
	err := json.Unmarshal(text, &manifest)
	return append(manifest.Layers, manifest.Config), err
}
