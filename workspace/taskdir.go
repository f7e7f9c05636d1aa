package workspace

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxTaskName bounds the readable part of a task's directory name in bytes, so that the
// whole name stays far below the 255 bytes that a file name may have.
const maxTaskName = 80

// TaskDir returns the name of the directory for the workspace of the task with this id:
// the id, in which one "_" replaces every run of characters other than ASCII letters,
// digits, "_", "." and "-", cut to 80 characters, and a digest of the whole id, so that two
// ids do not share a directory. The name is a single path component that is neither hidden
// nor "..".
func TaskDir(id string) string {
	sum := sha256.Sum256([]byte(id))
	return taskName(id) + "-" + hex.EncodeToString(sum[:8])
}

func taskName(id string) string {
	var b strings.Builder
	gap := false
	for _, c := range []byte(id) {
		if !isNameByte(c) {
			gap = true
			continue
		}
		if gap {
			b.WriteByte('_')
			gap = false
		}
		b.WriteByte(c)
		if b.Len() >= 2*maxTaskName {
			break
		}
	}
	name := strings.Trim(b.String(), "._")
	name = strings.TrimRight(name[:min(len(name), maxTaskName)], "._-")
	if name == "" {
		return "task"
	}
	return name
}

func isNameByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '_' || c == '.' || c == '-'
}
