package verifiers

import (
	"time"

	"github.com/securebench/sbench/compiler"
)

// environ turns a task's variables into NAME=value entries.
func environ(vars map[string]string) []string {
	env := make([]string, 0, len(vars))
	for name, value := range vars {
		env = append(env, name+"="+value)
	}
	return env
}

// timeout is the checker's own, else the task's, else the default.
func timeout(c compiler.Checker, env compiler.Environment) time.Duration {
	for _, d := range []time.Duration{c.Timeout, env.Timeout} {
		if d > 0 {
			return d
		}
	}
	return compiler.DefaultTimeout
}
