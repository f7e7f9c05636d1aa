// Package agentcli installs the command-line programs of agents. It downloads their platform
// packages from an npm registry, checks them against the registry's sha512, and unpacks them
// into the directories of a [Cache], which are named by that digest. It executes nothing in a
// package.
package agentcli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/workspace"
)

// Latest is the tag of the newest version.
const Latest = "latest"

// defaultRegistry is the registry that npm uses unless it is told another.
const defaultRegistry = "https://registry.npmjs.org/"

// Errors that callers distinguish with errors.Is.
var (
	// ErrUnreachable means that neither the registry nor the cache gave a usable answer.
	ErrUnreachable = errors.New("registry unreachable")
	// ErrNoVersion means that the registry has no such package or version.
	ErrNoVersion = errors.New("no such version")
	// ErrIntegrity means that a download does not have the registry's digest, or that files in the
	// cache have changed since they were installed.
	ErrIntegrity = errors.New("integrity check failed")
)

// A Package names a package in the registry. If all platforms' packages share one name, a
// suffix of the version selects the platform.
type Package struct {
	Name    string `key:"package" rule:"required" doc:"Its name."`                               // such as @scope/name
	Suffix  string `key:"suffix" doc:"What its versions for this platform end in."`              // such as -linux-x64, "" for none
	Program string `key:"file" rule:"required file" doc:"The program, relative to the package."` // its path in the package
}

// An Installed is a package in the cache.
type Installed struct {
	Package   string    `json:"package"`
	Version   string    `json:"version"`   // exact, without the platform's suffix
	Integrity string    `json:"integrity"` // of the archive, as the registry gives it
	Tree      string    `json:"tree"`      // digest of the unpacked files
	Bytes     int64     `json:"bytes"`     // total size of the files
	Time      time.Time `json:"time"`      // of the installation
	Dir       string    `json:"-"`         // with the files, below Cache.Dir
	Program   string    `json:"-"`         // see Package

	index string // the path of the file in which this entry is stored
}

// A Cache is a directory of packages. Its methods are safe for concurrent use, even by several
// processes.
type Cache struct {
	Dir      string       // created when needed
	Registry string       // its address
	Logger   *slog.Logger // is told when a download begins, and when Resolve returns an old answer
}

// Open returns the cache in the directory SBENCH_CACHE, or in the user's cache directory, for the registry that npm would
// use.
func Open(logger *slog.Logger) (*Cache, error) {
	dir := os.Getenv("SBENCH_CACHE")
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("no cache directory: %w; set SBENCH_CACHE", err)
		}
		dir = filepath.Join(user, "sbench")
	}
	registry := cmp.Or(os.Getenv("npm_config_registry"), os.Getenv("NPM_CONFIG_REGISTRY"), defaultRegistry)
	return &Cache{Dir: filepath.Join(dir, "tools"), Registry: registry, Logger: logger}, nil
}

// Resolve returns the exact version for a version or tag. For a tag it asks the registry. If it
// cannot reach the registry, exact is the last known answer.
func (c *Cache) Resolve(ctx context.Context, p Package, version string) (exact string, err error) {
	if isExact(version) {
		if _, err := c.readEntry(c.indexPath(p, version)); errors.Is(err, fs.ErrNotExist) {
			if _, err = c.manifest(ctx, p.Name, version+p.Suffix); errors.Is(err, ErrNoVersion) {
				return "", fmt.Errorf("%s@%s: %w", p.Name, version, err)
			}
		}
		return version, nil // Install reports other faults
	}
	m, err := c.manifest(ctx, p.Name, version)
	if errors.Is(err, ErrUnreachable) {
		if last, readErr := c.readEntry(c.indexPath(p, version)); readErr == nil {
			c.Logger.Warn("the registry cannot be reached: using the version that the tag last stood for", "package", p.Name, "tag", version, "version", last.Version)
			return last.Version, nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("%s@%s: %w", p.Name, version, err)
	}
	exact = strings.TrimSuffix(m.Version, p.Suffix)
	if !isExact(exact) {
		return "", fmt.Errorf("%s@%s: %w: the registry answers with version %q", p.Name, version, ErrNoVersion, m.Version)
	}
	return exact, c.writeIndex(p, version, Installed{Package: p.Name, Version: exact})
}

// isExact reports whether version is a version and not a tag: it starts with a digit.
func isExact(version string) bool {
	return version != "" && version[0] >= '0' && version[0] <= '9' && fileName(version) == version
}

// Install returns the package from the cache after checking its files, or downloads it.
func (c *Cache) Install(ctx context.Context, p Package, exact string) (Installed, error) {
	if !isExact(exact) {
		return Installed{}, fmt.Errorf("%s@%s: %w: not an exact version", p.Name, exact, ErrNoVersion)
	}
	in, err := c.readEntry(c.indexPath(p, exact))
	if err == nil {
		err = in.check(ctx)
	}
	if errors.Is(err, fs.ErrNotExist) {
		if in, err = c.fetch(ctx, p, exact); err != nil {
			return Installed{}, fmt.Errorf("%s@%s: %w", p.Name, exact, err)
		}
		err = c.writeIndex(p, exact, in)
	}
	in.Program = p.Program
	return in, err
}

// check compares the files in the cache with the digest of the files that were unpacked.
func (in Installed) check(ctx context.Context) error {
	tree, err := digestTree(ctx, in.Dir)
	if err != nil {
		return err
	}
	if tree.Digest != in.Tree {
		return fmt.Errorf("%s@%s: %w: %s has changed since it was installed; remove it to install it again", in.Package, in.Version, ErrIntegrity, in.Dir)
	}
	return nil
}

// List returns the installed packages that can be read, sorted by package and version.
func (c *Cache) List() ([]Installed, error) {
	entries, err := os.ReadDir(filepath.Join(c.Dir, index))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var all []Installed
	for _, e := range entries {
		in, err := c.readEntry(filepath.Join(c.Dir, index, e.Name()))
		if err == nil && in.Integrity != "" { // else it is the version of a tag
			all = append(all, in)
		}
	}
	slices.SortFunc(all, func(a, b Installed) int { return strings.Compare(a.Package+a.Version, b.Package+b.Version) })
	return all, err
}

// Remove removes the installed packages that match, and returns them. It does not notice that a run
// uses a package.
func (c *Cache) Remove(match func(Installed) bool) ([]Installed, error) {
	all, err := c.List()
	if err != nil {
		return nil, err
	}
	var removed []Installed
	for _, in := range all {
		if !match(in) {
			continue
		}
		// The entry first: an installation that finds no files fetches them again.
		if err := errors.Join(os.Remove(in.index), os.RemoveAll(in.Dir)); err != nil {
			return removed, fmt.Errorf("remove %s@%s: %w", in.Package, in.Version, err)
		}
		removed = append(removed, in)
	}
	return removed, nil
}

const index = "installed" // the directory of a cache's entries

func (c *Cache) indexPath(p Package, version string) string {
	return filepath.Join(c.Dir, index, fileName(p.Name+"@"+version+p.Suffix)+".json")
}

func (c *Cache) readEntry(path string) (Installed, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Installed{}, err
	}
	var in Installed
	if err := json.Unmarshal(data, &in); err != nil {
		return Installed{}, fmt.Errorf("%s: %w; remove it to install the package again", path, err)
	}
	in.Dir, in.index = c.treePath(in.Integrity), path
	return in, nil
}

func (c *Cache) writeIndex(p Package, version string, in Installed) error {
	path := c.indexPath(p, version)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	_, err := workspace.ReplaceFile(path, 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(in) })
	return err
}

// fileName turns a name into a single path element.
func fileName(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("@._+-", r) {
			return r
		}
		return '_'
	}, name)
}
