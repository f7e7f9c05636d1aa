package sandbox_test

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

// TestSoakLives takes many sandboxes through their lives, 32 at a time. There must be no
// failure, no stall and no growth in open files.
func TestSoakLives(t *testing.T) {
	lives := int64(64)
	if os.Getenv("SBENCH_SOAK") != "" {
		lives = 3000
	}
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	life := sbenchLife(run, runtime.Config{Name: "soak", Image: image, Limits: runtime.DefaultLimits(), Workdir: "/tmp"})
	must.Do(t, life(0))
	files := must.OpenFiles(t)
	var next, longest atomic.Int64
	var wg sync.WaitGroup
	for range 32 {
		wg.Go(func() {
			for next.Add(1) <= lives && !t.Failed() {
				begun := time.Now()
				must.Report(t, life(0))
				for took := int64(time.Since(begun)); ; {
					old := longest.Load()
					if took <= old || longest.CompareAndSwap(old, took) {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	if stall := time.Duration(longest.Load()); stall > time.Minute {
		t.Errorf("one life took %s", stall)
	}
	if now := must.OpenFiles(t); now > files+8 {
		t.Errorf("%d open files, %d before", now, files)
	}
	sandbox, err := run.Create(context.Background(), runtime.Config{Name: "after", Image: image, Limits: runtime.DefaultLimits()})
	must.Do(t, err)
	must.Report(t, sandbox.Close(context.Background()))
}
