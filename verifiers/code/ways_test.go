package code_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/verifiers/contrast"
)

// TestCodeWays: how sure a pass is, for each case of testdata/ways.txtar with and without its reference, and
// with less effort. The name of a way is the expected assurance or reason of failure.
func TestCodeWays(t *testing.T) {
	w := newCodeWorld(t)
	for _, c := range readCases(t, "ways.txtar") {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := codeTask{Prompt: c.files["prompt.py"], Tests: c.files["tests.py"], Extract: strings.TrimSpace(c.files["extract"]), Timeout: 120}
			for _, way := range []string{"without", "with", "off"} {
				if c.files[way] == "" {
					continue
				}
				w := w
				switch way {
				case "with":
					task.Reference = c.files["reference.py"]
				case "off":
					w.contrast = contrast.Effort(way)
				}
				v, err := w.judge(t, task, c.files["candidate.py"])
				got := string(v.Assurance) + v.Reason
				if v.Metadata["doubtful"] == true {
					got += " doubtful"
				}
				if way == "off" && v.Contrast.State != way {
					t.Errorf("%s: %+v", way, v.Contrast)
				}
				if want := strings.TrimSpace(c.files[way]); err != nil || got != want {
					t.Errorf("%s a reference: %v %q (%s), want %q %+v\n%s", way, err, got, v.Message, want, v.Contrast, v.Stderr)
				}
			}
		})
	}
}

// TestCodeSyntaxError: the message says where the candidate is no Python.
func TestCodeSyntaxError(t *testing.T) {
	w := newCodeWorld(t)
	v, err := w.judge(t, codeTask{Tests: "assert f() == 1\n", Timeout: 120}, "\ndef f(:\n")
	if err != nil || v.Reason != "candidate_not_python" || !strings.Contains(v.Message, `line 2: "def f(:"`) {
		t.Errorf("%v %s %s", err, v.Reason, v.Message)
	}
}
