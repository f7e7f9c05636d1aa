package terminal_test

import (
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/verifiers"
)

// TestRestored: a checker finds the owners and modes that the agent left, whoever owns
// the kept files. What it writes does not change them.
func TestRestored(t *testing.T) {
	checks := `test "$(stat -c %u:%a answer.txt shut/f shut shut/link . | tr '\n' ' ')" = "1000:600 1000:0 1000:100 1000:777 1000:755 "`
	script := `echo 44 > answer.txt; chmod 600 answer.txt; mkdir shut; echo x > shut/f; ln -s f shut/link; chmod 0 shut/f; chmod 100 shut`
	w := newTerminalWorld(t)
	w.user = "1000:1000"
	for name, test := range map[string]struct{ check, reason string }{
		"as they were": {checks + " && grep -qx 44 answer.txt", ""},
		"its owner's":  {"echo 45 > answer.txt && ! cat shut/f", ""},
		"others":       {"! " + checks, "checker_failed"},
	} {
		result, verdict := w.attempt(t, script, map[string]any{"checker": map[string]any{"command": test.check}}, verifiers.Permissions{})
		if verdict.Reason != test.reason {
			t.Errorf("%s: %q, %s%s", name, verdict.Reason, verdict.Stdout.Bytes(), verdict.Stderr.Bytes())
		}
		if digest, err := result.Candidate.TreeDigest(t.Context(), 0); err != nil || digest != result.Candidate.Digest {
			t.Errorf("%s: the checker changed the kept workspace: %v", name, err)
		}
		var st unix.Stat_t
		must.Do(t, unix.Stat(filepath.Join(result.Candidate.Workspace, "answer.txt"), &st))
		if int(st.Uid) != os.Geteuid() {
			t.Errorf("the kept answer belongs to %d", st.Uid)
		}
	}
}

// TestRootReadsAll: a checker that is root reads and writes what others have, as on a machine, where the sandbox has a user
// namespace of its own. A program of another user does not: it reads what the agent could read.
func TestRootReadsAll(t *testing.T) {
	w := newTerminalWorld(t)
	w.user = "1000:1000"
	c := containerdtest.Open(t)
	containerdtest.NewRun(t, c)
	reason := ""
	if mode, _ := c.UserNamespace(); mode == "host" {
		reason = "checker_failed"
	}
	script := `umask 077; ` + solve + `; printf '#!/bin/sh\ncat answer.txt\n' > prog; chmod 700 prog; mkdir shut; echo x > shut/f; chmod 0 shut/f shut; chmod 700 .`
	for name, test := range map[string]struct {
		checker map[string]any
		reason  string
	}{
		"root":       {map[string]any{"command": "grep -qx 44 answer.txt && cat shut/f && touch shut/g", "user": "root"}, reason},
		"not root":   {map[string]any{"command": "grep -qx 44 answer.txt && ! cat shut/f", "user": "1000"}, ""},
		"a third":    {map[string]any{"command": "grep -qx 44 answer.txt", "user": "1001"}, "checker_failed"},
		"its tester": {map[string]any{"command": "test \"$(run-candidate ./prog)\" = 44 && ! run-candidate cat shut/f && ! run-candidate touch new && { run-candidate sleep 99 & sleep 1; kill $!; }", "user": "root", "run_candidate": true}, ""},
	} {
		if _, v := w.attempt(t, script, map[string]any{"checker": test.checker}, verifiers.Permissions{}); v.Reason != test.reason {
			t.Errorf("%s: %q, %s%s", name, v.Reason, v.Stdout.Bytes(), v.Stderr.Bytes())
		}
	}
}
