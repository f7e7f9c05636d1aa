// Package passwd finds users in the files of an image or of a stopped sandbox, which an agent may
// have written. The parser of moby/sys/user would read an id that is no number as root's, and any
// amount of data.
package passwd

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxBytes bounds how much is read of each file.
const maxBytes = 1 << 20

// A User is what the kernel and programs need to know about a user.
type User struct {
	UID, GID uint32
	Groups   []uint32 // others than GID
	Home     string   // "/" if unknown
}

// Lookup resolves "uid", "name", "uid:gid" or "name:group", as in image configurations, by
// /etc/passwd and /etc/group of the root file system at root. The empty name is root. It is
// no error if an id is in neither file.
func Lookup(root, name string) (User, error) {
	who, group, hasGroup := strings.Cut(cmp.Or(name, "0"), ":")
	u := User{Home: "/"}
	passwd, err := records(root, "etc/passwd", 6)
	if err != nil {
		return u, err
	}
	uid, numeric := parseID(who)
	known := false
	for _, p := range passwd {
		id, ok := parseID(p[2])
		gid, gidOK := parseID(p[3])
		if !ok || !gidOK || (p[0] != who && !(numeric && id == uid)) {
			continue
		}
		u.UID, u.GID, u.Home, known = id, gid, cmp.Or(p[5], "/"), true
		who = p[0]
		break
	}
	if !known {
		if !numeric {
			return u, fmt.Errorf("user %q is not in the image's /etc/passwd", who)
		}
		u.UID = uid
	}
	return u, u.addGroups(root, who, group, hasGroup)
}

func (u *User) addGroups(root, who, group string, hasGroup bool) error {
	lines, err := records(root, "etc/group", 4)
	if err != nil {
		return err
	}
	if gid, ok := parseID(group); ok {
		u.GID = gid
		return nil
	}
	for _, g := range lines {
		id, ok := parseID(g[2])
		switch {
		case !ok:
		case hasGroup && g[0] == group:
			u.GID = id
			return nil
		case !hasGroup && slices.Contains(strings.Split(g[3], ","), who) && id != u.GID:
			u.Groups = append(u.Groups, id)
		}
	}
	if hasGroup {
		return fmt.Errorf("group %q is not in the image's /etc/group", group)
	}
	return nil
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// records returns the colon-separated lines with at least n fields. A missing or irregular
// file has none.
func records(root, name string, n int) ([][]string, error) {
	r, err := os.OpenRoot(root)
	if err != nil {
		return nil, err
	}
	defer func() { _ = r.Close() }()
	f, err := r.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	defer func() { _ = f.Close() }()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	var all [][]string
	sc := bufio.NewScanner(io.LimitReader(f, maxBytes))
	for sc.Scan() {
		if fields := strings.Split(sc.Text(), ":"); len(fields) >= n {
			all = append(all, fields)
		}
	}
	if err := sc.Err(); err != nil {
		return nil, fmt.Errorf("image: %s: %w", name, err)
	}
	return all, nil
}
