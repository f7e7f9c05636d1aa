package rootless

import (
	"bufio"
	"context"
	"os/user"
	"strings"
)

// Subordinate returns how many ids a user gets from lines in the format of subuid(5).
func Subordinate(lines, name, id string) int64 {
	_, total := parseRanges(bufio.NewScanner(strings.NewReader(lines)), &user.User{Username: name, Uid: id})
	return total
}

// LaunchByRootlesskit starts a holder as on a host where sbench may not create
// namespaces.
func LaunchByRootlesskit(ctx context.Context, o Options) (int, error) {
	return launch(ctx, o, rootlesskit)
}

// LockFile is the file that users of the namespaces lock.
func LockFile(state string) string { return lockFile(state) }
