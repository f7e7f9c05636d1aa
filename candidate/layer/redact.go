package layer

import (
	"archive/tar"
	"context"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// maxRedacted bounds a file in which Redact replaces secrets, in bytes. A larger file with a secret
// becomes empty.
const maxRedacted = 64 << 20

// Secrets finds and replaces secrets.
type Secrets interface {
	// Text returns the text without secrets.
	Text(text string) string
	// In reports whether from, of about size bytes, contains a secret.
	In(from io.Reader, size int64) (bool, error)
}

// Redact replaces secrets in the names, link targets and contents of a layer. An entry with a secret loses its
// attributes. It returns the number of entries that it changed. If that is 0, it writes nothing. If names become equal,
// it writes the first entry only. If a name or a target becomes too long for a file system, it leaves the entry out.
// Errors are as for [Entries].
func Redact(ctx context.Context, from io.ReadSeeker, to io.Writer, limits Budget, s Secrets) (r Report, changed int, err error) {
	dirty, err := holders(ctx, from, limits, s)
	if err != nil || len(dirty) == 0 {
		return Report{}, 0, err
	}
	if _, err := from.Seek(0, io.SeekStart); err != nil {
		return Report{}, 0, err
	}
	r, err = compress(to, func(archive *tar.Writer, _ *Report) error {
		seen, last := map[string]bool{}, ""
		for e, err := range Entries(ctx, from, limits) {
			if err != nil {
				return err
			}
			was, content := e.header, io.Reader(e)
			h := tar.Header{
				Typeflag: was.Typeflag, Name: s.Text(was.Name), Linkname: s.Text(was.Linkname), Size: was.Size,
				Mode: was.Mode, Uid: was.Uid, Gid: was.Gid, ModTime: was.ModTime, Format: tar.FormatPAX,
			}
			if !dirty[was.Name] {
				h.PAXRecords = attributesOf(was)
			}
			name, above := strings.TrimSuffix(h.Name, "/"), last
			if last = ""; seen[name] || !fits(name) || len(h.Linkname) >= maxName || e.Kind == Opaque && path.Dir(name) != above {
				continue
			}
			seen[name], last = true, name
			if dirty[was.Name] && e.Kind == File {
				text := "" // a larger file becomes empty
				if e.Size <= maxRedacted {
					all, err := io.ReadAll(e)
					if err != nil {
						return err
					}
					text = s.Text(string(all))
				}
				h.Size, content = int64(len(text)), strings.NewReader(text)
			}
			if err := archive.WriteHeader(&h); err != nil {
				return err
			}
			if _, err := io.Copy(archive, content); err != nil {
				return err
			}
		}
		return nil
	})
	return r, len(dirty), err
}

// holders returns the names of the entries that hold a secret.
func holders(ctx context.Context, from io.Reader, limits Budget, s Secrets) (map[string]bool, error) {
	dirty := map[string]bool{}
	for e, err := range Entries(ctx, from, limits) {
		found := false
		if err == nil && e.Kind == File {
			found, err = s.In(e, e.Size)
		}
		if err != nil {
			return nil, fmt.Errorf("search layer: %w", err)
		}
		for record, value := range attributesOf(e.header) {
			found = found || s.Text(record) != record || s.Text(value) != value
		}
		if found || s.Text(e.header.Name) != e.header.Name || s.Text(e.Target) != e.Target {
			dirty[e.header.Name] = true
		}
	}
	return dirty, nil
}

// fits reports whether a file system can have a path.
func fits(name string) bool {
	return len(name) < maxName && !slices.ContainsFunc(strings.Split(name, "/"), func(part string) bool {
		return len(strings.TrimPrefix(part, whiteout)) > 255
	})
}
