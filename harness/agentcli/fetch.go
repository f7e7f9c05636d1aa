package agentcli

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/securebench/sbench/workspace"
)

const (
	maxManifest = 4 << 20          // bytes of a version's metadata
	maxArchive  = 512 << 20        // bytes of a packed package
	maxUnpacked = 2 << 30          // bytes of the files in a package
	maxFiles    = 20000            // in a package
	askTimeout  = 30 * time.Second // for a version's metadata
	loadTimeout = 10 * time.Minute // for an archive
	packageDir  = "package"        // holds everything in an archive
)

type manifest struct {
	Version string
	Dist    struct{ Integrity, Tarball string }
}

func (c *Cache) manifest(ctx context.Context, name, version string) (manifest, error) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var m manifest
	resp, err := get(ctx, strings.TrimSuffix(c.Registry, "/")+"/"+url.PathEscape(name)+"/"+url.PathEscape(version))
	if err != nil {
		return m, err
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(io.LimitReader(resp.Body, maxManifest)).Decode(&m); err != nil {
		return m, fmt.Errorf("%w: the server that answers is not a registry: %w", ErrUnreachable, err)
	}
	return m, nil
}

func get(ctx context.Context, address string) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	resp, err := http.DefaultClient.Do(req)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %w", ErrUnreachable, err)
	case resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusMethodNotAllowed:
		return nil, errors.Join(fmt.Errorf("%w: the registry answers %s", ErrNoVersion, resp.Status), resp.Body.Close())
	case resp.StatusCode != http.StatusOK:
		return nil, errors.Join(fmt.Errorf("%w: the registry answers %s", ErrUnreachable, resp.Status), resp.Body.Close())
	}
	return resp, nil
}

func (c *Cache) fetch(ctx context.Context, p Package, exact string) (Installed, error) {
	m, err := c.manifest(ctx, p.Name, exact+p.Suffix)
	if err != nil {
		return Installed{}, err
	}
	want, err := sha512Of(m.Dist.Integrity)
	if err != nil {
		return Installed{}, err
	}
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return Installed{}, err
	}
	work, err := os.MkdirTemp(c.Dir, ".new-*")
	if err != nil {
		return Installed{}, err
	}
	defer func() { _ = os.RemoveAll(work) }()
	archive := filepath.Join(work, "archive.tgz")
	if err := c.download(ctx, p.Name, exact, m.Dist.Tarball, want, archive); err != nil {
		return Installed{}, err
	}
	in := Installed{Package: p.Name, Version: exact, Integrity: m.Dist.Integrity, Time: time.Now().UTC(), Dir: c.treePath(m.Dist.Integrity)}
	tree := filepath.Join(work, "tree")
	if err := unpack(archive, tree); err != nil {
		return in, err
	}
	found, err := digestTree(ctx, tree)
	if err != nil {
		return in, err
	}
	in.Tree, in.Bytes = found.Digest, found.Bytes
	err = os.Rename(tree, in.Dir)
	if errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, fs.ErrExist) { // another process installed it first
		err = in.check(ctx)
	}
	return in, err
}

// sha512Of returns the sha512 of a registry's integrity value and ignores other digests.
func sha512Of(integrity string) ([]byte, error) {
	for field := range strings.FieldsSeq(integrity) {
		if text, ok := strings.CutPrefix(field, "sha512-"); ok {
			sum, err := base64.StdEncoding.DecodeString(text)
			if err == nil && len(sum) == sha512.Size {
				return sum, nil
			}
		}
	}
	return nil, fmt.Errorf("%w: the registry has no sha512 of the package", ErrIntegrity)
}

func (c *Cache) treePath(integrity string) string {
	sum, err := sha512Of(integrity)
	if err != nil {
		return ""
	}
	return filepath.Join(c.Dir, "sha512-"+hex.EncodeToString(sum[:20]))
}

func (c *Cache) download(ctx context.Context, pkg, version, address string, want []byte, to string) error {
	ctx, cancel := context.WithTimeout(ctx, loadTimeout)
	defer cancel()
	resp, err := get(ctx, address)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	c.Logger.Info("download", "package", pkg, "version", version, "bytes", resp.ContentLength)
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	hash := sha512.New()
	n, err := io.Copy(io.MultiWriter(f, hash), io.LimitReader(resp.Body, maxArchive+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	if n > maxArchive {
		return fmt.Errorf("%w: the archive is larger than %d bytes", ErrIntegrity, maxArchive)
	}
	if got := hash.Sum(nil); string(got) != string(want) {
		return fmt.Errorf("%w: the archive of %d bytes has sha512 %x…, the registry says %x…", ErrIntegrity, n, got[:8], want[:8])
	}
	return nil
}

// unpack writes the regular files of an npm archive below to, which must not exist. It refuses any
// entry but a file or directory below packageDir, so that no link can lead out of to.
func unpack(archive, to string) error {
	f, err := os.Open(archive)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	zipped, err := gzip.NewReader(f)
	if err != nil {
		return fmt.Errorf("archive: %w", err)
	}
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	root, err := os.OpenRoot(to)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	entries, remaining := tar.NewReader(zipped), int64(maxUnpacked)
	for count := 0; ; count++ {
		h, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("archive: %w", err)
		}
		if remaining -= h.Size; remaining < 0 || count == maxFiles {
			return fmt.Errorf("archive: more than %d bytes or %d files", int64(maxUnpacked), maxFiles)
		}
		if err := unpackEntry(entries, h, root); err != nil {
			return fmt.Errorf("archive: entry %q: %w", h.Name, err)
		}
	}
}

func unpackEntry(from io.Reader, h *tar.Header, root *os.Root) error {
	name, ok := strings.CutPrefix(path.Clean(h.Name), packageDir+"/")
	switch {
	case h.Typeflag == tar.TypeDir && path.Clean(h.Name) == packageDir:
		return nil
	case h.Typeflag == tar.TypeDir && ok && filepath.IsLocal(name):
		return root.MkdirAll(name, 0o755)
	case h.Typeflag != tar.TypeReg:
		return fmt.Errorf("is no file (type %q)", h.Typeflag)
	case !ok || !filepath.IsLocal(name):
		return errors.New("is not below " + packageDir)
	}
	if err := root.MkdirAll(path.Dir(name), 0o755); err != nil {
		return err
	}
	mode := fs.FileMode(0o644)
	if h.Mode&0o111 != 0 {
		mode = 0o755
	}
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, from)
	return errors.Join(err, f.Chmod(mode), f.Close())
}

// digestTree digests a directory tree. It is an error if the tree has a special file, because a
// special file has no digest.
func digestTree(ctx context.Context, dir string) (workspace.TreeReport, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return workspace.TreeReport{}, err
	}
	defer func() { _ = root.Close() }()
	tree, err := workspace.DigestTree(ctx, root, workspace.TreeOptions{})
	if err == nil && len(tree.Dropped) > 0 {
		err = fmt.Errorf("%w: %s is no file", ErrIntegrity, tree.Dropped[0])
	}
	return tree, err
}
