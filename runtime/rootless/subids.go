package rootless

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/userns"
)

// minSubordinate is how many subordinate ids a user needs: the usual size of a range in
// subuid(5), which covers the ids 1 to 65535 that images use.
const minSubordinate = 65536

// subordinate returns what file, /etc/subuid or /etc/subgid, grants to a user, and the total
// number of ids.
func subordinate(file string, u *user.User) (mine []userns.Grant, total int64, err error) {
	all, err := userns.Grants(file)
	for _, g := range all {
		if g.First > 0 && (g.User == u.Username || g.User == u.Uid) { // from 0 on would be the host's root
			mine, total = append(mine, g), total+g.Count
		}
	}
	return mine, total, err
}

// mapIDs maps root in the user namespace of a process to this user, and the ids from 1
// upwards to the user's subordinate ids.
func mapIDs(pid int) error {
	if set, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0); err != nil || set == 1 {
		return errors.Join(errors.New("no_new_privs is set, with which the setuid program newuidmap may not map ids: start sbench without it "+
			"(Docker: no --security-opt no-new-privileges; Kubernetes: allowPrivilegeEscalation: true; systemd: NoNewPrivileges=no)"), err)
	}
	u, err := user.Current()
	if err != nil {
		return fmt.Errorf("uid %d has no name, by which newuidmap finds its ids in /etc/subuid: give it a line in /etc/passwd and %d ids in /etc/subuid and /etc/subgid, or run as a user that has them: %w",
			os.Getuid(), minSubordinate, err)
	}
	for _, m := range []struct{ program, file, own string }{
		{"newuidmap", "/etc/subuid", u.Uid}, {"newgidmap", "/etc/subgid", u.Gid},
	} {
		program, err := exec.LookPath(m.program)
		if err != nil {
			return fmt.Errorf("%s is not in PATH: install the package uidmap (shadow-utils on Fedora)", m.program)
		}
		granted, total, err := subordinate(m.file, u)
		if err != nil {
			return err
		}
		if total < minSubordinate {
			return fmt.Errorf("%s gives user %s %d ids, and %d are needed: as root, run "+
				"\"usermod --add-subuids 100000-165535 --add-subgids 100000-165535 %s\" with a range that nobody else has",
				m.file, u.Username, total, minSubordinate, u.Username)
		}
		args := []string{strconv.Itoa(pid), "0", m.own, "1"}
		next := int64(1)
		for _, r := range granted {
			args = append(args, strconv.FormatInt(next, 10), strconv.FormatInt(r.First, 10), strconv.FormatInt(r.Count, 10))
			next += r.Count
		}
		if out, err := exec.Command(program, args...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w: %s (it needs its setuid bit or capability, which \"dpkg-reconfigure uidmap\" or "+
				"\"rpm --setcaps shadow-utils\" restores, on a file system that is not mounted nosuid)",
				m.program, strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return nil
}
