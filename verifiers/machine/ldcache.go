package machine

import (
	"bytes"
	"encoding/binary"
	"path"
	"slices"
)

// loaderCache is where ldconfig(8) writes which library the loader finds by which name.
const loaderCache = "etc/ld.so.cache"

// maxLoaderCache bounds what is read of a loader cache, in bytes.
const maxLoaderCache = 4 << 20

// A cacheEntry is an entry of a loader cache in glibc's format of 1.1 (dl-cache.h). hwcap is not
// 0 for a library that is for certain processors.
type cacheEntry struct {
	flags, osVersion uint32
	hwcap            uint64
	name, path       string
}

const (
	cacheMagic  = "glibc-ld.so.cache1.1"
	cacheHeader = 48 // bytes
	cacheRecord = 24 // bytes of an entry
)

// readCache returns the entries of a loader cache; nil if it is none, or one that a machine could not have.
func readCache(text []byte) (all []cacheEntry) {
	if len(text) < cacheHeader || string(text[:len(cacheMagic)]) != cacheMagic {
		return nil
	}
	u32 := func(at int) uint32 { return binary.LittleEndian.Uint32(text[at:]) }
	count := int(u32(len(cacheMagic)))
	if count > (len(text)-cacheHeader)/cacheRecord {
		return nil
	}
	left := maxLoaderCache // bytes of names and paths, which many entries can share
	str := func(at uint32) string {
		if uint64(at) >= uint64(len(text)) {
			return ""
		}
		s, _, _ := bytes.Cut(text[at:], []byte{0})
		left -= len(s)
		return string(s)
	}
	for i := range count {
		at := cacheHeader + i*cacheRecord
		all = append(all, cacheEntry{u32(at), u32(at + 12), binary.LittleEndian.Uint64(text[at+16:]), str(u32(at + 4)), str(u32(at + 8))})
		if left < 0 {
			return nil
		}
	}
	return all
}

// writeCache returns a loader cache with these entries, in their order.
func writeCache(all []cacheEntry) []byte {
	var strings []byte
	text := make([]byte, cacheHeader, cacheHeader+len(all)*cacheRecord)
	copy(text, cacheMagic)
	at := uint32(cap(text))
	for _, e := range all {
		text = binary.LittleEndian.AppendUint32(text, e.flags)
		text = binary.LittleEndian.AppendUint32(text, at)
		text = binary.LittleEndian.AppendUint32(text, at+uint32(len(e.name))+1)
		text = binary.LittleEndian.AppendUint32(text, e.osVersion)
		text = binary.LittleEndian.AppendUint64(text, e.hwcap)
		strings = append(strings, e.name+"\x00"+e.path+"\x00"...)
		at += uint32(len(e.name) + len(e.path) + 2)
	}
	binary.LittleEndian.PutUint32(text[len(cacheMagic):], uint32(len(all)))
	binary.LittleEndian.PutUint32(text[len(cacheMagic)+4:], uint32(len(strings)))
	text[len(cacheMagic)+8] = 2 // little endian
	return append(text, strings...)
}

// mergeCaches returns the image's loader cache with the candidate's entries for names that are
// not known (the image's names are); nil if the candidate's cache lacks an entry of the image's, or adds none.
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
