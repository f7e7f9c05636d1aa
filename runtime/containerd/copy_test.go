package containerd_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	sbruntime "github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

// TestCopy copies an index by tag and by digest, and an image that only the daemon has, to a
// directory and to another registry, and makes them ready from there where the first registry
// is gone.
func TestCopy(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	host := aRegistry(t, "", "")
	index := v1.ImageIndex(mutate.AppendManifests(empty.Index,
		mutate.IndexAddendum{Add: smallImage(t, runtime.GOARCH), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: runtime.GOARCH}}},
		mutate.IndexAddendum{Add: smallImage(t, "s390x"), Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: "s390x"}}},
	))
	tag, err := name.ParseReference(host + "/team/many:1")
	must(t, err)
	must(t, remote.WriteIndex(tag, index))
	digest, err := index.Digest()
	must(t, err)
	const local = "sbench.local/copied:1"
	base, err := c.Tag(ctx, containerdtest.Image, local)
	must(t, err)
	want := map[string]string{tag.String(): digest.String(), host + "/team/many@" + digest.String(): digest.String(), local: base.Digest}
	t.Cleanup(func() {
		for ref := range want {
			if err := c.RemoveImage(ctx, ref); !errors.Is(err, sbruntime.ErrNotFound) {
				must(t, err)
			}
		}
	})
	for _, place := range []string{filepath.Join(t.TempDir(), "layout"), aRegistry(t, "", "") + "/mirror/of"} {
		t.Run(map[bool]string{true: "directory", false: "registry"}[filepath.IsAbs(place)], func(t *testing.T) {
			for range 2 { // the second time nothing is new
				for ref, digest := range want {
					got, err := c.Copy(ctx, ref, place)
					if err != nil || got != digest {
						t.Fatalf("copy %s: %s, %v; want %s", ref, got, err, digest)
					}
				}
			}
			must(t, c.RemoveImage(ctx, local))
			for ref, digest := range want {
				if _, err := c.Image(ctx, ref, containerd.PullNever); !errors.Is(err, sbruntime.ErrNotFound) {
					t.Fatalf("%s is here already: %v", ref, err)
				}
				img, err := c.Prefetch(ctx, ref, place)
				if err != nil || img.Digest != digest {
					t.Fatalf("prefetch %s: %+v, %v; want %s", ref, img, err, digest)
				}
				if ref != local {
					checkView(t, c, img)
				}
			}
			list, err := c.Images(ctx)
			must(t, err)
			for _, i := range list {
				if strings.Contains(i.Ref, "mirror/of") {
					t.Errorf("the name of the copy is left: %s", i.Ref)
				}
				if _, copied := want[i.Ref]; copied && !i.Pulled {
					t.Errorf("%s does not count as pulled", i.Ref)
				}
			}
			for ref := range want {
				if ref != local {
					must(t, c.RemoveImage(ctx, ref))
				}
			}
		})
	}
	if _, err := c.Prefetch(ctx, host+"/team/other:1", filepath.Join(t.TempDir(), "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such directory: %v", err)
	}
	damaged := filepath.Join(t.TempDir(), "damaged")
	_, err = c.Copy(ctx, tag.String(), damaged)
	must(t, err)
	spoil(t, filepath.Join(damaged, "blobs/sha256"))
	if img, err := c.Prefetch(ctx, tag.String(), damaged); err == nil {
		t.Errorf("a damaged layout gave %+v", img)
	}
}

// spoil changes a byte of the largest file in a directory.
func spoil(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	must(t, err)
	var largest string
	var size int64
	for _, e := range entries {
		info, err := e.Info()
		must(t, err)
		if info.Size() > size {
			largest, size = filepath.Join(dir, e.Name()), info.Size()
		}
	}
	text, err := os.ReadFile(largest)
	must(t, err)
	text[len(text)/2] ^= 1
	must(t, os.WriteFile(largest, text, 0o644))
}

// TestEvict: what was not used for longest goes first, and what images share counts once.
func TestEvict(t *testing.T) {
	ctx, c := context.Background(), containerdtest.Open(t)
	var refs []string
	for _, n := range []string{"1", "2", "3"} {
		ref := "sbench.local/evicted:" + n
		_, err := c.Tag(ctx, containerdtest.Image, ref)
		must(t, err)
		t.Cleanup(func() { must(t, c.RemoveImage(ctx, ref)) })
		refs = append(refs, ref)
	}
	_, err := c.Image(ctx, refs[0], containerd.PullNever) // used now, and so the last
	must(t, err)
	list, err := c.Images(ctx)
	must(t, err)
	candidates := slices.DeleteFunc(list, func(i containerd.ImageInfo) bool { return !slices.Contains(refs, i.Ref) })
	gone, err := c.Evict(ctx, candidates, 1)
	must(t, err)
	var names []string
	for _, i := range gone {
		names = append(names, i.Ref)
	}
	if want := []string{refs[1], refs[2], refs[0]}; !slices.Equal(names, want) {
		t.Errorf("evicted %v, want %v", names, want)
	}
	if gone, err := c.Evict(ctx, candidates, 1<<50); err != nil || len(gone) > 0 {
		t.Errorf("with room for all: %v, %v", gone, err)
	}
}
