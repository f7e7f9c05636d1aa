package compiler

import (
	"bytes"
	"hash/maphash"
	"os"

	"github.com/securebench/sbench/compiler/document"
)

// idSet finds repeated ids with four bytes per id: it keeps 32 bits of a hash of each
// in 4096 open-addressed tables, and reads the file again to confirm that a hash seen
// before belongs to the same id. A million distinct ids cause about 0.03 such
// readings by chance. The tables grow one at a time, so that growing never needs
// twice the memory.
type idSet struct {
	file    string
	seed    maphash.Seed
	tables  [idTables]idTable
	lookups int
}

const idTables = 4096

// maxLookups bounds how often the file is read again. Only a file with very many
// duplicates reaches it; further ones are reported without the line of the first.
const maxLookups = 64

func newIDSet(file string) *idSet {
	return &idSet{file: file, seed: maphash.MakeSeed()}
}

// idTable is a hash table of 32-bit values; 0 marks a free slot.
type idTable struct {
	slots []uint32
	used  int
}

// add adds the id of the row on this line. It reports whether an earlier line has the
// same id, and which one, or 0 if the file was not read again.
func (s *idSet) add(id string, line int) (first int, used bool) {
	hash := maphash.String(s.seed, id)
	table := &s.tables[hash%idTables]
	mark := uint32(hash >> 32)
	if mark == 0 {
		mark = 1
	}
	if table.add(mark) {
		return 0, false
	}
	if s.lookups++; s.lookups > maxLookups {
		return 0, true
	}
	first = s.find(id, line)
	return first, first > 0
}

// add adds mark and reports whether it is new.
func (t *idTable) add(mark uint32) bool {
	if 4*(t.used+1) > 3*len(t.slots) {
		t.grow()
	}
	i := int(uint64(mark) * uint64(len(t.slots)) >> 32)
	for t.slots[i] != 0 {
		if t.slots[i] == mark {
			return false
		}
		if i++; i == len(t.slots) {
			i = 0
		}
	}
	t.slots[i] = mark
	t.used++
	return true
}

func (t *idTable) grow() {
	old := t.slots
	t.slots, t.used = make([]uint32, max(8, len(old)+len(old)/2)), 0
	for _, mark := range old {
		if mark != 0 {
			t.add(mark)
		}
	}
}

// find returns the first line before the given one whose row has the id, or 0.
func (s *idSet) find(id string, before int) int {
	f, err := os.Open(s.file)
	if err != nil {
		return 0
	}
	defer shut(f)
	lines := newLineReader(f, DefaultMaxLine)
	var doc document.Document
	for {
		text, err := lines.next()
		if lines.line >= before || err != nil && err != errLongLine {
			return 0
		}
		// An id may be written with escapes, so lines with a backslash are parsed
		// too.
		if !bytes.Contains(text, []byte(id)) && !bytes.ContainsRune(text, '\\') {
			continue
		}
		if len(doc.ParseJSON(text, lines.line)) == 0 && doc.Root().Get("id").Is(id) {
			return lines.line
		}
	}
}
