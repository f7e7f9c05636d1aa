package workspace

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/workspace/foreign"
)

// AttributesSuffix is added to the name of a stored tree to name its list of lost attributes.
const AttributesSuffix = ".attributes.jsonl"

// StoredTree is a copy, perhaps made with TreeOptions.Lost, with the list of attributes that it
// lost. Neither is trusted, since somebody may have changed them: the methods read nothing outside
// Root and never block on a pipe. If the list does not match its digest or the tree, the error matches
// ErrAttributes.
type StoredTree struct {
	Root *os.Root // the directory that contains both; closed by the caller
	Name string   // of the tree, relative to Root
	// List is the digest of the list, as AttributesWriter.Close returns it; "" if the files of the tree have their own
	// owners and modes.
	List string
}

// list opens the list after checking its digest. The reader is nil if there is no list.
func (t StoredTree) list(ctx context.Context) (*attributesReader, error) {
	if t.List == "" {
		return nil, nil
	}
	f, err := foreign.OpenDigest(ctx, t.Root, path.Clean(t.Name)+AttributesSuffix, t.List, maxListBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrAttributes, err)
	}
	r := &attributesReader{file: f, in: bufio.NewReaderSize(f, maxListLine), remaining: maxListBytes}
	r.advance()
	return r, nil
}

// DigestOf returns "sha256:" and the hexadecimal sum of a SHA-256 hash.
func DigestOf(h hash.Hash) string { return "sha256:" + hex.EncodeToString(h.Sum(nil)) }

// Restore is Copy with the tree's original owners and modes, for a directory that no user of the
// host can reach. It needs CAP_CHOWN if any owner is not the calling process's user, and CAP_DAC_OVERRIDE if a file
// has several names, one of them in a directory that its owner may not search.
func (t StoredTree) Restore(ctx context.Context, dst *os.Root, opts TreeOptions) (TreeReport, error) {
	opts.Lost, opts.restore = nil, true
	return t.Copy(ctx, dst, opts)
}

// Copy is CopyTree for the tree as it was before it was copied or, if dst is nil, DigestTree.
func (t StoredTree) Copy(ctx context.Context, dst *os.Root, opts TreeOptions) (TreeReport, error) {
	list, err := t.list(ctx)
	if err != nil {
		return TreeReport{}, err
	}
	defer list.close()
	tree, err := foreign.OpenDir(t.Root, t.Name)
	if err != nil {
		return TreeReport{}, err
	}
	defer shut(tree)
	if opts.attributes, opts.judged = list, true; dst == nil {
		return DigestTree(ctx, tree, opts)
	}
	return CopyTree(ctx, tree, dst, opts)
}

// Renamed rewrites the list after entries of the tree were renamed, and returns its digest. names
// maps the old path of each renamed entry to its new last element. If the process dies meanwhile,
// there may be no list.
func (t StoredTree) Renamed(ctx context.Context, names map[string]string) (digest string, err error) {
	list, err := t.list(ctx)
	if list == nil || err != nil {
		return "", err
	}
	defer list.close()
	var all []Attributes
	for ; list.err == nil; list.advance() {
		a := list.next
		a.Path = renamed(a.Path, names)
		all = append(all, a)
	}
	if !errors.Is(list.err, io.EOF) {
		return "", list.err
	}
	// A walk visits a directory's contents right after the directory, and the root first.
	walked := func(a Attributes) string {
		if a.Path == topDir {
			return ""
		}
		return strings.ReplaceAll(a.Path, "/", "\x00")
	}
	slices.SortFunc(all, func(a, b Attributes) int { return strings.Compare(walked(a), walked(b)) })
	name := path.Clean(t.Name) + AttributesSuffix
	if err := t.Root.Remove(name); err != nil {
		return "", err
	}
	w, err := NewAttributesWriter(path.Join(t.Root.Name(), name))
	if err != nil {
		return "", err
	}
	for _, a := range all {
		if err := w.Add(a); err != nil {
			return "", errors.Join(err, w.Discard())
		}
	}
	return w.Close()
}

// renamed returns the new path of an entry. It replaces the elements one by one, since names
// has the old path of every renamed directory.
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
