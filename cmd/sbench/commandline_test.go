package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestCommandLinesTellNothing: every user of the host can read the command lines of sbench's processes and of a sandbox's.
// While a hidden checker and its services run, no command line has their words or the value of a variable of the harness.
func TestCommandLinesTellNothing(t *testing.T) {
	h := newHost(t)
	const secret, hidden = "sk-0123456789abcdef", "the-hidden-answer"
	mark := fmt.Sprintf("sbench-command-line-%d", os.Getpid())
	pack := filepath.Join(t.TempDir(), "pack")
	checker := fmt.Sprintf(`test %s != x && python3 -c "import time; time.sleep(2)" %s`, hidden, mark)
	service := fmt.Sprintf(`"eval": {"services": [{"command": "test %s != x && sleep 9 && true", "ready": "test %s != x"}], `, hidden, hidden)
	tester := writePack(t, pack, strings.Replace(taskRow("one", checker, ""), `"eval": {`, service, 1), "harness: {type: command, env: [TOKEN], config: {command: [sh, -c, 'test -n \"$TOKEN\"']}}\n")
	cmd := exec.Command("sbench", "run", tester, "-o", filepath.Join(pack, "out"), "--progress=none")
	cmd.Env = append(h.env, "TOKEN="+secret)
	must.Do(t, cmd.Start())
	must.Await(t, "the checker's program", func() bool { return strings.Contains(fmt.Sprint(commandLines(t)), mark) })
	for _, word := range []string{secret, hidden} {
		if strings.Contains(fmt.Sprint(commandLines(t)), word) {
			t.Errorf("a command line has %q", word)
		}
	}
	must.Do(t, cmd.Wait())
	if r := recordsOf(t, filepath.Join(pack, "out")); len(r) != 1 || r[0].VerificationStatus != "passed" {
		t.Errorf("%+v", r)
	}
}
