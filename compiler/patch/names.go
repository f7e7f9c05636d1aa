package patch

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"

	"github.com/securebench/sbench/compiler/paths"
)

// names reads the lines --- and +++, if there are any, sets the paths of the file,
// and checks them against the rest of the header.
func (p *parser) names(f *File, h *header) error {
	old, current := h.name, h.name
	if h.from != "" || h.to != "" {
		if old, current = h.from, h.to; old == "" || current == "" {
			return p.fail("half a rename or copy")
		}
	}
	if strings.HasPrefix(p.line(), "--- ") {
		before, after, err := p.nameLines()
		switch {
		case err != nil:
			return err
		case h.git && (disagree(before, old) || disagree(after, current)):
			return p.fail("names of the file's header disagree")
		case h.git && (before == "" && !h.created || after == "" && !h.deleted):
			return p.fail("/dev/null for a file that is neither new nor deleted")
		case before != "" && h.created || after != "" && h.deleted:
			return p.fail("a new or deleted file has both names")
		}
		old, current = before, after
	}
	if !h.created {
		f.Old = old
	}
	if !h.deleted {
		f.New = current
	}
	if f.Old == "" && f.New == "" || h.created && h.deleted {
		return p.fail("file without a name")
	}
	return nil
}

// disagree reports whether the name on a line --- or +++ contradicts the one known
// from the rest of the header. An empty line means /dev/null; an empty known means
// that the name is unknown.
func disagree(line, known string) bool { return line != "" && known != "" && line != known }

func (p *parser) nameLines() (before, after string, err error) {
	before, err = p.name(strings.TrimPrefix(p.line(), "--- "), 1)
	if err != nil {
		return "", "", err
	}
	p.i++
	rest, ok := strings.CutPrefix(p.line(), "+++ ")
	if !ok {
		return "", "", p.fail("expected +++")
	}
	if after, err = p.name(rest, 1); err != nil {
		return "", "", err
	}
	p.i++
	return before, after, nil
}

// name reads a path, quoted or not, and removes the first strip directories from it.
// If strip is not 0, /dev/null is "".
func (p *parser) name(s string, strip int) (string, error) {
	name := s
	if strings.HasPrefix(s, `"`) {
		unquoted, rest, err := unquote(s)
		if err != nil || strings.TrimLeft(rest, "\t") != "" {
			return "", p.fail("malformed quoted path")
		}
		name = unquoted
	} else if strip > 0 {
		// A tab ends the path: diff writes the time after it, and git a tab alone if
		// the path contains a space.
		name, _, _ = strings.Cut(name, "\t")
		name = strings.TrimSuffix(name, "\r")
	}
	if strip > 0 && name == "/dev/null" {
		return "", nil
	}
	for range strip {
		_, rest, ok := strings.Cut(name, "/")
		if !ok {
			return "", p.fail("path %q lacks the prefix a/ or b/", name)
		}
		name = rest
	}
	if name == "" {
		return "", p.fail("empty path")
	}
	return name, nil
}

// commonName returns the path of "a/PATH b/PATH", or "" if the two paths differ, as in a rename, which has
// header lines for both.
func commonName(s string) string {
	if strings.HasPrefix(s, `"`) {
		first, rest, err := unquote(s)
		if err != nil {
			return ""
		}
		second := strings.TrimPrefix(rest, " ")
		if strings.HasPrefix(second, `"`) {
			if second, _, err = unquote(second); err != nil {
				return ""
			}
		}
		return sameBelow(first, second)
	}
	if first, second, ok := strings.Cut(s, ` "`); ok {
		if unquoted, _, err := unquote(`"` + second); err == nil {
			return sameBelow(first, unquoted)
		}
	}
	// Unquoted paths may contain spaces, so the line is cut in the middle.
	if half := len(s) / 2; len(s)%2 == 1 && s[half] == ' ' {
		return sameBelow(s[:half], s[half+1:])
	}
	return ""
}

// sameBelow returns what follows the first directory of both paths, or "" if that
// differs.
func sameBelow(a, b string) string {
	_, a, ok1 := strings.Cut(a, "/")
	_, b, ok2 := strings.Cut(b, "/")
	if ok1 && ok2 && a == b {
		return a
	}
	return ""
}

// unquote reads a path quoted as in C at the start of s, as git writes it (see
// core.quotePath), and returns it with the rest of s.
func unquote(s string) (path, rest string, err error) {
	quoted := quotedPath.FindString(s)
	path, err = strconv.Unquote(quoted)
	return path, s[len(quoted):], err
}

// quotedPath matches the escapes that git knows, which are fewer than Go's.
var quotedPath = regexp.MustCompile(`^"([^"\\]|\\[abtnvfr"\\]|\\[0-3][0-7]{2})*"`)

// CheckPath returns an error if no patch may change the path. A path that may be
// changed is clean, satisfies [paths.Parse], and has no part that some file system takes for ".git" or "..".
func CheckPath(path string) error {
	clean, err := paths.Parse(path)
	switch {
	case err != nil:
		return err
	case clean != path:
		return fmt.Errorf("path %q is not clean", path)
	}
	for part := range strings.SplitSeq(path, "/") {
		switch name := plainName(part); {
		case name == "":
			return fmt.Errorf("path %q is not clean", path)
		case name == ".git" || strings.HasPrefix(name, "git~"):
			return fmt.Errorf("path %q leads into .git", path)
		}
	}
	return nil
}

// plainName returns a name as the most lenient file system sees it: in lower case, without the characters
// that HFS+ ignores, and without the trailing dots and spaces and the stream name that NTFS removes. git's
// verify_path guards against the same.
func plainName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.Is(unicode.Cf, r) {
			return -1
		}
		return unicode.ToLower(r)
	}, name)
	if base, _, ok := strings.Cut(name, ":"); ok && base != "" {
		name = base
	}
	return strings.TrimRight(name, ". ")
}
