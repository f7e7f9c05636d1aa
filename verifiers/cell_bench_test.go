package verifiers_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/verifiers"
)

// BenchmarkCells judges canonical solutions of HumanEval, b.N of them: in two
// cells, in two of which the tests' is kept, in one, and as plain processes of the
// host's interpreter, at 1 and at 2 jobs. times-plain is the ratio to the plain
// processes at as many jobs.
func BenchmarkCells(b *testing.B) {
	problems := humanEval(b)
	w, kept := newCodeWorld(b), newPooledWorld(b)
	python := hostPython(b)
	dir := b.TempDir()
	for i, p := range problems {
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprint(i, ".py")), []byte(p.Prompt+p.Solution+"\n"+p.tests()), 0o644); err != nil {
			b.Fatal(err)
		}
	}
	index := map[string]int{}
	for i, p := range problems {
		index[p.TaskID] = i
	}
	ways := []struct {
		name string
		do   func(p problem) error
	}{
		{"plain", func(p problem) error {
			return exec.Command(python, filepath.Join(dir, fmt.Sprint(index[p.TaskID], ".py"))).Run()
		}},
		{"cells", func(p problem) error { return passes(w.judge(b, p.task(), p.Prompt+p.Solution)) }},
		{"kept", func(p problem) error { return passes(kept.judge(b, p.task(), p.Prompt+p.Solution)) }},
		{"shared", func(p problem) error { return passes(w.judge(b, p.shared(), p.Prompt+p.Solution)) }},
	}
	for _, jobs := range []int{1, 2} {
		var plain float64 // seconds for each
		for _, way := range ways {
			b.Run(fmt.Sprintf("%s/jobs=%d", way.name, jobs), func(b *testing.B) {
				todo := make([]problem, b.N)
				for i := range todo {
					todo[i] = problems[i%len(problems)]
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

func (p problem) shared() codeTask {
	task := p.task()
	task.Isolation = "shared"
	return task
}

func passes(v verifiers.Verdict, err error) error {
	if err == nil && v.Status != verifiers.Passed {
		err = fmt.Errorf("%s %s", v.Status, v.Reason)
	}
	return err
}

// BenchmarkCellCall measures calls of the candidate over the pipes, a hundred
// times b.N of them.
func BenchmarkCellCall(b *testing.B) {
	w := newCodeWorld(b)
	calls := 100 * b.N
	begun := time.Now()
	err := passes(w.judge(b, codeTask{Tests: fmt.Sprintf("for i in range(%d):\n    assert inc(i) == i + 1\n", calls), Timeout: 600}, "def inc(x):\n    return x + 1\n"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(time.Since(begun).Microseconds())/float64(calls), "µs/call")
}
