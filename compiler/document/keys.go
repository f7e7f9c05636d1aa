package document

import "bytes"

// smallObject is the number of fields up to which comparing every pair of keys
// is cheaper than a map.
const smallObject = 12

// checkKeys notes the keys of the object at that stand in it twice.
func (d *Document) checkKeys(at uint32) {
	object := Value{d, at}
	if object.Len() > smallObject {
		d.checkManyKeys(object)
		return
	}
	var keys [smallObject][]byte
	n := 0
	for key := range object.Fields() {
		text := key.bytes()
		for _, other := range keys[:n] {
			if bytes.Equal(text, other) {
				d.duplicate(key.at)
				break
			}
		}
		keys[n] = text
		n++
	}
}

func (d *Document) checkManyKeys(object Value) {
	seen := make(map[string]struct{}, object.Len())
	for key := range object.Fields() {
		text := key.bytes()
		if _, ok := seen[string(text)]; ok {
			d.duplicate(key.at)
			continue
		}
		seen[string(text)] = struct{}{}
	}
}

func (d *Document) duplicate(at uint32) {
	if len(d.duplicates) < maxDuplicates {
		d.duplicates = append(d.duplicates, at)
	}
}
