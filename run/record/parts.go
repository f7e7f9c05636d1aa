package record

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// unlink returns a line without the fields that link it to the line before it.
func unlink(line []byte) ([]byte, error) {
	const length = len(`,"previous":""`) + len(digestName) + hexDigits + len(`,"digest":""}`) + len(digestName) + hexDigits
	if len(line) < length || !bytes.HasPrefix(line[len(line)-length:], []byte(`,"previous":"`+digestName)) {
		return nil, errors.New("its end is no link of a chain")
	}
	return line[:len(line)-length], nil
}

// link returns a line that follows previous in a chain, without a newline, and its digest.
func link(head []byte, previous string) (line []byte, digest string) {
	line = fmt.Appendf(slices.Clip(head), `,"previous":%q,"digest":`, previous)
	digest = Digest(line)
	return fmt.Appendf(line, "%q}", digest), digest
}

// parts compares the records of a merged run with the chains that its shards had.
type parts struct {
	left []Merged
	seen int    // records of the first of left
	last string // their chain's end; "" before the first
}

// take looks at the next line of the merged run.
func (p *parts) take(line []byte) error {
	if err := p.finish(); err != nil || len(p.left) == 0 {
		return err
	}
	head, err := unlink(line)
	if err != nil {
		return err
	}
	_, p.last = link(head, cmp.Or(p.last, p.left[0].Manifest))
	p.seen++
	return nil
}

// finish goes on to the next shard that has more records.
func (p *parts) finish() error {
	for len(p.left) > 0 && p.seen == p.left[0].Records {
		part, last := p.left[0], cmp.Or(p.last, p.left[0].Manifest)
		p.left, p.seen, p.last = p.left[1:], 0, ""
		if last != part.Last {
			return fmt.Errorf("the records of shard %d, which end before this line, are not those that it had", part.Index)
		}
	}
	return nil
}

// end returns an error if the records of a shard are missing or are not those that it had.
func (p *parts) end() error {
	if err := p.finish(); err != nil || len(p.left) == 0 {
		return err
	}
	return fmt.Errorf("ends within the records of shard %d, of which there were %d", p.left[0].Index, p.left[0].Records)
}
