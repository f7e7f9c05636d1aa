package compiler

import (
	"bytes"
	"hash/maphash"
	"os"
	"slices"

	"github.com/securebench/sbench/compiler/document"
)

// idSet finds repeated ids with four bytes per id: it keeps 32 bits of each id's hash in
// 4096 lists. If a hash repeats, it reads the file again to compare the ids. Among a million
// distinct ids, chance causes about 0.03 such readings.
type idSet struct {
	file    string
	seed    maphash.Seed
	hashes  [4096][]uint32
	lookups int
}

// maxLookups bounds how often the file is read again. Later duplicates are reported without the line of
// the first.
const maxLookups = 64

// add adds the id of the row on this line. used reports whether an earlier line has the same
// id; first is that line, 0 if the file was not read again.
func (s *idSet) add(id string, line int) (first int, used bool) {
	hash := maphash.String(s.seed, id)
	set := &s.hashes[hash%uint64(len(s.hashes))]
	if mark := uint32(hash >> 32); !slices.Contains(*set, mark) {
		*set = append(*set, mark)
		return 0, false
	}
	if s.lookups++; s.lookups > maxLookups {
		return 0, true
	}
	first = s.find(id, line)
	return first, first > 0
}

// find returns the first line above the line before that has the id, or 0.
func (s *idSet) find(id string, before int) int {
	f, err := os.Open(s.file)
	if err != nil {
		return 0
	}
	defer shut(f)
	lines := newLineReader(f)
	var doc document.Document
	for {
		text, err := lines.next()
		if lines.line >= before || err != nil && err != errLongLine {
			return 0
		}
		// An id may be written with escapes, so lines with a backslash are parsed, too.
		if !bytes.Contains(text, []byte(id)) && !bytes.ContainsRune(text, '\\') {
			continue
		}
		if len(doc.ParseJSON(text, lines.line)) == 0 && doc.Root().Get("id").Is(id) {
			return lines.line
		}
	}
}
