package candidate

import (
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"syscall"

	"github.com/securebench/sbench/runtime/passwd"
)

// CheckOwner returns an error if user, in the form of image configurations, cannot change anything in
// the repository: then no agent can solve the task, and no verifier can apply a patch. root has the
// image's files, and repo is an absolute path in it. Even root cannot change another user's files in
// a sandbox, for lack of CAP_DAC_OVERRIDE, capabilities(7).
func CheckOwner(root *os.Root, repo, user string) error {
	u, err := passwd.Lookup(root.Name(), user)
	if err != nil {
		return err
	}
	top, err := root.OpenRoot(strings.TrimPrefix(repo, "/"))
	if err != nil {
		return nil // git reports a missing repository later
	}
	defer func() { _ = top.Close() }()
	info, err := top.Stat(".")
	if err != nil {
		return err
	}
	if writable(info, u) {
		return nil
	}
	below, err := fs.ReadDir(top.FS(), ".")
	if err != nil {
		return err
	}
	for _, e := range below {
		if there, err := e.Info(); err == nil && e.IsDir() && e.Name() != ".git" && writable(there, u) {
			return nil
		}
	}
	owner := info.Sys().(*syscall.Stat_t)
	return fmt.Errorf("the repository %s of the image belongs to %d:%d, and the user of the task's sandboxes, %d:%d, cannot write to it: change its owner in the image, or set environment.user",
		repo, owner.Uid, owner.Gid, u.UID, u.GID)
}

// writable reports whether the mode of a directory lets a user without capabilities change what
// is in it.
func writable(info fs.FileInfo, u passwd.User) bool {
	st, mode := info.Sys().(*syscall.Stat_t), info.Mode().Perm()
	switch {
	case st.Uid == u.UID:
		return mode&0o200 != 0
	case st.Gid == u.GID || slices.Contains(u.Groups, st.Gid):
		return mode&0o020 != 0
	}
	return mode&0o002 != 0
}
