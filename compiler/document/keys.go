package document

import "bytes"

// smallObject is the number of fields up to which comparing every pair of keys
// is cheaper than a map.
const smallObject = 12

// checkKeys records the repeated keys of the object whose node is at.
func (d *Document) checkKeys(at uint32) {
	object := Value{d, at}
	var few [smallObject][]byte
	keys, many := few[:0], map[string]struct{}(nil)
	if object.Len() > smallObject {
		many = make(map[string]struct{}, object.Len())
	}
	for key := range object.Fields() {
		text, seen := key.bytes(), false
		if many != nil {
			_, seen = many[string(text)]
			many[string(text)] = struct{}{}
		} else {
			for i := 0; i < len(keys) && !seen; i++ {
				seen = bytes.Equal(text, keys[i])
			}
			keys = append(keys, text)
		}
		if seen && len(d.duplicates) < maxDuplicates {
			d.duplicates = append(d.duplicates, key.at)
		}
	}
}
