package images

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/content"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
)

// labelBuilt marks images that Commit made, with the key that it was given.
const labelBuilt = "org.securebench.built"

// Commit makes an image from another one: it adds layers, and changes the configuration. It also
// unpacks the new image. The same input gives the same image.
func (s *Store) Commit(ctx context.Context, o runtime.Commit) (runtime.Image, error) {
	name, err := Normalize(o.As)
	if err != nil {
		return runtime.Image{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, daemon.BulkTimeout, fmt.Errorf("no image within %s", daemon.BulkTimeout))
	defer cancel()
	var img client.Image
	err = s.Registry.WithClaim(ctx, func(ctx context.Context) error {
		target, err := s.commit(ctx, o)
		if err != nil {
			return err
		}
		if err = s.put(ctx, images.Image{Name: name, Target: target, Labels: map[string]string{labelBuilt: o.Key}}); err == nil {
			img, err = s.Conn.Client.GetImage(ctx, name)
		}
		return err
	})
	if err != nil {
		return runtime.Image{}, fmt.Errorf("commit %s: %w", name, daemon.Native(err))
	}
	return s.prepare(ctx, img)
}

// commit writes the layers, the configuration and the manifest of an image.
func (s *Store) commit(ctx context.Context, o runtime.Commit) (ocispec.Descriptor, error) {
	store := s.Conn.Client.ContentStore()
	var manifest ocispec.Manifest
	config := dockerspec.DockerOCIImage{Image: ocispec.Image{Platform: platforms.DefaultSpec(), RootFS: ocispec.RootFS{Type: "layers"}}}
	if o.Base != "" {
		old, err := s.Conn.Client.ImageService().Get(ctx, o.Base)
		if err != nil {
			return ocispec.Descriptor{}, err
		}
		if manifest, err = images.Manifest(ctx, store, old.Target, platforms.Default()); err != nil {
			return ocispec.Descriptor{}, err
		}
		if config, err = readConfig(ctx, store, manifest.Config); err != nil {
			return ocispec.Descriptor{}, err
		}
	}
	for _, l := range o.Layers {
		d := ocispec.Descriptor{MediaType: ocispec.MediaTypeImageLayerZstd, Digest: digest.Digest(l.Digest), Size: l.Size}
		if err := content.WriteBlob(ctx, store, "sbench-"+l.Digest, l.Content, d); err != nil {
			return ocispec.Descriptor{}, err
		}
		manifest.Layers = append(manifest.Layers, d)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.Digest(l.DiffID))
		config.History = append(config.History, ocispec.History{CreatedBy: l.CreatedBy})
	}
	if o.Change != nil {
		o.Change(&config.Config)
	}
	var err error
	if manifest.Config, err = writeJSON(ctx, store, ocispec.MediaTypeImageConfig, config, nil); err != nil {
		return ocispec.Descriptor{}, err
	}
	manifest.Versioned, manifest.MediaType, manifest.Subject = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest, nil
	// Without these labels the daemon would collect what the manifest refers to.
	labels := map[string]string{"containerd.io/gc.ref.content.config": manifest.Config.Digest.String()}
	for i, l := range manifest.Layers {
		labels[fmt.Sprintf("containerd.io/gc.ref.content.l.%d", i)] = l.Digest.String()
	}
	return writeJSON(ctx, store, ocispec.MediaTypeImageManifest, manifest, labels)
}

// readConfig reads the configuration of an image, with what Docker adds to it.
func readConfig(ctx context.Context, store content.Provider, at ocispec.Descriptor) (config dockerspec.DockerOCIImage, err error) {
	text, err := content.ReadBlob(ctx, store, at)
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	return config, err
}

func writeJSON(ctx context.Context, store content.Store, mediaType string, v any, labels map[string]string) (ocispec.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	d := ocispec.Descriptor{MediaType: mediaType, Digest: digest.FromBytes(text), Size: int64(len(text))}
	return d, content.WriteBlob(ctx, store, "sbench-"+d.Digest.String(), bytes.NewReader(text), d, content.WithLabels(maps.Clone(labels)))
}

// Built returns the image as if it was made by Commit with the key.
func (s *Store) Built(ctx context.Context, as, key string) (img runtime.Image, ok bool, err error) {
	name, err := Normalize(as)
	if err != nil {
		return runtime.Image{}, false, err
	}
	i, err := s.Conn.Client.GetImage(s.Conn.Context(ctx), name)
	if errdefs.IsNotFound(err) || err == nil && i.Labels()[labelBuilt] != key {
		return runtime.Image{}, false, nil
	}
	if err == nil {
		img, err = s.prepare(ctx, i)
	}
	return img, err == nil, daemon.Native(err)
}
