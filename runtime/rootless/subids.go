package rootless

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
)

// minSubordinate is how many subordinate ids a user needs: the usual size of a range in
// subuid(5), which covers the ids that images use, 1 to 65535.
const minSubordinate = 65536

// idRange is a line of subuid(5).
type idRange struct{ first, count int64 }

// subordinate returns this user's ranges in file, which is /etc/subuid or /etc/subgid
// and lists users by name or by number. It fails if they have too few ids.
func subordinate(file string, u *user.User) ([]idRange, error) {
	f, err := os.Open(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var ranges []idRange
	var total int64
	if err == nil {
		defer func() { _ = f.Close() }()
		ranges, total = parseRanges(bufio.NewScanner(f), u)
	}
	if total < minSubordinate {
		return nil, fmt.Errorf("%s gives user %s %d ids, and %d are needed: as root, run "+
			"\"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s\" with a range that nobody else has",
			file, u.Username, total, minSubordinate, u.Username)
	}
	return ranges, nil
}

func parseRanges(lines *bufio.Scanner, u *user.User) (ranges []idRange, total int64) {
	for lines.Scan() {
		fields := strings.Split(strings.TrimSpace(lines.Text()), ":")
		if len(fields) != 3 || fields[0] != u.Username && fields[0] != u.Uid {
			continue
		}
		first, err1 := strconv.ParseInt(fields[1], 10, 64)
		count, err2 := strconv.ParseInt(fields[2], 10, 64)
		if err1 == nil && err2 == nil && first > 0 && count > 0 {
			ranges, total = append(ranges, idRange{first, count}), total+count
		}
	}
	return ranges, total
}

// mapIDs maps root in the user namespace of a process to this user, and the ids from 1
// upwards to the user's subordinate ids.
func mapIDs(pid int) error {
	u, err := user.Current()
	if err != nil {
		return err
	}
	for _, m := range []struct{ program, file, own string }{
		{"newuidmap", "/etc/subuid", u.Uid}, {"newgidmap", "/etc/subgid", u.Gid},
	} {
		program, err := exec.LookPath(m.program)
		if err != nil {
			return fmt.Errorf("%s is not in PATH: install the package uidmap (shadow-utils on Fedora)", m.program)
		}
		ranges, err := subordinate(m.file, u)
		if err != nil {
			return err
		}
		args := []string{strconv.Itoa(pid), "0", m.own, "1"}
		next := int64(1)
		for _, r := range ranges {
			args = append(args, strconv.FormatInt(next, 10), strconv.FormatInt(r.first, 10), strconv.FormatInt(r.count, 10))
			next += r.count
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s", m.program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
