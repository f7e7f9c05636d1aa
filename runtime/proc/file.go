package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// WriteFile records the living process pid in the file name, by its id and start time, so
// that a later process with the same id is not mistaken for it. It replaces the file
// atomically; only the owner can read it.
func WriteFile(name string, pid int) error {
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", fmt.Appendf(nil, "%d %s\n", pid, started), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// ReadFile returns the process recorded in the file name. ok is false if the process is not
// alive, or the file is missing or malformed.
func ReadFile(name string) (pid int, ok bool) {
	text, err := os.ReadFile(name)
	fields := strings.Fields(string(text))
	if err != nil || len(fields) != 2 {
		return 0, false
	}
	pid, err = strconv.Atoi(fields[0])
	if err != nil {
		return 0, false
	}
	started, err := startTime(pid)
	return pid, err == nil && started == fields[1]
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot (proc(5)).
func startTime(pid int) (string, error) {
	s, err := ReadStat(pid)
	if err != nil {
		return "", err
	}
	if s.Ended() {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return s[19], nil
}
