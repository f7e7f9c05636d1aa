package workspace

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// AttributesSuffix is appended to the name of a stored tree to get the name of the list of
// attributes that its entries have lost.
const AttributesSuffix = ".attributes.jsonl"

// Kept is a copy that may have been made with TreeOptions.Own, and beside it the
// list of the attributes that it lost. Both may have been changed since: nothing
// outside Root is read, no pipe is waited for, and a list that is not the one
// of the digest, or not the tree's, is an error that matches ErrAttributes.
type Kept struct {
	Root *os.Root // holds both
	Name string   // of the tree, relative to Root
	List string   // digest of the list as AttributesWriter returns it; "" for none
}

// list opens the list after comparing it with its digest. The reader is nil if
// there is none.
func (k Kept) list() (*attributesReader, io.Closer, error) {
	if k.List == "" {
		return nil, io.NopCloser(nil), nil
	}
	f, err := k.Root.OpenFile(path.Clean(k.Name)+AttributesSuffix, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("%w: it is missing", ErrAttributes)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrAttributes, err)
	}
	if err := checkList(f, k.List); err != nil {
		shut(f)
		return nil, nil, err
	}
	return newAttributesReader(f), f, nil
}

// checkList reads f from its start and leaves it there.
func checkList(f *os.File, digest string) error {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxListBytes {
		return errors.Join(err, fmt.Errorf("%w: it is no regular file of at most %d bytes", ErrAttributes, maxListBytes))
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, io.LimitReader(f, maxListBytes)); err != nil {
		return err
	}
	if "sha256:"+hex.EncodeToString(sum.Sum(nil)) != digest {
		return fmt.Errorf("%w: its bytes are not what its digest says", ErrAttributes)
	}
	_, err = f.Seek(0, io.SeekStart)
	return err
}

// Digest is DigestTree of the tree as it was before it was kept.
func (k Kept) Digest(ctx context.Context) (TreeReport, error) {
	var report TreeReport
	err := k.with(func(tree *os.Root, list *attributesReader) (err error) {
		report, err = DigestTree(ctx, tree, TreeOptions{attributes: list})
		return err
	})
	return report, err
}

// Restore is CopyTree of the tree as it was before it was kept, with its owners
// and modes. It needs the right to change owners if the list names other ones.
func (k Kept) Restore(ctx context.Context, dst *os.Root, opts TreeOptions) (TreeReport, error) {
	var report TreeReport
	err := k.with(func(tree *os.Root, list *attributesReader) (err error) {
		opts.Preserve, opts.Own, opts.attributes = true, false, list
		report, err = CopyTree(ctx, tree, dst, opts)
		return err
	})
	return report, err
}

func (k Kept) with(f func(tree *os.Root, list *attributesReader) error) error {
	list, closer, err := k.list()
	if err != nil {
		return err
	}
	defer shut(closer)
	tree, err := k.Root.OpenRoot(k.Name)
	if err != nil {
		return err
	}
	defer shut(tree)
	return f(tree, list)
}

// Renamed writes the list anew after entries of the tree got other names, and
// returns its digest. The keys of names are the old paths of those entries, the
// values the new last elements. A process that dies meanwhile may leave no list.
func (k Kept) Renamed(names map[string]string) (digest string, err error) {
	if k.List == "" {
		return "", nil
	}
	all, err := k.entries(names)
	if err != nil {
		return "", err
	}
	slices.SortFunc(all, func(a, b Attributes) int { return compareWalk(a.Path, b.Path) })
	name := path.Clean(k.Name) + AttributesSuffix
	if err := k.Root.Remove(name); err != nil {
		return "", err
	}
	w := NewAttributesWriter(path.Join(k.Root.Name(), name))
	for _, a := range all {
		if err := w.Add(a); err != nil {
			return "", errors.Join(err, w.Discard())
		}
	}
	return w.Close()
}

// entries reads the whole list, with new names.
func (k Kept) entries(names map[string]string) ([]Attributes, error) {
	list, closer, err := k.list()
	if err != nil {
		return nil, err
	}
	defer shut(closer)
	var all []Attributes
	for {
		a, err := list.next()
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		a.Path = renamed(a.Path, names)
		all = append(all, a)
	}
}

// renamed follows a path down from the top, since of every directory on it the old
// path names the new element.
func renamed(old string, names map[string]string) string {
	parts := strings.Split(old, "/")
	end := 0
	for i, part := range parts {
		end += len(part)
		parts[i] = cmp.Or(names[old[:end]], part)
		end++
	}
	return strings.Join(parts, "/")
}

// compareWalk orders paths as a walk meets them: what a directory holds comes
// right after it.
func compareWalk(a, b string) int {
	for i := range min(len(a), len(b)) {
		switch {
		case a[i] == b[i]:
		case a[i] == '/':
			return -1
		case b[i] == '/':
			return 1
		default:
			return cmp.Compare(a[i], b[i])
		}
	}
	return cmp.Compare(len(a), len(b))
}
