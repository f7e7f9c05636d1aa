package document

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Problem is one thing wrong with an input file.
type Problem struct {
	// File is the file's name as given; empty if unknown.
	File string `json:"file,omitempty"`
	// Line is 1-based; 0 if the problem has no line.
	Line int `json:"line,omitempty"`
	// Path is a JSON path such as $.harness.config.timeout_seconds; empty if the problem
	// does not concern one value.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Hint says what to do about the problem; it may be empty.
	Hint string `json:"hint,omitempty"`
	// Warning means that the file can be used nevertheless.
	Warning bool `json:"warning,omitempty"`
}

// String returns "file:line: $.path: message (hint)" without empty parts. A warning has
// "warning: " before its path.
func (p Problem) String() string {
	text := ""
	switch {
	case p.File != "" && p.Line > 0:
		text = fmt.Sprintf("%s:%d: ", visible(p.File), p.Line)
	case p.File != "":
		text = visible(p.File) + ": "
	case p.Line > 0:
		text = fmt.Sprintf("line %d: ", p.Line)
	}
	if p.Warning {
		text += "warning: "
	}
	if p.Path != "" {
		text += p.Path + ": "
	}
	text += p.Message
	if p.Hint != "" {
		text += " (" + p.Hint + ")"
	}
	return text
}

// visible returns a file's name, quoted if a terminal would not show all of it.
func visible(name string) string {
	if utf8.ValidString(name) && !strings.ContainsFunc(name, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return name
	}
	return strconv.Quote(name)
}

// Problems lists everything wrong with an input. It is an error unless all of them
// are warnings.
type Problems []Problem

// Error returns one line per problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Failed reports whether any of the problems is more than a warning.
func (ps Problems) Failed() bool {
	return slices.ContainsFunc(ps, func(p Problem) bool { return !p.Warning })
}

// In sets the file of every problem and returns ps.
func (ps Problems) In(file string) Problems {
	for i := range ps {
		ps[i].File = file
	}
	return ps
}

// FieldPath returns the path of a field of the object at path.
func FieldPath(path, name string) string {
	if isName(name) {
		return path + "." + name
	}
	return path + "[" + strconv.Quote(name) + "]"
}

var isName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`).MatchString

// ProblemsOf returns the problems that an error about a file holds.
func ProblemsOf(file string, err error) (problems Problems) {
	if errors.As(err, &problems) {
		return problems
	}
	return Problems{{File: file, Message: Bare(err).Error()}}
}

// Encoded returns the problem of a file that begins as compressed text or text in UTF-16 does; nil for any other file.
func Encoded(file io.ReaderAt) *Problem {
	begin := make([]byte, 2)
	_, _ = file.ReadAt(begin, 0) // whoever reads on gets the same error
	switch string(begin) {
	case "\x1f\x8b":
		return &Problem{Message: "file is compressed with gzip", Hint: "unpack it: gunzip FILE"}
	case "\xff\xfe", "\xfe\xff":
		return &Problem{Message: "file is in UTF-16", Hint: "save it as UTF-8: iconv -f UTF-16 -t UTF-8 FILE"}
	}
	return nil
}

// Bare removes the operation and the path from a file error, for messages that name the file.
func Bare(err error) error {
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		return pathErr.Err
	}
	return err
}
