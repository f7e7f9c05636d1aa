package sandbox_test

import (
	"context"
	goruntime "runtime"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/runtime"
)

// endless is an input without an end.
type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

// TestUnreadInput: a process that ends before it has read its input leaves no goroutine
// behind.
func TestUnreadInput(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	for _, persistent := range []bool{false, true} {
		sandbox, err := run.Create(t.Context(), runtime.Config{Name: "input", Image: image, Persistent: persistent, Limits: runtime.DefaultLimits()})
		if err != nil {
			t.Fatal(err)
		}
		exit, err := sandbox.Exec(t.Context(), runtime.Process{Args: []string{"true"}, Stdin: endless{}, Wall: wall})
		if err != nil || !exit.Success() {
			t.Errorf("persistent %v: %v, %v", persistent, exit, err)
		}
		report(t, sandbox.Close(context.Background()))
	}
	var stacks string
	for begun := time.Now(); time.Since(begun) < time.Minute; {
		text := make([]byte, 1<<20)
		if stacks = string(text[:goruntime.Stack(text, true)]); !strings.Contains(stacks, "endless") {
			return
		}
		time.Sleep(10 * time.Millisecond) // the goroutines are about to end
	}
	t.Errorf("somebody waits still:\n%s", stacks)
}
