package containerd

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxPasswd bounds how many bytes are read of /etc/passwd and /etc/group, which an agent
// may have written.
const maxPasswd = 1 << 20

type user struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// lookupUser resolves "uid", "name", "uid:gid" or "name:group" against the root
// file system at root, as image configurations write it. The empty name is root.
func lookupUser(root, name string) (user, error) {
	who, group, hasGroup := strings.Cut(firstOf(name, "0"), ":")
	u := user{home: "/"}
	passwd, err := records(root, "etc/passwd", 6)
	if err != nil {
		return u, err
	}
	uid, numeric := parseID(who)
	known := false
	for _, p := range passwd {
		id, ok := parseID(p[2])
		if !ok || (p[0] != who && !(numeric && id == uid)) {
			continue
		}
		gid, _ := parseID(p[3])
		u.uid, u.gid, u.home, known = id, gid, firstOf(p[5], "/"), true
		who = p[0]
		break
	}
	if !known {
		if !numeric {
			return u, fmt.Errorf("user %q is not in the image's /etc/passwd", who)
		}
		u.uid = uid
	}
	return u, u.addGroups(root, who, group, hasGroup)
}

func (u *user) addGroups(root, who, group string, hasGroup bool) error {
	lines, err := records(root, "etc/group", 4)
	if err != nil {
		return err
	}
	if gid, ok := parseID(group); ok {
		u.gid = gid
		return nil
	}
	for _, g := range lines {
		id, ok := parseID(g[2])
		switch {
		case !ok:
		case hasGroup && g[0] == group:
			u.gid = id
			return nil
		case !hasGroup && contains(g[3], who) && id != u.gid:
			u.groups = append(u.groups, id)
		}
	}
	if hasGroup {
		return fmt.Errorf("group %q is not in the image's /etc/group", group)
	}
	return nil
}

func contains(list, name string) bool {
	for member := range strings.SplitSeq(list, ",") {
		if member == name {
			return true
		}
	}
	return false
}

func parseID(s string) (uint32, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return uint32(n), err == nil
}

// records reads the colon-separated lines that have at least n fields. A file that is
// missing, or is no regular file, has none.
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
	sc := bufio.NewScanner(io.LimitReader(f, maxPasswd))
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
