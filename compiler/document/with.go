package document

import (
	"bytes"
)

// With returns a copy of d in which the root of value is the value of the field at the path keys. Objects
// on the way that are absent or null are created. If anything else on the way is no object, the copy
// equals d. New values have line 0.
func (d *Document) With(keys []string, value *Document) *Document {
	var text []byte
	var lines []int32 // of the nodes
	keep := func(v Value) {
		text = append(text, v.Raw()...)
		for _, n := range d.nodes[v.at:v.node().next] {
			lines = append(lines, n.line)
		}
	}
	var write func(v Value, keys []string)
	write = func(v Value, keys []string) {
		switch {
		case len(keys) == 0:
			text, lines = append(text, value.text...), append(lines, make([]int32, len(value.nodes))...)
			return
		case v.Given() && v.Kind() != Object:
			keep(v)
			return
		}
		text, lines = append(text, '{'), append(lines, int32(v.Line()))
		for key, inner := range v.Fields() {
			keep(key)
			if text = append(text, ':'); key.Is(keys[0]) {
				write(inner, keys[1:])
			} else {
				keep(inner)
			}
			text = append(text, ',')
		}
		if v.Get(keys[0]).Kind() == 0 {
			text, lines = append(AppendQuoted(text, []byte(keys[0])), ':'), append(lines, 0)
			write(Value{}, keys[1:])
		}
		text = append(bytes.TrimSuffix(text, []byte(",")), '}')
	}
	write(d.Root(), keys)
	c := new(Document)
	_ = c.parse(text, 1) // it consists of accepted parts
	for i := range c.nodes {
		c.nodes[i].line = lines[i]
	}
	return c
}
