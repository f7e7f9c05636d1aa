package patch

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

func (p *parser) body(f *File) error {
	switch line := p.line(); {
	case strings.HasPrefix(line, "Binary files ") && strings.HasSuffix(line, " differ"):
		if !p.foreign {
			return p.fail("binary change without its content")
		}
		f.Binary = true
		p.i++
		return nil
	case line == "GIT binary patch":
		f.Binary = true
		p.i++
		return p.binary()
	}
	for strings.HasPrefix(p.line(), "@@ -") {
		if err := p.hunk(f); err != nil {
			return err
		}
	}
	return nil
}

// maxBlank is how many lines the last hunk of a patch may lack for GNU patch, which takes them as blank.
const maxBlank = 3

// hunk reads a hunk's header and as many lines as it counts.
func (p *parser) hunk(f *File) error {
	m := hunkHeader.FindStringSubmatch(p.line())
	if m == nil {
		return p.fail("malformed hunk header")
	}
	removed, _ := strconv.Atoi(cmp.Or(m[1], "1"))
	added, _ := strconv.Atoi(cmp.Or(m[2], "1"))
	if removed == 0 && added == 0 {
		return p.fail("empty hunk")
	}
	p.i++
	for removed > 0 || added > 0 {
		if p.i >= len(p.lines) {
			if !p.foreign || removed != added || removed > maxBlank {
				return p.fail("hunk ends early")
			}
			p.lines[p.i-1] = strings.TrimSuffix(p.lines[p.i-1], "\n") + "\n"
			p.lines = append(p.lines, slices.Repeat([]string{" \n"}, removed)...)
			p.padded = true
		}
		switch line := p.lines[p.i]; {
		case line[0] == '+':
			added--
			f.Added++
		case line[0] == '-':
			removed--
			f.Removed++
		case line[0] == ' ', line == "\n", line == "\r\n":
			added--
			removed--
		case line[0] == '\\':
		default:
			return p.fail("line of a hunk begins with %q", line[:1])
		}
		if added < 0 || removed < 0 {
			return p.fail("hunk has more lines than its header counts")
		}
		p.i++
	}
	if strings.HasPrefix(p.line(), `\ `) {
		p.i++
	}
	return nil
}

// hunkHeader matches "@@ -LINE,COUNT +LINE,COUNT @@"; a missing count is 1.
var hunkHeader = regexp.MustCompile(`^@@ -\d{1,9}(?:,(\d{1,9}))? \+\d{1,9}(?:,(\d{1,9}))? @@`)

// binary reads the one or two blocks of a binary patch: "literal SIZE" or
// "delta SIZE", lines of base 85, a blank line.
func (p *parser) binary() error {
	for block := range 2 {
		if !strings.HasPrefix(p.line(), "literal ") && !strings.HasPrefix(p.line(), "delta ") {
			if block == 0 {
				return p.fail("expected literal or delta")
			}
			return nil
		}
		p.i++
		for p.i < len(p.lines) && strings.TrimSpace(p.line()) != "" {
			if !inBase85(p.line()) {
				return p.fail("malformed binary patch")
			}
			p.i++
		}
		p.i++ // the blank line, or the end
	}
	return nil
}

// inBase85 reports whether a line is one of a binary patch: a letter for the number of bytes, and five characters for each
// four of them. No character is a space, so no program finds the header of a file there.
func inBase85(line string) bool {
	return base85.MatchString(line) && (len(line)-1)/5 == (strings.IndexByte(base85Sizes, line[0])+4)/4
}

// base85Sizes are the letters for 1 to 52 bytes.
const base85Sizes = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

var base85 = regexp.MustCompile("^[A-Za-z](?:[0-9A-Za-z!#$%&()*+;<=>?@^_`{|}~-]{5})+$")
