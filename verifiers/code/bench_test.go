package code_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/verifiers"
)

// BenchmarkHumanEval judges b.N canonical solutions of HumanEval at 1 and 2 jobs, in containers and gVisor,
// sealed and beside the tests, without the calibration. times-plain is the time in units of plain processes
// of the host's interpreter at as many jobs.
func BenchmarkHumanEval(b *testing.B) {
	problems := humanEval(b)
	python, dir, calibrated := hostPython(b), b.TempDir(), map[string]bool{}
	file := func(p problem) string { return filepath.Join(dir, filepath.Base(p.TaskID)+".py") }
	for _, p := range problems {
		must.Do(b, os.WriteFile(file(p), []byte(p.Prompt+p.Solution+"\n"+p.tests()), 0o644))
	}
	type way struct {
		name string
		do   func(p problem) error
	}
	ways := []way{{"plain", func(p problem) error { return exec.Command(python, file(p)).Run() }}}
	judged := func(suffix string, w codeWorld) {
		ways = append(ways, way{"sealed" + suffix, func(p problem) error { return passes(w.judge(b, p.task(), p.Prompt+p.Solution)) }},
			way{"contrasted" + suffix, func(p problem) error {
				task := p.task()
				task.Tests += "assert " + p.Entry + ".__code__\n" // which is no plain data
				return passes(w.judge(b, task, p.Prompt+p.Solution))
			}})
	}
	judged("", newCodeWorld(b))
	if _, err := exec.LookPath("runsc"); err != nil {
		b.Logf("gVisor: not measured: %v", err)
	} else {
		opts := containerdtest.Options()
		opts.Isolation = string(runtime.GVisor)
		judged("-gvisor", codeWorldOn(b, containerdtest.OpenWith(b, opts)))
	}
	for _, jobs := range []int{1, 2} {
		var plain float64 // seconds per problem
		for _, way := range ways {
			b.Run(fmt.Sprintf("%s/jobs=%d", way.name, jobs), func(b *testing.B) {
				todo := make([]problem, b.N)
				for i := range todo {
					todo[i] = problems[i%len(problems)]
					if key := way.name + todo[i].TaskID; way.name != "plain" && !calibrated[key] {
						calibrated[key] = true
						must.Do(b, way.do(todo[i]))
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
