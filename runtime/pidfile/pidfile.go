// Package pidfile records a process in a file by its id and its start time, so that a
// later process with the same id is not mistaken for it.
package pidfile

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Write records the living process pid in the file name. It replaces the file atomically,
// and only the owner can read it.
func Write(name string, pid int) error {
	started, err := startTime(pid)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name+".new", fmt.Appendf(nil, "%d %s\n", pid, started), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// Read returns the process that the file name records. ok is false if that process is
// not alive, or if there is no such file or it cannot be parsed.
func Read(name string) (pid int, ok bool) {
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

// Alive reports whether the process pid exists and has not ended. A zombie has ended.
func Alive(pid int) bool {
	_, err := startTime(pid)
	return err == nil
}

// startTime is field 22 of /proc/PID/stat, in clock ticks since boot (proc(5)).
func startTime(pid int) (string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", fmt.Errorf("process %d has ended: %w", pid, err)
	}
	// The process name, which ends at the last parenthesis, may contain any character.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 || fields[0] == "Z" || fields[0] == "X" {
		return "", fmt.Errorf("process %d has ended", pid)
	}
	return fields[19], nil
}
