package agentcli_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/securebench/sbench/harness/agentcli"
	"github.com/securebench/sbench/internal/test/must"
)

// registry is an npm registry with the packages that were added to it.
type registry struct {
	*httptest.Server
	mu       sync.Mutex
	versions map[string]map[string]string // package, then version or tag
	archives map[string][]byte            // by package and exact version
	signed   map[string][]byte            // what the integrity is computed from, if not the archive
	asked    int
}

func newRegistry(t *testing.T) *registry {
	r := &registry{versions: map[string]map[string]string{}, archives: map[string][]byte{}, signed: map[string][]byte{}}
	r.Server = httptest.NewServer(r)
	t.Cleanup(r.Close)
	return r
}

func (r *registry) add(pkg, tag, version string, archive []byte) {
	r.versions[pkg] = map[string]string{tag: version, version: version}
	r.archives[pkg+"@"+version] = archive
}

func (r *registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	if key, ok := strings.CutPrefix(req.URL.Path, "/archives/"); ok {
		_, _ = w.Write(r.archives[key])
		return
	}
	i := strings.LastIndex(req.URL.Path, "/")
	pkg, version := req.URL.Path[1:i], req.URL.Path[i+1:]
	exact, ok := r.versions[pkg][version]
	if !ok {
		http.Error(w, `"version not found"`, http.StatusNotFound)
		return
	}
	signed := r.signed[pkg+"@"+exact]
	if signed == nil {
		signed = r.archives[pkg+"@"+exact]
	}
	sum := sha512.Sum512(signed)
	_ = json.NewEncoder(w).Encode(map[string]any{"name": pkg, "version": exact, "dist": map[string]any{
		"integrity": "sha1-AAAA sha512-" + base64.StdEncoding.EncodeToString(sum[:]),
		"tarball":   r.URL + "/archives/" + pkg + "@" + exact,
	}})
}

type entry struct {
	name, text string
	kind       byte
	mode       int64
}

func pack(t *testing.T, entries ...entry) []byte {
	t.Helper()
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	for _, e := range entries {
		h := &tar.Header{Name: e.name, Typeflag: e.kind, Mode: e.mode, Size: int64(len(e.text))}
		if e.kind == tar.TypeSymlink || e.kind == tar.TypeLink {
			h.Linkname, h.Size = e.text, 0
		}
		must.Do(t, w.WriteHeader(h))
		if h.Size > 0 {
			_, err := w.Write([]byte(e.text))
			must.Do(t, err)
		}
	}
	must.Do(t, w.Close())
	must.Do(t, z.Close())
	return b.Bytes()
}

var tool = agentcli.Package{Name: "@scope/agent", Suffix: "-linux-x64"}

func good(t *testing.T) []byte {
	return pack(t,
		entry{"package", "", tar.TypeDir, 0o755}, entry{"package/bin/agent", "#!/bin/sh\n", tar.TypeReg, 0o755},
		entry{"package/package.json", "{}", tar.TypeReg, 0o666},
	)
}

func TestInstall(t *testing.T) {
	ctx := context.Background()
	r := newRegistry(t)
	r.add(tool.Name, "latest", "1.2.3-linux-x64", good(t))
	r.versions[tool.Name]["latest"] = "1.2.3-linux-x64"
	var log strings.Builder
	c := &agentcli.Cache{Dir: filepath.Join(t.TempDir(), "tools"), Registry: r.URL + "/", Logger: slog.New(slog.NewTextHandler(&log, nil))}
	version, err := c.Resolve(ctx, tool, agentcli.Latest)
	if err != nil || log.Len() > 0 || version != "1.2.3" {
		t.Fatalf("latest is %q, log %q, %v", version, &log, err)
	}
	in, err := c.Install(ctx, tool, version)
	must.Do(t, err)
	for name, mode := range map[string]fs.FileMode{"bin/agent": 0o755, "package.json": 0o644} {
		if info, err := os.Stat(filepath.Join(in.Dir, name)); err != nil || info.Mode().Perm() != mode {
			t.Errorf("%s: %v %v", name, info, err)
		}
	}
	if in.Version != "1.2.3" || in.Bytes != 12 || in.Tree == "" {
		t.Errorf("installed %+v", in)
	}
	asked := r.asked
	r.Close() // from now on there is no registry
	again, err := c.Install(ctx, tool, version)
	if err != nil || again.Dir != in.Dir || r.asked != asked {
		t.Errorf("from the cache: %+v, %v", again, err)
	}
	if version, err := c.Resolve(ctx, tool, agentcli.Latest); err != nil || !strings.Contains(log.String(), "level=WARN") || version != "1.2.3" {
		t.Errorf("latest without a registry: %q, log %q, %v", version, &log, err)
	}
	_, err = c.Install(ctx, tool, "1.2.4")
	must.Is(t, err, agentcli.ErrUnreachable) // another version without a registry
	if all, err := c.List(); err != nil || len(all) != 1 || all[0].Dir != in.Dir {
		t.Errorf("list: %+v %v", all, err)
	}
	must.Do(t, os.WriteFile(filepath.Join(in.Dir, "bin/agent"), []byte("#!/bin/sH\n"), 0o755))
	_, err = c.Install(ctx, tool, version)
	must.Is(t, err, agentcli.ErrIntegrity) // a file that was changed in the cache
}

// TestRefused: a refused archive leaves nothing in the cache.
func TestRefused(t *testing.T) {
	reg := func(name, text string) entry { return entry{name, text, tar.TypeReg, 0o644} }
	tests := []struct {
		name    string
		archive []byte
		signed  []byte // nil: the archive itself
		want    error  // nil: any
	}{
		{"tampered", good(t), pack(t, reg("package/x", "y")), agentcli.ErrIntegrity},
		{"cut", good(t)[:40], good(t), agentcli.ErrIntegrity},
		{"signed but cut", good(t)[:40], nil, nil},
		{"no archive", []byte("<html>"), nil, nil},
		{"parent", pack(t, reg("package/../../evil", "x")), nil, nil},
		{"parent alone", pack(t, reg("../evil", "x")), nil, nil},
		{"absolute", pack(t, reg("/evil", "x")), nil, nil},
		{"beside the directory", pack(t, reg("evil", "x")), nil, nil},
		{"link", pack(t, entry{"package/l", "/etc", tar.TypeSymlink, 0o777}), nil, nil},
		{"hard link", pack(t, entry{"package/l", "/etc/passwd", tar.TypeLink, 0o777}), nil, nil},
		{"device", pack(t, entry{"package/d", "", tar.TypeChar, 0o777}), nil, nil},
		{"twice", pack(t, reg("package/a", "1"), reg("package/a", "2")), nil, nil},
		{"file and directory", pack(t, reg("package/a", "1"), reg("package/a/b", "2")), nil, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := newRegistry(t)
			r.add(tool.Name, "latest", "1.0.0-linux-x64", tt.archive)
			if tt.signed != nil {
				r.signed[tool.Name+"@1.0.0-linux-x64"] = tt.signed
			}
			dir := t.TempDir()
			c := &agentcli.Cache{Dir: dir, Registry: r.URL, Logger: slog.New(slog.DiscardHandler)}
			_, err := c.Install(context.Background(), tool, "1.0.0")
			if err == nil || tt.want != nil && !errors.Is(err, tt.want) {
				t.Errorf("got %v, want %v", err, tt.want)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left %v, %v", left, err)
			}
		})
	}
}

// TestRemove: what is removed is gone, and the rest stays.
func TestRemove(t *testing.T) {
	ctx := context.Background()
	r := newRegistry(t)
	c := &agentcli.Cache{Dir: t.TempDir(), Registry: r.URL, Logger: slog.New(slog.DiscardHandler)}
	for _, version := range []string{"1.0.0", "1.1.0"} {
		r.add(tool.Name, "latest", version+tool.Suffix, pack(t, entry{"package/version", version, tar.TypeReg, 0o644}))
		_, err := c.Install(ctx, tool, version)
		must.Do(t, err)
	}
	removed, err := c.Remove(func(in agentcli.Installed) bool { return in.Version == "1.0.0" })
	if err != nil || len(removed) != 1 || removed[0].Version != "1.0.0" {
		t.Fatalf("removed %+v, %v", removed, err)
	}
	_, err = os.Stat(removed[0].Dir)
	must.Is(t, err, fs.ErrNotExist) // its files
	if left, err := c.List(); err != nil || len(left) != 1 || left[0].Version != "1.1.0" {
		t.Errorf("left %+v, %v", left, err)
	}
	_, err = c.Install(ctx, tool, "1.1.0")
	must.Report(t, err)
	if removed, err := c.Remove(func(agentcli.Installed) bool { return false }); err != nil || len(removed) > 0 {
		t.Errorf("removed %+v, %v", removed, err)
	}
}

func TestUnknown(t *testing.T) {
	r := newRegistry(t)
	c := &agentcli.Cache{Dir: t.TempDir(), Registry: r.URL, Logger: slog.New(slog.DiscardHandler)}
	_, err := c.Resolve(context.Background(), tool, "beta")
	must.Is(t, err, agentcli.ErrNoVersion) // unknown tag
	for _, version := range []string{"9.9.9", "", "../../x", "1/../../x"} {
		if _, err := c.Install(context.Background(), tool, version); !errors.Is(err, agentcli.ErrNoVersion) {
			t.Errorf("version %q: %v", version, err)
		}
	}
}

func TestInstallTogether(t *testing.T) {
	r := newRegistry(t)
	r.add(tool.Name, "latest", "1.0.0-linux-x64", good(t))
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			c := &agentcli.Cache{Dir: dir, Registry: r.URL, Logger: slog.New(slog.DiscardHandler)} // stands for a process
			_, err := c.Install(context.Background(), tool, "1.0.0")
			must.Report(t, err)
		})
	}
	wg.Wait()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 { // index and the package
		t.Errorf("left %v, %v", entries, err)
	}
}
