package rootless

import (
	"context"
	"os/user"
)

// Subordinate returns how many ids a file in the format of subuid(5) gives a user.
func Subordinate(file, name, id string) (int64, error) {
	_, total, err := subordinate(file, &user.User{Username: name, Uid: id})
	return total, err
}

// LaunchByRootlesskit starts a holder as on a host where sbench may not create
// namespaces.
func LaunchByRootlesskit(ctx context.Context, o Options) (int, error) {
	return launch(ctx, o, rootlesskit)
}

// LockFile is the file that users of the namespaces lock.
func LockFile(state string) string { return lockFile(state) }
