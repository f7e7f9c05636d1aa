package verifiers_test

import (
	"bufio"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/verifiers"
	"github.com/securebench/sbench/verifiers/contrast"
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

// humanEval reads the problems from SBENCH_DATA, or from beside the repository, which
// does not contain them.
func humanEval(tb testing.TB) []problem {
	tb.Helper()
	dir := os.Getenv("SBENCH_DATA")
	if dir == "" {
		dir = filepath.Join("..", "..", "shared", "data")
	}
	f, err := os.Open(filepath.Join(dir, "humaneval", "HumanEval.jsonl.gz"))
	if err != nil {
		if _, missing := os.Stat(dir); missing == nil && os.Getenv("CI") == "true" {
			tb.Fatalf("the data directory is there, and the HumanEval problems are not: %v", err)
		}
		tb.Skipf("THE HUMANEVAL PROBLEMS ARE MISSING, so nothing is shown on them; SBENCH_DATA names the directory with humaneval/HumanEval.jsonl.gz: %v", err)
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

// TestHumanEval: with contrast every canonical solution passes, and no bare prompt does.
func TestHumanEval(t *testing.T) {
	problems := short(humanEval(t))
	w := newCodeWorld(t)
	var mu sync.Mutex
	var passed, prompts, mutants int
	begun := time.Now()
	each(problems, 2, func(p problem) {
		right, err := w.judge(t, p.task(), p.Prompt+p.Solution)
		wrong, wrongErr := w.judge(t, p.task(), p.Prompt)
		mu.Lock()
		defer mu.Unlock()
		switch {
		case err != nil || right.Status != verifiers.Passed:
			t.Errorf("%s: %v %s %s %+v\n%s", p.TaskID, err, right.Status, right.Reason, right.Contrast, right.Stderr)
		case right.Contrast.State != contrast.Calibrated || right.Contrast.Mutants == 0 || right.Contrast.Followed > 0:
			t.Errorf("%s: contrast %+v", p.TaskID, right.Contrast)
		default:
			passed++
			mutants += right.Contrast.Mutants
		}
		if wrongErr != nil || wrong.Status != verifiers.Failed {
			t.Errorf("%s: the prompt: %v %s", p.TaskID, wrongErr, wrong.Status)
			prompts++
		}
	})
	t.Logf("%d of %d canonical solutions pass, with %d mutants, and %d prompts; in %s at 2 jobs, calibration included",
		passed, len(problems), mutants, prompts, time.Since(begun).Round(time.Millisecond))
}

// taken reports whether the i-th of many cases is tried: every sixteenth, and with SBENCH_SOAK all
// of them.
func taken(i int) bool { return os.Getenv("SBENCH_SOAK") != "" || i%16 == 0 }

// short keeps the cases that are taken.
func short[T any](cases []T) []T {
	var kept []T
	for i, c := range cases {
		if taken(i) {
			kept = append(kept, c)
		}
	}
	return kept
}
