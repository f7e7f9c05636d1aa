package rootless

import (
	"bufio"
	"os/user"
	"strings"
)

// Subordinate returns how many ids lines of subuid(5) give a user.
func Subordinate(lines, name, id string) int64 {
	_, total := parseRanges(bufio.NewScanner(strings.NewReader(lines)), &user.User{Username: name, Uid: id})
	return total
}
