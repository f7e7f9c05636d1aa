package document

import "slices"

// With returns a copy of d in which the root of value is the value of the field at the path keys. Objects
// on the way that are absent or null are created. If anything else on the way is no object, the copy
// equals d. New values have line 0.
func (d *Document) With(keys []string, value *Document) *Document {
	at := d.Root()
	for len(keys) > 0 && at.Get(keys[0]).Kind() != 0 {
		at, keys = at.Get(keys[0]), keys[1:]
	}
	text, added := value.text, len(value.nodes)
	for _, key := range slices.Backward(keys) {
		text = slices.Concat([]byte("{"), AppendQuoted(nil, []byte(key)), []byte(":"), text, []byte("}"))
		added += 2
	}
	n := at.node()
	begin, end, first, next := n.start, n.end, int(at.at), int(n.next) // of the text and the nodes replaced
	switch {
	case n.kind == Object && len(keys) > 0: // nothing is replaced
		text, added = text[1:len(text)-1], added-1
		if n.size > 0 {
			text = slices.Concat([]byte(","), text)
		}
		begin, end, first = end-1, end-1, next
	case n.kind != Null && len(keys) > 0:
		return d.Clone()
	case n.kind == String:
		begin, end = begin-1, end+1
	}
	c := new(Document)
	_ = c.parse(slices.Concat(d.text[:begin], text, d.text[end:]), 1) // it consists of accepted parts
	for i := range c.nodes {
		switch {
		case i < first || i == int(at.at) && len(keys) > 0:
			c.nodes[i].line = d.nodes[i].line
		case i < first+added:
			c.nodes[i].line = 0
		default:
			c.nodes[i].line = d.nodes[i-first-added+next].line
		}
	}
	return c
}
