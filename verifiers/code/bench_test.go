package code_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/verifiers"
)

// BenchmarkHumanEval judges b.N canonical solutions of HumanEval, sealed,
// and runs them with their tests as plain processes of the host's interpreter, at 1 and
// at 2 jobs. times-plain is the time in units of plain processes at as many jobs. The
// calibration, once for each problem, is not included.
func BenchmarkHumanEval(b *testing.B) {
	problems := humanEval(b)
	w := newCodeWorld(b)
	python, dir, calibrated := hostPython(b), b.TempDir(), map[string]bool{}
	file := func(p problem) string { return filepath.Join(dir, filepath.Base(p.TaskID)+".py") }
	for _, p := range problems {
		if err := os.WriteFile(file(p), []byte(p.Prompt+p.Solution+"\n"+p.tests()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	ways := []struct {
		name string
		do   func(p problem) error
	}{
		{"plain", func(p problem) error { return exec.Command(python, file(p)).Run() }},
		{"sealed", func(p problem) error { return passes(w.judge(b, p.task(), p.Prompt+p.Solution)) }},
	}
	for _, jobs := range []int{1, 2} {
		var plain float64 // seconds per problem
		for _, way := range ways {
			b.Run(fmt.Sprintf("%s/jobs=%d", way.name, jobs), func(b *testing.B) {
				todo := make([]problem, b.N)
				for i := range todo {
					todo[i] = problems[i%len(problems)]
					if way.name == "sealed" && !calibrated[todo[i].TaskID] {
						calibrated[todo[i].TaskID] = true
						if err := way.do(todo[i]); err != nil {
							b.Fatal(err)
						}
					}
				}
				begun := time.Now()
				each(todo, jobs, func(p problem) {
					if err := way.do(p); err != nil {
						b.Errorf("%s: %v", p.TaskID, err)
					}
				})
				took := time.Since(begun).Seconds() / float64(b.N)
				if way.name == "plain" {
					plain = took
				}
				b.ReportMetric(1/took, "verifications/s")
				b.ReportMetric(took/plain, "times-plain")
			})
		}
	}
}

func passes(v verifiers.Verdict, err error) error {
	if err == nil && v.Status != verifiers.Passed {
		err = fmt.Errorf("%s %s", v.Status, v.Reason)
	}
	return err
}
