package rootless

import (
	"bufio"
	"context"
	"os/user"
	"strings"
)

// Subordinate returns how many ids lines of subuid(5) give a user.
func Subordinate(lines, name, id string) int64 {
	_, total := parseRanges(bufio.NewScanner(strings.NewReader(lines)), &user.User{Username: name, Uid: id})
	return total
}

// LaunchByRootlesskit starts a holder as where sbench may not make namespaces.
func LaunchByRootlesskit(ctx context.Context, o Options) (int, error) {
	return launch(ctx, o, rootlesskit)
}

// LockFile is what users of the namespaces hold.
func LockFile(state string) string { return lockFile(state) }
