package compiler_test

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/internal/test/must"
)

// writeRows writes a pack of n rows of about 700 bytes each, and returns its directory.
func writeRows(tb testing.TB, n int) string {
	tb.Helper()
	dir := tb.TempDir()
	manifest := "id: big\nversion: 1\ndefaults: {environment: {image: \"img@sha256:0000000000000000000000000000000000000000000000000000000000000000\", workdir: /app}}\n"
	must.Do(tb, os.WriteFile(filepath.Join(dir, "manifest.yaml"), []byte(manifest), 0o644))
	f, err := os.Create(filepath.Join(dir, "tasks.jsonl"))
	must.Do(tb, err)
	w := bufio.NewWriterSize(f, 1<<20)
	for i := range n {
		_, err := w.Write(appendRow(nil, i))
		must.Do(tb, err)
	}
	must.Do(tb, w.Flush())
	must.Do(tb, f.Close())
	return dir
}

func appendRow(b []byte, i int) []byte {
	prose := strings.Repeat(fmt.Sprintf("Sentence %d of a task that has some text, a quote \\\" and a line break.\\n ", i), 6)
	return fmt.Appendf(b, `{"id":"big/task-%d","metadata":{"index":%d},"family":"terminal_task","input":{"instructions":"%s"},"eval":{"checker":{"command":"test -f out"},"expected_state":{"files":["%d"]}}}`+"\n", i, i, prose, i)
}

// TestPeakMemory shows that with more rows only the table of ids grows: validating 100,000 rows, or a million with
// SBENCH_SOAK, takes at most 20 MB and 64 bytes a row more than validating ten thousand rows. Each validation runs in a
// process of its own, and the kernel reports the largest resident size of the process.
func TestPeakMemory(t *testing.T) {
	if dir := os.Getenv("SBENCH_VALIDATE"); dir != "" {
		summary, err := validate.Files(t.Context(), []string{dir}, nil, func(p compiler.Problem) { t.Fatal(p) })
		if err != nil {
			t.Fatal(summary, err)
		}
		fmt.Printf("peak %d\n", peak(t))
		return
	}
	rows := 100_000
	if os.Getenv("SBENCH_SOAK") != "" {
		rows = 1_000_000
	}
	small, big := peakOf(t, 10_000), peakOf(t, rows)
	t.Logf("peak memory: %.1f MB at 10,000 rows, %.1f MB at %d rows", float64(small)/1e6, float64(big)/1e6, rows)
	if big-small > 20e6+64*rows {
		t.Errorf("memory grew by %.1f MB", float64(big-small)/1e6)
	}
}

func peakOf(t *testing.T, rows int) int {
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPeakMemory$")
	// The garbage collector runs often, so that the peak has little garbage in it, however busy the host is.
	cmd.Env = append(os.Environ(), "SBENCH_VALIDATE="+writeRows(t, rows), "GOGC=10")
	out := must.Run(t, cmd)
	_, after, _ := bytes.Cut(out, []byte("peak "))
	number, _, _ := bytes.Cut(after, []byte("\n"))
	n, err := strconv.Atoi(string(number))
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return n
}

// peak returns the process's largest resident size in bytes.
func peak(t *testing.T) int {
	status := must.Read(t, "/proc/self/status")
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")))
			must.Do(t, err)
			return kb * 1024
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
