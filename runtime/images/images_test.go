package images_test

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	sbruntime "github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
	"github.com/securebench/sbench/runtime/sandbox"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	m.Run()
}

// smallImage has two layers, a user and a working directory.
func smallImage(t *testing.T, arch string) v1.Image {
	t.Helper()
	img := v1.Image(empty.Image)
	for _, files := range []map[string]string{
		{"etc/passwd": "root:x:0:0::/root:/bin/sh\nagent:x:1234:1234::/home/agent:/bin/sh\n", "app/data": "below\n", "app/gone": "x"},
		{"app/data": "above\n", "app/.wh.gone": ""},
	} {
		var buf bytes.Buffer
		w := tar.NewWriter(&buf)
		for name, content := range files {
			must.Do(t, w.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(content))}))
			_, err := io.WriteString(w, content)
			must.Do(t, err)
		}
		must.Do(t, w.Close())
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(buf.Bytes())), nil })
		must.Do(t, err)
		img, err = mutate.AppendLayers(img, layer)
		must.Do(t, err)
	}
	cfg, err := img.ConfigFile()
	must.Do(t, err)
	cfg = cfg.DeepCopy()
	cfg.OS, cfg.Architecture = "linux", arch
	cfg.Config.User, cfg.Config.WorkingDir, cfg.Config.Env = "agent", "/app", []string{"MARK=yes"}
	img, err = mutate.ConfigFile(img, cfg)
	must.Do(t, err)
	return img
}

// aRegistry starts a registry that serves plain HTTP on loopback and wants credentials if
// user is not empty. It returns its address.
func aRegistry(t *testing.T, user, password string) string {
	t.Helper()
	handler := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if u, p, ok := r.BasicAuth(); user != "" && (!ok || u != user || p != password) {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			http.Error(w, "unauthorized", http.StatusUnauthorized)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

func push(t *testing.T, ref string, img v1.Image) v1.Hash {
	t.Helper()
	r, err := name.ParseReference(ref)
	must.Do(t, err)
	must.Do(t, remote.Write(r, img, remote.WithAuthFromKeychain(authn.DefaultKeychain)))
	digest, err := img.Digest()
	must.Do(t, err)
	return digest
}

// TestPull pulls from a registry with the credentials of the Docker configuration, by tag
// and by digest, and uses the image.
func TestPull(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	host := aRegistry(t, "user", "secret")
	config := t.TempDir()
	t.Setenv("DOCKER_CONFIG", config)
	auth := must.JSON(t, map[string]any{"auths": map[string]any{host: map[string]string{"username": "user", "password": "secret"}}})
	must.Do(t, os.WriteFile(filepath.Join(config, "config.json"), auth, 0o600))
	ref := host + "/team/small:1"
	digest := push(t, ref, smallImage(t, runtime.GOARCH))

	if _, err := c.Images.Get(ctx, ref, images.PullNever); !errors.Is(err, sbruntime.ErrNotFound) || !strings.Contains(err.Error(), "sbench image import") {
		t.Errorf("never: %v", err)
	}
	img, err := c.Images.Get(ctx, ref, images.PullMissing)
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, c.Images.Remove(ctx, ref)) })
	if img.Digest != digest.String() || img.Workdir != "/app" || img.User != "agent" || img.Platform != "linux/"+runtime.GOARCH {
		t.Errorf("got %+v", img)
	}
	img, err = c.Images.Get(ctx, host+"/team/small@"+digest.String(), images.PullNever) // the same
	must.Do(t, err)
	checkView(t, c, img)
	checkUser(t, c, img)
	tag := host + "/team/tagged:1" // which no registry has
	_, err = c.Images.Tag(ctx, ref, tag)
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, c.Images.Remove(ctx, tag)) })
	list, err := c.Images.List(ctx)
	must.Do(t, err)
	for _, i := range list {
		if strings.HasPrefix(i.Ref, host) && i.Pulled == (i.Ref == tag) {
			t.Errorf("pulled: %+v", i)
		}
	}

	must.Do(t, os.WriteFile(filepath.Join(config, "config.json"), []byte("{}"), 0o600))
	_, err = c.Images.Get(ctx, ref, images.PullAlways)
	must.Is(t, err, sbruntime.ErrNotFound) // without credentials
}

// checkView reads both layers as one file system.
func checkView(t *testing.T, c *host.Host, img sbruntime.Image) {
	t.Helper()
	run, err := c.NewRun(context.Background())
	must.Do(t, err)
	defer func() { must.Do(t, run.Close(context.Background())) }()
	v, err := run.View(context.Background(), img)
	must.Do(t, err)
	defer func() { must.Do(t, v.Close()) }()
	got, _ := v.Root().ReadFile("app/data")
	must.Equal(t, "above\n", string(got))
	_, err = v.Root().Stat("app/gone")
	must.Is(t, err, os.ErrNotExist)
	if err := v.Root().WriteFile("app/new", nil, 0o644); err == nil {
		t.Error("the view can be written")
	}
}

// checkUser: a sandbox runs as the image's user, who is given by name, and with that user's
// home directory.
func checkUser(t *testing.T, c *host.Host, img sbruntime.Image) {
	t.Helper()
	run, err := c.NewRun(context.Background())
	must.Do(t, err)
	defer func() { must.Do(t, run.Close(context.Background())) }()
	cfg := sbruntime.Config{Name: "user", Image: img, Limits: sbruntime.DefaultLimits()}
	made, err := run.Create(context.Background(), cfg)
	must.Do(t, err)
	defer func() { must.Do(t, made.Close(context.Background())) }()
	spec, err := made.(*sandbox.Sandbox).Spec(sbruntime.Process{Args: []string{"x"}})
	must.Do(t, err)
	if spec.Process.User.UID != 1234 || spec.Process.Cwd != "/app" || !strings.Contains(strings.Join(spec.Process.Env, " "), "HOME=/home/agent") {
		t.Errorf("process %+v in %s with %v", spec.Process.User, spec.Process.Cwd, spec.Process.Env)
	}
}

func TestPullRefusesOtherPlatforms(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	ref := aRegistry(t, "", "") + "/other:1"
	push(t, ref, smallImage(t, "s390x"))
	_, err := c.Images.Get(ctx, ref, images.PullMissing)
	must.Tells(t, err, "linux/s390x")
	_ = c.Images.Remove(ctx, ref) // it may have been stored
}

func TestPullFailures(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	host := aRegistry(t, "", "")
	for _, ref := range []string{host + "/no/such:1", "127.0.0.1:1/unreachable:1"} {
		if _, err := c.Images.Get(ctx, ref, images.PullMissing); !errors.Is(err, sbruntime.ErrNotFound) || !strings.Contains(err.Error(), ref) {
			t.Errorf("%s: %v", ref, err)
		}
	}
	_, err := c.Images.Get(ctx, "UPPER/case", images.PullMissing)
	must.Tells(t, err, "reference")
}

// TestHostsDirectory: containerd's registry configuration decides from where an image is
// fetched.
func TestHostsDirectory(t *testing.T) {
	hosts := t.TempDir()
	mirror := aRegistry(t, "", "")
	push(t, mirror+"/team/small:1", smallImage(t, runtime.GOARCH))
	must.Do(t, os.Mkdir(filepath.Join(hosts, "registry.test"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(hosts, "registry.test", "hosts.toml"),
		[]byte("server = \"http://"+mirror+"\"\n[host.\"http://"+mirror+"\"]\n  capabilities = [\"pull\", \"resolve\"]\n"), 0o644))
	ctx, c := context.Background(), containerdtest.Open(t)
	c.Images.HostsDir = hosts
	img, err := c.Images.Get(ctx, "registry.test/team/small:1", images.PullMissing)
	must.Do(t, err)
	must.Do(t, c.Images.Remove(ctx, img.Ref))
}

// TestImport imports both archive formats, under their own names and under another.
func TestImport(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	img := smallImage(t, runtime.GOARCH)
	digest, err := img.Digest()
	must.Do(t, err)
	tag, err := name.NewTag("archive.test/small:1")
	must.Do(t, err)
	docker := filepath.Join(t.TempDir(), "docker.tar")
	must.Do(t, tarball.WriteToFile(docker, tag, img))
	tests := []struct {
		name, archive, as, want string
		sameDigest              bool
	}{
		{"docker", docker, "", "archive.test/small:1", false},
		{"docker renamed", docker, "archive.test/renamed:2", "archive.test/renamed:2", false},
		{"oci named by option", ociArchive(t, "", img), "archive.test/oci:1", "archive.test/oci:1", true},
		{"oci named by itself", ociArchive(t, "archive.test/self:1", img), "", "archive.test/self:1", true},
		{"oci named without a domain", ociArchive(t, "short:1", img), "", "docker.io/library/short:1", true},
		{"oci renamed", ociArchive(t, "archive.test/self:1", img), "archive.test/other:1", "archive.test/other:1", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f, err := os.Open(tt.archive)
			must.Do(t, err)
			defer func() { _ = f.Close() }()
			got, err := c.Images.Import(ctx, f, tt.as)
			must.Do(t, err)
			if len(got) != 1 || got[0].Ref != tt.want || tt.sameDigest && got[0].Digest != digest.String() {
				t.Fatalf("got %+v, want %s with %s", got, tt.want, digest)
			}
			must.Do(t, c.Images.Remove(ctx, tt.want))
			for _, own := range []string{"archive.test/small:1", "archive.test/self:1"} {
				if c.Images.Remove(ctx, own) == nil {
					t.Errorf("the archive named an image %s, too", own)
				}
			}
		})
	}
	t.Run("oci without a name", func(t *testing.T) {
		f, err := os.Open(ociArchive(t, "", img))
		must.Do(t, err)
		defer func() { _ = f.Close() }()
		_, err = c.Images.Import(ctx, f, "")
		must.Tells(t, err, "--as")
	})
	t.Run("two images, one of them twice", func(t *testing.T) {
		f, err := os.Open(ociArchive(t, "archive.test/several:1", img, smallImage(t, "s390x"), img))
		must.Do(t, err)
		defer func() { _ = f.Close() }()
		_, err = c.Images.Import(ctx, f, "archive.test/one:1")
		must.Tells(t, err, "holds 2 images")
	})
	t.Run("no archive", func(t *testing.T) {
		if _, err = c.Images.Import(ctx, strings.NewReader("nonsense"), ""); err == nil {
			t.Error("accepted nonsense")
		}
	})
}

func TestTag(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	img, err := c.Images.Tag(ctx, containerdtest.Image, "python:3.11-slim")
	must.Do(t, err)
	must.Equal(t, "docker.io/library/python:3.11-slim", img.Ref)
	_, err = c.Images.Get(ctx, "python:3.11-slim", images.PullNever)
	must.Report(t, err)
	for ref, want := range map[string]error{
		"python:3.11-slim@" + img.Digest:           nil,
		"python@" + img.Digest:                     nil,
		"ruby@" + img.Digest:                       sbruntime.ErrNotFound,
		"python@sha256:" + strings.Repeat("0", 64): sbruntime.ErrNotFound,
		img.Digest:                          nil,
		"sha256:" + strings.Repeat("0", 64): sbruntime.ErrNotFound,
	} {
		if got, err := c.Images.Get(ctx, ref, images.PullNever); !errors.Is(err, want) || err == nil && got.Digest != img.Digest {
			t.Errorf("%s: %+v, %v", ref, got, err)
		}
	}
	must.Do(t, c.Images.Remove(ctx, "python:3.11-slim"))
	_, err = c.Images.Tag(ctx, "no.such/image:1", "x")
	must.Is(t, err, sbruntime.ErrNotFound) // tag of nothing
}

// ociArchive returns the path of a tar archive of an image layout. It names the images as containerd does or, by a
// ref without a domain, as skopeo does.
func ociArchive(t *testing.T, ref string, all ...v1.Image) string {
	t.Helper()
	dir := t.TempDir()
	p, err := layout.Write(dir, empty.Index)
	must.Do(t, err)
	var opts []layout.Option
	if strings.Contains(ref, "/") {
		opts = append(opts, layout.WithAnnotations(map[string]string{"io.containerd.image.name": ref}))
	} else if ref != "" {
		opts = append(opts, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": ref}))
	}
	for _, img := range all {
		must.Do(t, p.AppendImage(img, opts...))
	}
	archive := filepath.Join(t.TempDir(), "oci.tar")
	f, err := os.Create(archive)
	must.Do(t, err)
	w := tar.NewWriter(f)
	must.Do(t, w.AddFS(os.DirFS(dir)))
	must.Do(t, w.Close())
	must.Do(t, f.Close())
	return archive
}
