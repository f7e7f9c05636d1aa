package machine

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
)

// loaderCache is where ldconfig(8) writes which library the loader finds by which name.
const loaderCache = "etc/ld.so.cache"

// maxLoaderCache bounds what is read of a candidate's loader cache, in bytes.
const maxLoaderCache = 4 << 20

// A cacheEntry is an entry of a loader cache in glibc's format of 1.1 (dl-cache.h). hwcap is not
// 0 for a library that is for certain processors.
type cacheEntry struct {
	flags, osVersion uint32
	hwcap            uint64
	name, path       string
}

const cacheMagic = "glibc-ld.so.cache1.1"

// A cacheHeader is the beginning of a loader cache.
type cacheHeader struct {
	Magic          [len(cacheMagic)]byte
	Count, Strings uint32 // of entries; bytes of names and paths
	Flags          uint8
	_              [19]byte
}

// littleEndian in the Flags of a cacheHeader is the order of the bytes.
const littleEndian = 2

// A cacheRecord is an entry of a loader cache. Name and Path are the places in the cache where these texts begin; a zero
// byte ends each.
type cacheRecord struct {
	Flags, Name, Path, OSVersion uint32
	HWCap                        uint64
}

// readCache returns the entries of a loader cache; nil if it is none.
func readCache(text []byte) (all []cacheEntry) {
	var h cacheHeader
	n, err := binary.Decode(text, binary.LittleEndian, &h)
	if err != nil || string(h.Magic[:]) != cacheMagic || int(h.Count) > len(text)/binary.Size(cacheRecord{}) {
		return nil
	}
	records := make([]cacheRecord, h.Count)
	if _, err := binary.Decode(text[n:], binary.LittleEndian, records); err != nil {
		return nil
	}
	str := func(at uint32) string {
		s, _, _ := bytes.Cut(text[min(int64(at), int64(len(text))):], []byte{0})
		return string(s)
	}
	for _, r := range records {
		all = append(all, cacheEntry{r.Flags, r.OSVersion, r.HWCap, str(r.Name), str(r.Path)})
	}
	return all
}

// writeCache returns a loader cache with these entries, in their order.
func writeCache(all []cacheEntry) []byte {
	h := cacheHeader{Count: uint32(len(all)), Flags: littleEndian}
	copy(h.Magic[:], cacheMagic)
	records, strings := make([]cacheRecord, len(all)), []byte(nil)
	first := uint32(binary.Size(h) + binary.Size(records))
	for i, e := range all {
		name := first + uint32(len(strings))
		records[i] = cacheRecord{e.flags, name, name + uint32(len(e.name)) + 1, e.osVersion, e.hwcap}
		strings = append(strings, e.name+"\x00"+e.path+"\x00"...)
	}
	h.Strings = uint32(len(strings))
	text, _ := binary.Append(nil, binary.LittleEndian, h) // both have a fixed size
	text, _ = binary.Append(text, binary.LittleEndian, records)
	return append(text, strings...)
}

// mergeCaches returns the image's loader cache with the candidate's entries for names that are
// not known, as those of the image are; nil if the candidate's lacks one of the image's, or adds none.
// The order is the candidate's: if it is not the loader's, the loader finds less.
func mergeCaches(image, candidate []byte, known map[string]bool) []byte {
	own := readCache(image)
	var merged []cacheEntry
	rest := slices.Clone(own)
	for _, e := range readCache(candidate) {
		if i := slices.Index(rest, e); i >= 0 {
			rest = slices.Delete(rest, i, i+1)
		} else if known[e.name] || e.name == "" || e.hwcap != 0 || !path.IsAbs(e.path) || codeByName.MatchString("/"+e.name) {
			continue
		}
		merged = append(merged, e)
	}
	if len(own) == 0 || len(rest) > 0 || len(merged) == len(own) || slices.ContainsFunc(own, func(e cacheEntry) bool { return e.hwcap != 0 }) {
		return nil
	}
	return writeCache(merged)
}
