package images

import (
	"cmp"
	"context"
	"fmt"

	client "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/core/remotes/docker/config"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
)

// hostsDirectory is where containerd's own tools look for mirrors, certificates
// and plain-http registries (registry configuration, "hosts.toml").
const hostsDirectory = "/etc/containerd/certs.d"

// Pull fetches and unpacks an image for this host's platform, with the credentials of the
// user's Docker configuration. The error is runtime.ErrNotFound if the image cannot be
// fetched, and also runtime.ErrUnavailable if that is due to the daemon.
func (s *Store) Pull(ctx context.Context, ref string) (runtime.Image, error) {
	full, err := Normalize(ref)
	if err != nil {
		return runtime.Image{}, err
	}
	if Local(full) {
		return runtime.Image{}, fmt.Errorf("image %s: no registry has it; %w in %s", full, runtime.ErrNotFound, s.Where)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, daemon.BulkTimeout, fmt.Errorf("no image within %s", daemon.BulkTimeout))
	defer cancel()
	hosts := config.HostOptions{HostDir: config.HostDirFromRoot(cmp.Or(s.HostsDir, hostsDirectory)), Credentials: credentials}
	var img client.Image
	err = s.Registry.WithClaim(ctx, func(ctx context.Context) (err error) {
		img, err = s.Conn.Client.Pull(ctx, full,
			client.WithResolver(docker.NewResolver(docker.ResolverOptions{Hosts: config.ConfigureHosts(ctx, hosts)})),
			client.WithPullLabel(labelPulled, "true"), client.WithPullUnpack, client.WithPullSnapshotter(s.Conn.Snapshotter),
		)
		return err
	})
	if err != nil {
		return runtime.Image{}, fmt.Errorf("image %s: %w in %s; pull: %w", full, runtime.ErrNotFound, s.Where, daemon.Native(err))
	}
	return s.prepare(ctx, img)
}

// credentials looks in the user's Docker configuration and asks its credential helpers. For
// containerd, an empty user name with a secret is an identity token.
func credentials(host string) (user, secret string, err error) {
	registry, err := name.NewRegistry(host, name.WeakValidation)
	if err != nil {
		return "", "", fmt.Errorf("registry %q: %w", host, err)
	}
	auth, err := authn.DefaultKeychain.Resolve(registry)
	if err != nil {
		return "", "", fmt.Errorf("credentials for %s: %w", host, err)
	}
	cfg, err := auth.Authorization()
	if err != nil {
		return "", "", fmt.Errorf("credentials for %s: %w", host, err)
	}
	if cfg.IdentityToken != "" {
		return "", cfg.IdentityToken, nil
	}
	return cfg.Username, cfg.Password, nil
}
