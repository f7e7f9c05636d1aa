package secrets

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
)

// maxScrub bounds a file in which secrets are replaced, in bytes. A larger file with a secret loses
// its whole content.
const maxScrub = 64 << 20

// ErrUnsearchable means that the workspace may still hold secrets, and so is not stored.
var ErrUnsearchable = errors.New("the workspace could not be searched for secrets")

// hostErrors are not the candidate's fault.
var hostErrors = []unix.Errno{unix.ENOSPC, unix.EDQUOT, unix.EIO, unix.EROFS, unix.ENOMEM, unix.EMFILE, unix.ENFILE}

// Scrub removes the secrets from the names, contents and link targets in a candidate's
// workspace and layer, and returns the number of changed entries. Hidden values stay: the agent did
// not get them, and a right candidate may equal one.
func (r Redactor) Scrub(ctx context.Context, c *candidate.Candidate) (changed int, err error) {
	if r.longest == 0 {
		return 0, nil
	}
	root, err := os.OpenRoot(c.Workspace)
	if err != nil {
		return 0, err
	}
	defer func() { _ = root.Close() }()
	sc := scrubber{secrets: r, root: root, renamed: map[string]string{}, taken: map[string]int{}}
	err = sc.directory(ctx, ".")
	var errno unix.Errno
	switch {
	case ctx.Err() != nil:
		return 0, context.Cause(ctx)
	case errors.As(err, &errno) && slices.Contains(hostErrors, errno):
		return 0, fmt.Errorf("search the workspace for secrets: %w", errno)
	case err != nil: // its text may contain a secret
		return 0, ErrUnsearchable
	case sc.changed > 0:
		err = sc.update(ctx, c)
	}
	if err == nil && c.Layer != "" {
		var more int
		more, err = r.scrubLayer(ctx, c)
		return sc.changed + more, err
	}
	return sc.changed, err
}

// scrubLayer is Scrub for the candidate's layer.
func (r Redactor) scrubLayer(ctx context.Context, c *candidate.Candidate) (changed int, err error) {
	from, err := c.OpenLayer(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { _ = from.Close() }()
	name := c.Workspace + layer.Suffix
	to, err := os.OpenFile(name+".clean", os.O_CREATE|os.O_TRUNC|os.O_RDWR, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.Remove(to.Name()) }()
	report, changed, err := layer.Redact(ctx, from, to, candidate.LayerBudget(math.MaxInt64/2), r)
	err = errors.Join(err, to.Close())
	if err == nil && changed > 0 {
		c.Layer, err = report.Digest, os.Rename(to.Name(), name)
	}
	return changed, err
}

// scrubber removes secrets from a directory.
type scrubber struct {
	secrets Redactor
	root    *os.Root
	renamed map[string]string // new names by old paths; see workspace.StoredTree
	taken   map[string]int    // the numbers that freeName has given, by name
	changed int               // entries
}

// update makes the candidate's digests match its workspace again.
func (s *scrubber) update(ctx context.Context, c *candidate.Candidate) (err error) {
	if len(s.renamed) > 0 {
		kept, err := c.StoredTree()
		if err != nil {
			return err
		}
		defer func() { _ = kept.Root.Close() }()
		if c.Attributes, err = kept.Renamed(ctx, s.renamed); err != nil {
			return err
		}
	}
	c.Digest, err = c.TreeDigest(ctx, math.MaxInt64)
	return err
}

func (s *scrubber) directory(ctx context.Context, dir string) error {
	f, err := s.root.Open(dir)
	if err != nil {
		return err
	}
	entries, err := f.ReadDir(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	for _, e := range entries {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		name, err := path.Join(dir, e.Name()), error(nil)
		switch {
		case e.IsDir():
			err = s.directory(ctx, name)
		case e.Type()&fs.ModeSymlink != 0:
			err = s.link(name)
		case e.Type().IsRegular():
			err = s.file(name)
		}
		if clean := s.secrets.Text(e.Name()); err == nil && clean != e.Name() {
			s.changed++
			to := s.freeName(path.Join(dir, short(clean, maxName)))
			err, s.renamed[name] = s.root.Rename(name, to), path.Base(to)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

const (
	maxName   = 200  // bytes of a changed name; a number may follow
	maxTarget = 4000 // bytes of a changed link target
)

// short truncates a text that redaction may have made longer than a file system allows.
func short(text string, most int) string { return text[:min(len(text), most)] }

// freeName adds a number to a name that is already taken.
func (s *scrubber) freeName(name string) string {
	free := name
	for {
		s.taken[name]++
		if s.taken[name] > 1 {
			free = fmt.Sprint(name, ".", s.taken[name])
		}
		if _, err := s.root.Lstat(free); err != nil {
			return free
		}
	}
}

func (s *scrubber) link(name string) error {
	target, err := s.root.Readlink(name)
	clean := s.secrets.Text(target)
	if err != nil || clean == target {
		return err
	}
	s.changed++
	return errors.Join(s.root.Remove(name), s.root.Symlink(short(clean, maxTarget), name))
}

func (s *scrubber) file(name string) error {
	info, err := s.root.Lstat(name)
	if err != nil {
		return err
	}
	f, err := s.root.OpenFile(name, os.O_RDWR, 0)
	if errors.Is(err, fs.ErrPermission) { // only its mode is in the way: the file belongs to this user
		if err = s.root.Chmod(name, 0o600); err == nil {
			f, err = s.root.OpenFile(name, os.O_RDWR, 0)
		}
		defer func() { _ = s.root.Chmod(name, info.Mode()) }()
	}
	if err != nil {
		return err
	}
	found, err := s.secrets.In(f, info.Size())
	if found && err == nil {
		s.changed++
		clean := []byte(Redacted)
		if info.Size() <= maxScrub {
			clean, err = io.ReadAll(io.NewSectionReader(f, 0, maxScrub))
			clean = []byte(s.secrets.Text(string(clean)))
		}
		if err == nil {
			err = f.Truncate(0)
		}
		if err == nil {
			_, err = f.WriteAt(clean, 0)
		}
	}
	return errors.Join(err, f.Close())
}
