// Package images finds, fetches, imports, names and makes the images of a containerd daemon.
//
// A [Store] returns images that are unpacked and described by the runtime contract's Image. It
// touches no sandbox. What it makes belongs to a temporary claim of package owner until it is
// complete, so that nothing is left if the process dies.
package images

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	goruntime "runtime"
	"slices"
	"strings"
	"time"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/images/archive"
	"github.com/containerd/errdefs"
	"github.com/containerd/platforms"
	"github.com/distribution/reference"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/owner"
)

// labelPulled marks the names that sbench pulled.
const labelPulled = "org.securebench.pulled"

// A Store has the images in a daemon's namespace. Its methods are safe for concurrent use.
type Store struct {
	Conn     *daemon.Conn
	Registry *owner.Registry // for the claims of what is being made
	HostsDir string          // registry configuration; "" means /etc/containerd/certs.d
	// Where says, in error messages, where images are looked for and how to look elsewhere.
	Where string
}

// PullPolicy says when an image is fetched from its registry. The zero value means
// PullMissing.
type PullPolicy string

// The policies of the tester file's runtime.pull. Names that are [Local] are never pulled.
const (
	PullMissing PullPolicy = "missing" // if the daemon does not have the image
	PullNever   PullPolicy = "never"
	PullAlways  PullPolicy = "always" // even if the daemon has it
)

// Info describes a name in the list that [Store.List] returns.
type Info struct {
	Ref    string `json:"ref"`
	Digest string `json:"digest"` // of the manifest or index
	// Bytes is the size of what the daemon has of the image, packed and unpacked. Layers
	// that images share count for each of them.
	Bytes int64 `json:"bytes"`
	// Pulled says that sbench pulled it, so that a registry has it.
	Pulled bool `json:"pulled"`
}

// Normalize returns the full form of a reference: "python:3.11" becomes
// "docker.io/library/python:3.11", and a name without tag or digest gets the tag latest.
func Normalize(ref string) (string, error) {
	named, err := reference.ParseDockerRef(ref)
	if err != nil {
		return "", fmt.Errorf("image reference %q: %w", ref, err)
	}
	return named.String(), nil
}

// Get resolves a reference to a local, unpacked image for this host's platform, pulling it
// as policy says. The error is runtime.ErrNotFound if there is no such image and policy
// forbids pulling it, or pulling it fails.
func (s *Store) Get(ctx context.Context, ref string, policy PullPolicy) (runtime.Image, error) {
	name, err := Normalize(ref)
	if err != nil {
		return runtime.Image{}, err
	}
	if policy == PullAlways && !Local(name) {
		return s.Pull(ctx, name)
	}
	img, err := s.Conn.Client.GetImage(s.Conn.Context(ctx), name)
	if err == nil {
		return s.prepare(ctx, img)
	}
	if !errdefs.IsNotFound(err) {
		return runtime.Image{}, fmt.Errorf("image %s: %w", name, daemon.Native(err))
	}
	same, err := s.byDigest(ctx, name)
	switch {
	case err != nil:
		return runtime.Image{}, fmt.Errorf("image %s: %w", name, daemon.Native(err))
	case same != nil:
		return s.prepare(ctx, same)
	case Local(name):
		return runtime.Image{}, fmt.Errorf("image %s: %w in %s; no registry has it: build it from a Dockerfile (sbench image build)%s", name, runtime.ErrNotFound, s.Where, inCheckout(name))
	case policy == PullNever:
		return runtime.Image{}, fmt.Errorf("image %s: %w, and the pull policy is never, in %s", name, runtime.ErrNotFound, s.Where)
	}
	return s.Pull(ctx, name)
}

// byDigest returns an image of the same repository that has the reference's digest, under
// whatever name, or the image with that ID; nil if there is none.
func (s *Store) byDigest(ctx context.Context, name string) (client.Image, error) {
	if id := imageID(name); id != "" {
		return s.byIdentity(ctx, id)
	}
	named, err := reference.ParseDockerRef(name)
	digested, ok := named.(reference.Digested)
	if err != nil || !ok {
		return nil, err
	}
	list, err := s.Conn.Client.ImageService().List(s.Conn.Context(ctx), "target.digest=="+digested.Digest().String())
	if err != nil {
		return nil, err
	}
	for _, i := range list {
		if other, err := reference.ParseDockerRef(i.Name); err == nil && other.Name() == named.Name() {
			return client.NewImage(s.Conn.Client, i), nil
		}
	}
	return nil, nil
}

// byIdentity returns the image whose manifest or configuration has the digest; nil if there is none.
func (s *Store) byIdentity(ctx context.Context, id string) (client.Image, error) {
	list, err := s.Conn.Client.ListImages(s.Conn.Context(ctx))
	for _, image := range list {
		config, err := image.Config(s.Conn.Context(ctx))
		if image.Target().Digest.String() == id || err == nil && config.Digest.String() == id {
			return image, nil
		}
	}
	return nil, err
}

// imageID returns the digest if that alone names an image, as Docker shows local images: "sha256:" and 64 digits.
func imageID(ref string) string {
	id := strings.TrimPrefix(ref, "docker.io/library/")
	if digest.Digest(id).Validate() != nil {
		return ""
	}
	return id
}

// Local reports whether the reference names an image that is built and imported locally and
// so is in no registry.
func Local(ref string) bool {
	named, err := reference.ParseDockerRef(ref)
	return err == nil && (reference.Domain(named) == "sbench.local" || imageID(ref) != "")
}

// inCheckout says how a checkout of sbench makes the image, if it does.
func inCheckout(name string) string {
	if strings.HasPrefix(name, "sbench.local/base:") {
		return ", or run make image in a checkout of sbench"
	}
	return ""
}

// prepare checks the image's platform, unpacks it if necessary, and reads its configuration.
func (s *Store) prepare(ctx context.Context, img client.Image) (runtime.Image, error) {
	ctx = s.Conn.Context(ctx)
	fail := func(err error) (runtime.Image, error) {
		return runtime.Image{}, fmt.Errorf("image %s: %w", img.Name(), daemon.Native(err))
	}
	at, err := img.Config(ctx)
	if err != nil {
		return fail(err)
	}
	spec, err := readConfig(ctx, img.ContentStore(), at)
	if err != nil {
		return fail(err)
	}
	// containerd accepts a manifest without an index whatever its platform.
	if spec.OS != "linux" || spec.Architecture != goruntime.GOARCH {
		return fail(fmt.Errorf("is for %s/%s, and this host is linux/%s", spec.OS, spec.Architecture, goruntime.GOARCH))
	}
	unpacked, err := img.IsUnpacked(ctx, s.Conn.Snapshotter)
	if err != nil {
		return fail(err)
	}
	if !unpacked {
		err := s.Registry.WithClaim(ctx, func(ctx context.Context) error { return img.Unpack(ctx, s.Conn.Snapshotter) })
		if err != nil {
			return fail(fmt.Errorf("unpack: %w", err))
		}
	}
	diffs, err := img.RootFS(ctx)
	if err != nil {
		return fail(err)
	}
	if len(diffs) == 0 {
		return fail(errors.New("has no layers"))
	}
	shell := spec.Config.Shell
	if len(shell) == 0 {
		shell = []string{"/bin/sh", "-c"}
	}
	health, wait := healthOf(spec.Config.Healthcheck, shell)
	return runtime.Image{
		Ref: img.Name(), Digest: img.Target().Digest.String(), Platform: spec.OS + "/" + spec.Architecture,
		ChainID: identity.ChainID(diffs).String(),
		Env:     spec.Config.Env, User: spec.Config.User, Workdir: spec.Config.WorkingDir,
		Entrypoint: spec.Config.Entrypoint, Command: spec.Config.Cmd, Health: health, HealthWait: wait, Shell: shell, OnBuild: spec.Config.OnBuild,
	}, nil
}

// healthOf returns the command of a health check, and how long it may fail; nil for none.
func healthOf(check *dockerspec.HealthcheckConfig, shell []string) (command []string, wait time.Duration) {
	switch {
	case check == nil || len(check.Test) < 2:
		return nil, 0
	case check.Test[0] == "CMD":
		command = check.Test[1:]
	case check.Test[0] == "CMD-SHELL":
		command = slices.Concat(shell, check.Test[1:])
	}
	// The defaults are those of the Dockerfile reference.
	return command, check.StartPeriod + time.Duration(cmp.Or(check.Retries, 3))*cmp.Or(check.Interval, 30*time.Second)
}

// Import reads an OCI or Docker archive and returns its images. They get the names that the archive gives them, in full
// form. If as is not empty, the archive must contain exactly one image, which gets that name alone.
func (s *Store) Import(ctx context.Context, from io.Reader, as string) ([]runtime.Image, error) {
	if as != "" {
		if _, err := Normalize(as); err != nil {
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, daemon.BulkTimeout, fmt.Errorf("no image within %s", daemon.BulkTimeout))
	defer cancel()
	var names []string
	err := s.Registry.WithClaim(ctx, func(ctx context.Context) error {
		found, err := s.read(ctx, from)
		if as != "" {
			slices.SortFunc(found, func(a, b ocispec.Descriptor) int { return cmp.Compare(a.Digest, b.Digest) })
			found = slices.CompactFunc(found, func(a, b ocispec.Descriptor) bool { return a.Digest == b.Digest }) // with several names
			if len(found) > 1 {
				return fmt.Errorf("the archive holds %d images, and --as names one", len(found))
			}
		}
		for _, target := range found {
			name := cmp.Or(as, target.Annotations[images.AnnotationImageName], target.Annotations[ocispec.AnnotationRefName])
			if name == "" || err != nil {
				continue
			}
			if name, err = Normalize(name); err == nil {
				names = append(names, name)
				err = s.put(ctx, images.Image{Name: name, Target: target})
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("import an archive of docker save or of the OCI: %w", daemon.Native(err))
	}
	if len(names) == 0 {
		return nil, errors.New("import: the archive names no image: give it a name with --as")
	}
	var all []runtime.Image
	for _, name := range names {
		img, err := s.Conn.Client.GetImage(s.Conn.Context(ctx), name)
		if err != nil {
			return all, fmt.Errorf("import: image %s: %w", name, daemon.Native(err))
		}
		ready, err := s.prepare(ctx, img)
		if err != nil {
			return all, fmt.Errorf("import: %w", err)
		}
		all = append(all, ready)
	}
	return all, nil
}

// read reads an archive's content, and returns its images.
func (s *Store) read(ctx context.Context, from io.Reader) ([]ocispec.Descriptor, error) {
	store := s.Conn.Client.ContentStore()
	index, err := archive.ImportIndex(ctx, store, from)
	if err != nil {
		return nil, err
	}
	children := images.FilterPlatforms(images.ChildrenHandler(store), platforms.Default())
	if err := images.WalkNotEmpty(ctx, images.SetChildrenLabels(store, children), index); err != nil {
		return nil, err
	}
	return images.Children(ctx, store, index)
}

// put gives an image a name, which another image may lose.
func (s *Store) put(ctx context.Context, i images.Image) error {
	_, err := s.Conn.Client.ImageService().Create(ctx, i)
	if errdefs.IsAlreadyExists(err) {
		_, err = s.Conn.Client.ImageService().Update(ctx, i)
	}
	return err
}

// Tag gives the image source the additional name target, which another image may lose.
func (s *Store) Tag(ctx context.Context, source, target string) (runtime.Image, error) {
	img, err := s.Get(ctx, source, PullNever)
	if err != nil {
		return runtime.Image{}, err
	}
	name, err := Normalize(target)
	if err != nil {
		return runtime.Image{}, err
	}
	ctx = s.Conn.Context(ctx)
	old, err := s.Conn.Client.ImageService().Get(ctx, img.Ref)
	if err != nil {
		return runtime.Image{}, fmt.Errorf("tag %s: %w", name, daemon.Native(err))
	}
	old.Name = name
	delete(old.Labels, labelPulled)
	if err = s.put(ctx, old); err != nil {
		return runtime.Image{}, fmt.Errorf("tag %s: %w", name, daemon.Native(err))
	}
	img.Ref = name
	return img, nil
}

// List lists the names of all images in the daemon's namespace, sorted.
func (s *Store) List(ctx context.Context) ([]Info, error) {
	list, err := s.Conn.Client.ImageService().List(s.Conn.Context(ctx))
	if err != nil {
		return nil, fmt.Errorf("list images: %w", daemon.Native(err))
	}
	infos := make([]Info, 0, len(list))
	for _, i := range list {
		bytes, err := s.bytes(ctx, i)
		if err != nil {
			return nil, fmt.Errorf("size of image %s: %w", i.Name, daemon.Native(err))
		}
		infos = append(infos, Info{Ref: i.Name, Digest: i.Target.Digest.String(), Bytes: bytes, Pulled: i.Labels[labelPulled] != ""})
	}
	slices.SortFunc(infos, func(a, b Info) int { return strings.Compare(a.Ref, b.Ref) })
	return infos, nil
}

// bytes returns the size of an image's content and of its unpacked layers.
func (s *Store) bytes(ctx context.Context, i images.Image) (int64, error) {
	ctx = s.Conn.Context(ctx)
	img := client.NewImage(s.Conn.Client, i)
	bytes, err := img.Usage(ctx)
	if err != nil {
		return 0, err
	}
	layers, err := img.RootFS(ctx)
	if errdefs.IsNotFound(err) { // it is for another platform
		return bytes, nil
	}
	for n := range layers {
		usage, err := s.Conn.Snapshots().Usage(ctx, identity.ChainID(layers[:n+1]).String())
		if err != nil && !errdefs.IsNotFound(err) { // it may not be unpacked
			return 0, err
		}
		bytes += usage.Size
	}
	return bytes, err
}

// Remove removes a name as listed by [Store.List] or, failing that, in its full
// form. The content is removed once no other name and no run refers to it.
func (s *Store) Remove(ctx context.Context, ref string) error {
	remove := func(name string) error {
		return s.Conn.Client.ImageService().Delete(s.Conn.Context(ctx), name, images.SynchronousDelete())
	}
	err := remove(ref)
	if errdefs.IsNotFound(err) {
		if ref, err = Normalize(ref); err != nil {
			return err
		}
		err = remove(ref)
	}
	if err != nil {
		return fmt.Errorf("remove image %s: %w", ref, daemon.Native(err))
	}
	return nil
}
