package terminal

import (
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/runtime"
)

// TestSummaries: the last lines of pytest's versions are recognized, and other lines are not.
func TestSummaries(t *testing.T) {
	for _, tt := range []struct {
		name, stdout, stderr string
		passes               bool
	}{
		{"plain", "===== 2 passed in 0.01s =====", "", true},
		{"quiet, with a warning", "2 passed, 1 warning in 61.20s (0:01:01)", "", true},
		{"colours", "\x1b[32m== \x1b[32m\x1b[1m1 passed\x1b[0m\x1b[32m in 0.01s\x1b[0m ==", "", true},
		{"before version 5", "=== 3 passed, 1 skipped in 0.12 seconds ===", "", true},
		{"subtests", "== 1 passed, 3 subtests passed in 0.02s ==", "", true},
		{"a failed subtest", "== 1 passed, 1 subtests failed in 0.02s ==", "", false},
		{"failed", "== 1 failed, 2 passed in 0.02s ==", "", false},
		{"an error", "== 2 passed, 1 error in 0.02s ==", "", false},
		{"skipped only", "== 2 skipped in 0.02s ==", "", false},
		{"another program's line afterwards", "2 passed in 0.01s\n5 files were copied in 3 s", "", true},
		{"none", "no tests ran in 0.01s", "", false},
		{"failed on the other stream", "1 passed in 0.01s", "1 failed in 0.01s", false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			output := func(text string) runtime.Output {
				return runtime.Output{Head: []byte(text), Total: int64(len(text))}
			}
			c := terminalCheck{checker: checker{eval: family.TerminalEval{Checker: compiler.Checker{PytestSummary: true}}}}
			exit := c.summarized(runtime.Exit{Reason: runtime.Exited, Stdout: output(tt.stdout), Stderr: output(tt.stderr)})
			if exit.Success() != tt.passes {
				t.Errorf("exit code %d", exit.Code)
			}
		})
	}
}
