package terminal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/verifiers"
)

// TestSeparateForged: tests in the checker's own image are made to fail as those of a pack are, and a module that ends
// their process does not pass.
func TestSeparateForged(t *testing.T) {
	w := newTerminalWorld(t)
	const script = "#!/bin/bash\nif %s; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n"
	tests := []struct {
		name, honest, forged, command string
		files                         map[string]string
	}{
		{"python", "echo 'def add(a, b): return a + b' > solve.py", "echo 'import os; os._exit(0)' > solve.py", "python3 -m pytest -q /tests/test_add.py >&2", map[string]string{
			"test_add.py": "import sys\nsys.path.insert(0, '/workspace')\nfrom solve import add\ndef test_add():\n    assert add(2, 3) == 5\n",
		}},
		{"perl, with data that the test reads first", "echo 'sub add { $_[0] + $_[1] } 1;' > solve.pl", "echo 'exit 0;' > solve.pl", "perl /tests/add.t", map[string]string{
			"add.t": "open(F, '<', '/tests/want') or die; chomp(my $want = <F>); $want == 5 or die 'no data';\nrequire '/workspace/solve.pl';\nadd(2, 3) == $want or die 'wrong';\n",
			"want":  "5\n", "lib/node_modules/x/index.js": "1\n",
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w, dir := w, t.TempDir()
			tt.files["test.sh"] = strings.Replace(script, "%s", tt.command, 1)
			filetest.Write(t, dir, tt.files)
			ref := "sbench.local/separate-" + tt.name[:4] + ":test"
			w.checker = containerdtest.WithDirectory(t, containerdtest.Open(t), ref, dir, "tests")
			eval := map[string]any{"checker": map[string]any{
				"image": ref, "command": []string{"bash", "-c", "bash /tests/test.sh"}, "reward": true,
				"artifacts": []string{"/workspace/solve.py", "/workspace/solve.pl"},
			}}
			if _, v := w.attempt(t, tt.honest, eval, verifiers.Permissions{}); v.Status != verifiers.Passed || v.Metadata["canary"] != "failed" {
				t.Errorf("honest: %s %s: %s, canary %v\n%s%s", v.Status, v.Reason, v.Message, v.Metadata["canary"], v.Stdout, v.Stderr)
			}
			if _, v := w.attempt(t, tt.forged, eval, verifiers.Permissions{}); !slices.Contains([]string{"passes_broken_tests", "answer_follows_test"}, v.Reason) {
				t.Errorf("forged: %s %s: %s, canary %v\n%s%s", v.Status, v.Reason, v.Message, v.Metadata["canary"], v.Stdout, v.Stderr)
			}
		})
	}
}
