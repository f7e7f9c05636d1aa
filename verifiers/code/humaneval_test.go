package code_test

import (
	"bufio"
	"compress/gzip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/internal/test/verdicttest"
	"github.com/securebench/sbench/verifiers"
)

// problem is one row of HumanEval.
type problem struct {
	TaskID   string `json:"task_id"`
	Prompt   string `json:"prompt"`
	Entry    string `json:"entry_point"`
	Solution string `json:"canonical_solution"`
	Test     string `json:"test"`
}

func (p problem) task() codeTask {
	return codeTask{Prompt: p.Prompt, Tests: p.tests(), Reference: p.Prompt + p.Solution, Timeout: 60}
}

func (p problem) tests() string { return p.Test + "\ncheck(" + p.Entry + ")\n" }

// humanEval reads the published problems.
func humanEval(tb testing.TB) []problem {
	tb.Helper()
	file, err := packtest.HumanEval(tb)
	if err != nil {
		tb.Skip(err)
	}
	f, err := os.Open(file)
	must.Do(tb, err)
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	must.Do(tb, err)
	var problems []problem
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		p := must.Decode[problem](tb, lines.Bytes())
		problems = append(problems, p)
	}
	if len(problems) != 164 || lines.Err() != nil {
		tb.Fatalf("%d problems, not 164: %v", len(problems), lines.Err())
	}
	return problems
}

// each runs f for all problems, jobs at a time.
func each(problems []problem, jobs int, f func(p problem)) {
	queue := make(chan problem)
	var wg sync.WaitGroup
	for range jobs {
		wg.Go(func() {
			for p := range queue {
				f(p)
			}
		})
	}
	for _, p := range problems {
		queue <- p
	}
	close(queue)
	wg.Wait()
}

// TestHumanEval: every canonical solution passes sealed. No bare prompt does, and one program
// that finds the expected values of any tests beside it does at most once.
func TestHumanEval(t *testing.T) {
	problems := verdicttest.Short(humanEval(t))
	universal := must.Read(t, "testdata/universal.py")
	w := newCodeWorld(t)
	var mu sync.Mutex
	passed := map[string]int{}
	for _, way := range []struct {
		name, kind string
		code       func(p problem) string
	}{
		{"solution", verdicttest.Honest, func(p problem) string { return p.Prompt + p.Solution }},
		{"prompt", verdicttest.Forged, func(p problem) string { return p.Prompt }},
		{"universal", verdicttest.Forged, func(p problem) string { return strings.ReplaceAll(string(universal), "ENTRY", p.Entry) }},
	} {
		begun := time.Now()
		each(problems, 2, func(p problem) {
			v, err := w.judge(t, p.task(), way.code(p))
			verdicttest.Tally(t, "code_completion", way.kind, v)
			mu.Lock()
			defer mu.Unlock()
			if err != nil || v.Status == verifiers.Passed && v.Assurance != verifiers.Sealed || (v.Status == verifiers.Failed) != (v.Assurance == "") {
				t.Errorf("%s: %s: %v %s %s %s", p.TaskID, way.name, err, v.Status, v.Assurance, v.Reason)
			}
			if v.Status == verifiers.Passed {
				passed[way.name]++
			}
		})
		t.Logf("%s: %d of %d pass, in %s at 2 jobs", way.name, passed[way.name], len(problems), time.Since(begun).Round(time.Millisecond))
	}
	if passed["solution"] != len(problems) || passed["prompt"] != 0 || passed["universal"] > 1 {
		t.Error(passed)
	}
}
