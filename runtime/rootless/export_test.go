package rootless

import "os/user"

// Subordinate returns how many ids a file in the format of subuid(5) gives a user.
func Subordinate(file, name, id string) (int64, error) {
	_, total, err := subordinate(file, &user.User{Username: name, Uid: id})
	return total, err
}
