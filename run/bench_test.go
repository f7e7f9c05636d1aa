package run_test

import (
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/securebench/sbench/run"
)

// BenchmarkRecords runs fifty times b.N tasks that need no sandbox, and reports how much
// of the heap is still in use at the end, which does not grow with their number.
func BenchmarkRecords(b *testing.B) {
	tasks := 50 * b.N
	rows := make([]string, tasks)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id": "task-%d", "family": "multiple_choice", "input": {"question": "?", "choices": ["one", "two"]}, "eval": {"answer": "B"}, "environment": {"image": "base"}}`, i)
	}
	cfg, _ := config(b, rows...)
	rows = nil
	cfg.StandIn, cfg.Producer, cfg.Jobs = run.Reference, nil, 8
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	cfg.Progress = func(e run.Event) {
		if e.Kind == run.RunDone {
			runtime.GC()
			runtime.ReadMemStats(&after)
		}
	}
	summary, err := runs(context.Background(), cfg)
	if err != nil || summary.Passed != tasks {
		b.Fatalf("%+v, %v", summary, err)
	}
	b.ReportMetric(float64(tasks), "records")
	b.ReportMetric(float64(int64(after.HeapAlloc)-int64(before.HeapAlloc))/(1<<20), "MB-kept")
	b.ReportMetric(float64(tasks)/b.Elapsed().Seconds(), "records/s")
}
