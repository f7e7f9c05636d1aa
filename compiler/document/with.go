package document

// With returns a copy of d in which the field at the path keys has the root of value as its
// value. Absent and null objects on the way are created; anything else that is no object
// leaves the copy equal to d. New values have line 0.
func (d *Document) With(keys []string, value *Document) *Document {
	var w rewriter
	w.replace(d.Root(), keys, value)
	c := new(Document)
	_ = c.ParseJSON(w.text, 1) // it consists of accepted parts
	for i := range c.nodes {
		c.nodes[i].line = w.lines[i]
	}
	return c
}

// A rewriter writes a document's values as text, and notes the lines of its nodes.
type rewriter struct {
	text  []byte
	lines []int32
}

// copy appends a value as it is.
func (w *rewriter) copy(v Value) {
	w.text = append(w.text, v.Raw()...)
	for _, n := range v.d.nodes[v.at:v.node().next] {
		w.lines = append(w.lines, n.line)
	}
}

func (w *rewriter) replace(v Value, keys []string, value *Document) {
	if len(keys) == 0 {
		w.text = append(w.text, value.text...)
		w.lines = append(w.lines, make([]int32, len(value.nodes))...)
		return
	}
	if k := v.Kind(); k != Object && k != Null && k != 0 {
		w.copy(v)
		return
	}
	w.lines = append(w.lines, int32(v.Line()))
	separator, found := byte('{'), false
	key := func(quoted []byte, line int) {
		w.text = append(append(append(w.text, separator), quoted...), ':')
		w.lines = append(w.lines, int32(line))
		separator = ','
	}
	for k, field := range v.Fields() {
		key(k.Raw(), k.Line())
		if !k.Is(keys[0]) {
			w.copy(field)
			continue
		}
		found = true
		w.replace(field, keys[1:], value)
	}
	if !found {
		key(AppendQuoted(nil, []byte(keys[0])), 0)
		w.replace(Value{}, keys[1:], value)
	}
	w.text = append(w.text, '}')
}
