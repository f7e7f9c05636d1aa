package userns

import (
	"errors"
	"os"
	"strconv"
	"strings"
)

// A Grant is a line of /etc/subuid or /etc/subgid (subuid(5)): Count ids of the host, from
// First on, belong to a user. Count is not 0.
type Grant struct {
	User         string // by name or by number
	First, Count int64
}

// Grants reads a file in the format of subuid(5). A missing file grants nothing, and neither
// does a malformed line.
func Grants(file string) ([]Grant, error) {
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var all []Grant
	for line := range strings.Lines(string(text)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) != 3 {
			continue
		}
		first, err1 := strconv.ParseUint(fields[1], 10, 32)
		count, err2 := strconv.ParseUint(fields[2], 10, 32)
		if err1 == nil && err2 == nil && count > 0 {
			all = append(all, Grant{fields[0], int64(first), int64(count)})
		}
	}
	return all, nil
}
