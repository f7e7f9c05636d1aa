package verifiers_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

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
	return codeTask{Prompt: p.Prompt, Tests: p.tests(), Timeout: 8}
}

func (p problem) tests() string { return p.Test + "\ncheck(" + p.Entry + ")\n" }

// humanEval reads the problems from SBENCH_DATA, or from beside the repository.
// They are no part of it.
func humanEval(tb testing.TB) []problem {
	tb.Helper()
	dir := os.Getenv("SBENCH_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, "humaneval", "HumanEval.jsonl.gz"))
	if err != nil {
		if _, missing := os.Stat(dir); missing == nil && os.Getenv("CI") == "true" {
			tb.Fatalf("the data folder is there, and the HumanEval problems are not: %v", err)
		}
		tb.Skipf("THE HUMANEVAL PROBLEMS ARE MISSING, so nothing is shown on them; SBENCH_DATA names the folder with humaneval/HumanEval.jsonl.gz: %v", err)
	}
	defer func() { _ = f.Close() }()
	z, err := gzip.NewReader(f)
	if err != nil {
		tb.Fatal(err)
	}
	var problems []problem
	lines := bufio.NewScanner(z)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p problem
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			tb.Fatal(err)
		}
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

// TestCellHumanEval: every canonical solution passes.
func TestCellHumanEval(t *testing.T) {
	problems := humanEval(t)
	w := newCodeWorld(t)
	var mu sync.Mutex
	passed := 0
	begun := time.Now()
	each(problems, 2, func(p problem) {
		v, err := w.judge(t, p.task(), p.Prompt+p.Solution)
		mu.Lock()
		defer mu.Unlock()
		if err != nil || v.Status != verifiers.Passed {
			t.Errorf("%s: %v %s %s\n%s", p.TaskID, err, v.Status, v.Reason, v.Stderr)
			return
		}
		passed++
	})
	t.Logf("%d of %d canonical solutions pass, in %s at 2 jobs", passed, len(problems), time.Since(begun).Round(time.Millisecond))
}

// TestCellHumanEvalWrong: of wrong solutions none passes that fails in a plain
// interpreter.
func TestCellHumanEvalWrong(t *testing.T) {
	problems := humanEval(t)
	w := newHostWorld(t)
	variants := map[string]func(p problem) string{
		"prompt": func(p problem) string { return p.Prompt },
		"pass":   func(p problem) string { return p.Prompt + "    pass\n" },
		"mutant": func(p problem) string { return p.Prompt + mutate(p.Solution) },
	}
	for name, variant := range variants {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var tried, passed int
			each(problems, 2, func(p problem) {
				code := variant(p)
				if code == p.Prompt+p.Solution {
					return // nothing to mutate
				}
				v, err := w.judge(t, p.task(), code)
				mu.Lock()
				defer mu.Unlock()
				tried++
				switch {
				case err != nil:
					t.Errorf("%s: %v", p.TaskID, err)
				case v.Status == verifiers.Passed:
					passed++
					if !runLocally(t, code, p.tests()) {
						t.Errorf("%s passes, and fails locally", p.TaskID)
					}
				}
			})
			t.Logf("%s: %d of %d pass, and do so locally", name, passed, tried)
		})
	}
}

// mutate flips the first comparison or sign of a solution that can be flipped.
func mutate(solution string) string {
	for _, m := range []struct{ from, to string }{
		{` == `, ` != `}, {` <= `, ` > `}, {` >= `, ` < `}, {` < `, ` >= `}, {` > `, ` <= `}, {` != `, ` == `},
		{` + `, ` - `}, {` - `, ` + `}, {` * `, ` + `}, {` // `, ` * `}, {`\breturn `, `return not `},
	} {
		if loc := regexp.MustCompile(m.from).FindStringIndex(solution); loc != nil {
			return solution[:loc[0]] + m.to + solution[loc[1]:]
		}
	}
	return strings.Clone(solution)
}
