// Package patch finds out which paths a patch in git's format changes, and how ([Parse]), and which files
// belong to the tests ([Steering]). It does not apply patches.
//
// It is stricter than git apply: anything that it does not understand is an error, so that git cannot read
// a patch differently from the policy that checks its paths. Libraries such as go-gitdiff silently skip
// text between files, and so could miss a file that git finds there.
package patch

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// File is one file that a patch changes.
type File struct {
	// Old and New are the paths before and after, without the prefixes a/ and
	// b/. Old is empty for a new file, New for a deleted one.
	Old, New string
	// OldMode and NewMode are git's modes, such as 0o100644; 0 if the patch does
	// not say.
	OldMode, NewMode uint32
	Rename, Copy     bool
	Binary           bool
	// Added and Removed count lines.
	Added, Removed int
	// Text is this file's part of the patch, and a patch by itself.
	Text string
}

// Paths returns the paths that the change touches: one, or two for a rename.
// The source of a copy is not touched.
func (f File) Paths() []string {
	switch {
	case f.New == "" || f.New == f.Old:
		return []string{f.Old}
	case f.Old == "" || f.Copy:
		return []string{f.New}
	}
	return []string{f.Old, f.New}
}

// Irregular reports whether the file is, before or after the change, anything but a regular file or a link
// to a target within the repository.
func (f File) Irregular() bool {
	regular := []uint32{0, 0o100644, 0o100755}
	if slices.Contains(regular, f.OldMode) && slices.Contains(regular, f.NewMode) {
		return false
	}
	link := []uint32{0, 0o120000}
	return !slices.Contains(link, f.OldMode) || !slices.Contains(link, f.NewMode) || f.New != "" && !f.linksWithin()
}

// linksWithin reports whether the patch writes a link to a path of the repository. A target such as
// a/../b is refused: where it leads depends on what a is.
func (f File) linksWithin() bool {
	m := linkBody.FindStringSubmatch(f.Text)
	if m == nil || f.Rename || f.Copy || m[1] != path.Clean(m[1]) || path.IsAbs(m[1]) {
		return false
	}
	return CheckPath(path.Join(path.Dir(f.New), m[1])) == nil
}

// linkBody matches the hunk that writes a link, and its target.
var linkBody = regexp.MustCompile(`\n@@ -\S+ \+1 @@\n(?:-[^\n]*\n\\[^\n]*\n)?\+([^\n]*)\n\\[^\n]*\n?$`)

// Error says why a text is not a patch.
type Error struct {
	Line    int // 1-based
	Message string
}

// Error returns the line of the patch and what is wrong there.
func (e *Error) Error() string { return fmt.Sprintf("line %d of the patch: %s", e.Line, e.Message) }

// Parse returns the files that a patch changes, in the order of the patch. It skips text before the first
// file, such as the head of a mail, and text between the signature of git format-patch and the next file.
// Any other text that belongs to no file is an error, and so is a patch without files. Every error is an
// *Error.
func Parse(text string) ([]File, error) {
	p := newParser(text)
	return p.files()
}

// Clean returns the patch in a text that a model or a tool wrote, and says what it has changed. It removes
// text around the patch, such as the marks of a code block, and binary files without their content. It
// turns CR LF into LF if the headers have CR LF, too, and adds blank lines that the last hunk lacks. Every error is
// an *Error.
func Clean(text string) (clean string, done []string, err error) {
	p := newParser(text)
	p.foreign = true
	if first := slices.IndexFunc(p.lines, func(line string) bool {
		return strings.HasPrefix(line, "--- ") || strings.HasPrefix(line, "diff --git ")
	}); first >= 0 && strings.HasSuffix(p.lines[first], "\r\n") {
		done = append(done, "CR LF")
		for i, line := range p.lines {
			p.lines[i] = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r") + "\n"
		}
	}
	files, err := p.files()
	if err != nil {
		return "", nil, err
	}
	if p.skipped {
		done = append(done, "text around the patch")
	}
	if p.padded {
		done = append(done, "blank lines at the end of the last hunk")
	}
	var all strings.Builder
	for _, f := range files {
		if f.Binary && !strings.Contains(f.Text, "\nGIT binary patch\n") {
			done = append(done, fmt.Sprintf("%q, a binary file without its content", f.New))
			continue
		}
		all.WriteString(strings.TrimSuffix(f.Text, "\n") + "\n")
	}
	return all.String(), done, nil
}

func newParser(text string) *parser {
	p := &parser{lines: strings.SplitAfter(text, "\n")}
	if n := len(p.lines); p.lines[n-1] == "" {
		p.lines = p.lines[:n-1]
	}
	return p
}

func (p *parser) files() ([]File, error) {
	var files []File
	for p.skipMail(len(files) == 0); p.i < len(p.lines); p.skipMail(false) {
		start := p.i
		f, err := p.file()
		if err != nil {
			return nil, err
		}
		f.Text = strings.Join(p.lines[start:min(p.i, len(p.lines))], "")
		files = append(files, f)
	}
	if len(files) == 0 {
		return nil, p.fail("no file")
	}
	return files, nil
}

type parser struct {
	lines []string // with their line ends
	i     int      // index of the next line
	// foreign skips text between files, and takes binary files without content; skipped says
	// that there was such text.
	foreign, skipped bool
	padded           bool // the last hunk lacked blank lines
}

func (p *parser) fail(format string, args ...any) error {
	return &Error{min(p.i+1, max(len(p.lines), 1)), fmt.Sprintf(format, args...)}
}

// line returns the line at i without its end, and "" after the last.
func (p *parser) line() string {
	if p.i >= len(p.lines) {
		return ""
	}
	return strings.TrimSuffix(p.lines[p.i], "\n")
}

// skipMail advances to the header of the next file, as git apply does. Any text may
// stand before the first file and after the signature of git format-patch, where the
// next mail may begin; elsewhere it skips only blank lines.
func (p *parser) skipMail(any bool) {
	for ; p.i < len(p.lines) && !p.atHeader(); p.i++ {
		line := strings.TrimSpace(p.line())
		if any = any || line == "--"; !any && !p.foreign && line != "" {
			return
		}
		p.skipped = p.skipped || line != ""
	}
}

// atHeader reports whether a file begins here, by git apply's rule.
func (p *parser) atHeader() bool {
	line := p.line()
	if strings.HasPrefix(line, "diff --git ") {
		return true
	}
	return strings.HasPrefix(line, "--- ") && p.i+2 < len(p.lines) &&
		strings.HasPrefix(p.lines[p.i+1], "+++ ") && strings.HasPrefix(p.lines[p.i+2], "@@ -")
}

func (p *parser) file() (File, error) {
	var f File
	if !p.atHeader() {
		return f, p.fail("text between files")
	}
	var h header
	if rest, ok := strings.CutPrefix(p.line(), "diff --git "); ok {
		h.git, h.name = true, commonName(rest)
		p.i++
		if err := p.extended(&f, &h); err != nil {
			return f, err
		}
	}
	if err := p.names(&f, &h); err != nil {
		return f, err
	}
	if err := p.body(&f); err != nil {
		return f, err
	}
	if h.git && !h.changed && !f.Binary && f.Added+f.Removed == 0 {
		return f, p.fail("file without a change")
	}
	return f, nil
}

type header struct {
	git              bool
	name             string // of the line "diff --git", if both its names are the same
	from, to         string // of rename and copy lines
	created, deleted bool
	changed          bool // the header alone changes something
}

func (p *parser) extended(f *File, h *header) error {
	for ; p.i < len(p.lines); p.i++ {
		m := extendedLine.FindStringSubmatch(p.line())
		if m == nil {
			return nil
		}
		word, rest := m[1], m[2]
		var err error
		switch word {
		case "old mode":
			f.OldMode, err = p.mode(rest)
		case "new mode":
			h.changed = true
			f.NewMode, err = p.mode(rest)
		case "new file mode":
			h.created, h.changed = true, true
			f.NewMode, err = p.mode(rest)
		case "deleted file mode":
			h.deleted, h.changed = true, true
			f.OldMode, err = p.mode(rest)
		case "rename from", "copy from":
			h.from, err = p.name(rest, 0)
		case "rename to", "copy to":
			h.changed = true
			f.Rename, f.Copy = word == "rename to", word == "copy to"
			h.to, err = p.name(rest, 0)
		case "index":
			err = p.index(f, rest)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

var extendedLine = regexp.MustCompile(`^((?:old|new|new file|deleted file) mode|(?:rename|copy) (?:from|to)|(?:(?:dis)?similarity )?index) (.*)$`)

func (p *parser) mode(s string) (uint32, error) {
	mode, err := strconv.ParseUint(s, 8, 32)
	switch {
	case err != nil || len(s) != 6:
		return 0, p.fail("malformed mode %q", s)
	case mode&0o170000 == 0o100000 && mode&0o7000 != 0:
		return 0, p.fail("mode %q with setuid, setgid or sticky bit", s)
	}
	return uint32(mode), nil
}

// index reads "HEX..HEX" or "HEX..HEX MODE".
func (p *parser) index(f *File, rest string) error {
	_, text, ok := strings.Cut(rest, " ")
	if !ok {
		return nil
	}
	mode, err := p.mode(text)
	if f.OldMode == 0 && f.NewMode == 0 {
		f.OldMode, f.NewMode = mode, mode
	}
	return err
}
