package workspace

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// maxTaskName bounds the readable part of a task's directory name in bytes, which keeps the
// whole name far below the limit of 255.
const maxTaskName = 80

// TaskDir returns the name of the directory for the workspace of the task with this id: the
// id, with each run of characters other than ASCII letters, digits, "_", "." and "-"
// replaced by "_", cut to 80 characters, and a digest of the whole id, so that no two ids
// share a directory. The name is a single path component, neither hidden nor "..".
func TaskDir(id string) string {
	sum := sha256.Sum256([]byte(id))
	name := strings.Trim(otherBytes.ReplaceAllString(id, "_"), "._")
	name = strings.TrimRight(name[:min(len(name), maxTaskName)], "._-")
	return cmp.Or(name, "task") + "-" + hex.EncodeToString(sum[:8])
}

var otherBytes = regexp.MustCompile("[^A-Za-z0-9_.-]+")
