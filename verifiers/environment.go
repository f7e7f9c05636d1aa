package verifiers

import (
	"cmp"
	"time"
)

// environ turns a task's variables into NAME=value entries.
func environ(vars map[string]string) []string {
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// timeout returns the first limit that is not 0: the checker's own, the task's, the
// default.
func timeout(limits ...time.Duration) time.Duration { return cmp.Or(limits...) }
