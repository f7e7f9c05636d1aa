package record

import (
	"bytes"
	"errors"
	"fmt"
)

// unlink returns what a line has before the digest of the line before it.
func unlink(line []byte) ([]byte, error) {
	const length = len(`,"previous":""`) + len(digestName) + hexDigits + len(`,"digest":""}`) + len(digestName) + hexDigits
	if len(line) < length || !bytes.HasPrefix(line[len(line)-length:], []byte(`,"previous":"`+digestName)) {
		return nil, errors.New("its end is no link of a chain")
	}
	return line[:len(line)-length], nil
}

// link returns a line that follows previous in a chain, without a newline, and its digest.
func link(head []byte, previous string) (line []byte, digest string) {
	line = fmt.Appendf(bytes.Clone(head), `,"previous":%q,"digest":`, previous)
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
	for len(p.left) > 0 && p.seen == p.left[0].Records {
		if err := p.next(); err != nil {
			return err
		}
	}
	if len(p.left) == 0 {
		return nil
	}
	head, err := unlink(line)
	if err != nil {
		return err
	}
	if p.seen == 0 {
		p.last = p.left[0].Manifest
	}
	_, p.last = link(head, p.last)
	p.seen++
	return nil
}

// next goes on to the next shard.
func (p *parts) next() error {
	part, last := p.left[0], p.last
	if p.seen == 0 {
		last = part.Manifest
	}
	p.left, p.seen, p.last = p.left[1:], 0, ""
	if last != part.Last {
		return fmt.Errorf("the records of shard %d, which end before this line, are not those that it had", part.Index)
	}
	return nil
}

// end returns an error if the records of a shard are missing or are not those that it had.
func (p *parts) end() error {
	for len(p.left) > 0 {
		if p.seen < p.left[0].Records {
			return fmt.Errorf("ends within the records of shard %d, of which there were %d", p.left[0].Index, p.left[0].Records)
		}
		if err := p.next(); err != nil {
			return err
		}
	}
	return nil
}
