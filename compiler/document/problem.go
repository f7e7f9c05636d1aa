package document

import (
	"regexp"
	"strconv"
	"strings"
)

// Problem is one thing wrong with an input file.
type Problem struct {
	File string `json:"file,omitempty"`
	// Line is 1-based; 0 if the problem has no line.
	Line int `json:"line,omitempty"`
	// Path is a JSON path such as $.harness.config.timeout_seconds; empty if
	// the problem is no value's.
	Path    string `json:"path,omitempty"`
	Message string `json:"message"`
	// Hint says what to do, where that is known.
	Hint string `json:"hint,omitempty"`
	// Warning is set if the file can be used all the same.
	Warning bool `json:"warning,omitempty"`
}

// String returns "file:line: $.path: message (hint)" without the parts that
// are not there. A warning has "warning: " before its path.
func (p Problem) String() string {
	var b strings.Builder
	if p.File != "" {
		b.WriteString(p.File)
		if p.Line > 0 {
			b.WriteString(":" + strconv.Itoa(p.Line))
		}
		b.WriteString(": ")
	} else if p.Line > 0 {
		b.WriteString("line " + strconv.Itoa(p.Line) + ": ")
	}
	if p.Warning {
		b.WriteString("warning: ")
	}
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	if p.Hint != "" {
		b.WriteString(" (" + p.Hint + ")")
	}
	return b.String()
}

// Problems are all that is wrong with an input, in the order of its text. They
// are an error unless they are only warnings.
type Problems []Problem

// Error returns one line for every problem.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// In returns the problems with the name of their file.
func (ps Problems) In(file string) Problems {
	for i := range ps {
		ps[i].File = file
	}
	return ps
}

// Split parts the errors from the warnings.
func (ps Problems) Split() (errs, warnings Problems) {
	for _, p := range ps {
		if p.Warning {
			warnings = append(warnings, p)
		} else {
			errs = append(errs, p)
		}
	}
	return errs, warnings
}

// Path is a place in a document. The zero Path is its root.
type Path struct{ steps []step }

type step struct {
	key   string // if index is negative
	index int
}

// PushKey goes to a field of the object at the path.
func (p *Path) PushKey(key string) { p.steps = append(p.steps, step{key, -1}) }

// PushIndex goes to an item of the array at the path.
func (p *Path) PushIndex(i int) { p.steps = append(p.steps, step{"", i}) }

// Pop takes back the last Push.
func (p *Path) Pop() { p.steps = p.steps[:len(p.steps)-1] }

// String returns the path in the notation $.key[0]["odd key"].
func (p *Path) String() string {
	var b strings.Builder
	b.WriteByte('$')
	for _, s := range p.steps {
		switch {
		case s.index >= 0:
			b.WriteString("[" + strconv.Itoa(s.index) + "]")
		case isName(s.key):
			b.WriteString("." + s.key)
		default:
			b.WriteString("[" + strconv.Quote(s.key) + "]")
		}
	}
	return b.String()
}

var isName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`).MatchString
