package layer

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/workspace"
)

// attributeRecord is the beginning of the name of a record of an archive that has an extended attribute.
const attributeRecord = "SCHILY.xattr."

const maxAttributes = 64 << 10 // bytes of an entry's attributes with their names

// keepsAttribute reports whether a layer has an attribute. A layer has access lists (acl(5)) and what users set, but no
// attributes of overlayfs, and none with a name that an archive cannot have.
func keepsAttribute(name string) bool {
	switch {
	case strings.Contains(name, "="):
		return false
	case strings.HasPrefix(name, "user."):
		return !strings.HasPrefix(name, "user.overlay.")
	}
	return name == "system.posix_acl_access" || name == "system.posix_acl_default"
}

// attributesOf returns the records of a header that a layer keeps.
func attributesOf(h *tar.Header) map[string]string {
	all := maps.Clone(h.PAXRecords)
	maps.DeleteFunc(all, func(record, _ string) bool {
		name, ok := strings.CutPrefix(record, attributeRecord)
		return !ok || !keepsAttribute(name)
	})
	return all
}

// readAttributes returns the attributes of an entry of dir that is no link, as records.
func readAttributes(dir *os.Root, name string) (all map[string]string, err error) {
	left := maxAttributes
	err = inDirectory(dir, name, func(dir int, name string) error {
		at := fmt.Sprintf("/proc/self/fd/%d/%s", dir, name)
		names, err := sized(func(to []byte) (int, error) { return unix.Llistxattr(at, to) })
		for name := range bytes.SplitSeq(names, []byte{0}) {
			if err != nil || !keepsAttribute(string(name)) {
				continue
			}
			var value []byte
			value, err = sized(func(to []byte) (int, error) { return unix.Lgetxattr(at, string(name), to) })
			if all == nil {
				all = map[string]string{}
			}
			all[attributeRecord+string(name)] = string(value)
			if left -= len(name) + len(value); left < 0 {
				err = unix.E2BIG
			}
		}
		return err
	})
	switch {
	case errors.Is(err, unix.ENOTSUP): // the file system has none
		return nil, nil
	case errors.Is(err, unix.E2BIG):
		err = fmt.Errorf("%w: more than %d bytes of extended attributes", workspace.ErrTooBig, maxAttributes)
	}
	return all, err
}

// sized calls read for the size of what it reads, and then to read that.
func sized(read func(to []byte) (int, error)) ([]byte, error) {
	n, err := read(nil)
	if err != nil || n == 0 {
		return nil, err
	}
	to := make([]byte, n)
	n, err = read(to)
	return to[:max(n, 0)], err
}

// writeAttributes gives an entry that is no link the attributes of records, as far as the file system takes them: they
// are the candidate's, and no reason for an error.
func writeAttributes(root *os.Root, at string, records map[string]string) error {
	if len(records) == 0 {
		return nil
	}
	return inDirectory(root, at, func(dir int, name string) error {
		for record, value := range records {
			_ = unix.Lsetxattr(fmt.Sprintf("/proc/self/fd/%d/%s", dir, name), strings.TrimPrefix(record, attributeRecord), []byte(value), 0)
		}
		return nil
	})
}
