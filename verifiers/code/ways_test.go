package code_test

import (
	"strings"
	"testing"
)

// TestCodeWays: how sure a pass is, for each case of testdata/ways.txtar with and without
// its reference. "with" and "without" say what is expected: an assurance, or a reason of failure.
func TestCodeWays(t *testing.T) {
	w := newCodeWorld(t)
	for _, c := range readCases(t, "ways.txtar") {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			task := codeTask{Prompt: c.files["prompt.py"], Tests: c.files["tests.py"], Extract: strings.TrimSpace(c.files["extract"]), Timeout: 20}
			for _, way := range []string{"without", "with"} {
				if way == "with" {
					task.Reference = c.files["reference.py"]
				}
				v, err := w.judge(t, task, c.files["candidate.py"])
				got := string(v.Assurance) + v.Reason
				if v.Metadata["doubtful"] == true {
					got += " doubtful"
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
	v, err := w.judge(t, codeTask{Tests: "assert f() == 1\n", Timeout: 20}, "\ndef f(:\n")
	if err != nil || v.Reason != "candidate_not_python" || !strings.Contains(v.Message, "line 2") {
		t.Errorf("%v %s %s", err, v.Reason, v.Message)
	}
}
