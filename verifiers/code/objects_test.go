package code_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/verdicttest"
	"github.com/securebench/sbench/verifiers"
)

// TestCodeObjects: of tasks that the reference solution passes only beside the tests, the honest answers pass and no
// forged one does.
func TestCodeObjects(t *testing.T) {
	w := newCodeWorld(t)
	cases := readCases(t, "objects.txtar")
	all := cases[slices.IndexFunc(cases, func(c codeCase) bool { return c.name == "all" })]
	for i, c := range cases {
		if c.name == "all" || !verdicttest.Taken(i) {
			continue
		}
		names := fmt.Sprintf("NAMES = '%s'.split()\n", strings.Join(strings.Fields(c.files["names"]), " "))
		for name, forged := range all.files {
			c.files[name] = names + forged
		}
		task := c.task()
		for name, answer := range c.files {
			if strings.HasPrefix(name, "honest/") && (task.Reference == "" || answer < task.Reference) {
				task.Reference = answer
			}
		}
		for name, answer := range c.files {
			kind, _, ok := strings.Cut(name, "/")
			if !ok {
				continue
			}
			t.Run(c.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				v, err := w.judge(t, task, answer)
				verdicttest.Tally(t, "code_completion", kind, v)
				if err != nil || (v.Status == verifiers.Passed) != (kind == verdicttest.Honest) {
					t.Errorf("%v %s %s %s (%s) %+v\n%s", err, v.Status, v.Assurance, v.Reason, v.Message, v.Contrast, v.Stderr)
				}
				t.Logf("%s %s (%s) %+v", v.Assurance, v.Reason, v.Message, v.Contrast)
			})
		}
	}
}
