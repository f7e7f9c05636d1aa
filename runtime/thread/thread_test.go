package thread_test

import (
	"errors"
	"os"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/thread"
)

// TestRun: each call runs on a thread that is not the first one, sees no other call's
// changes, and returns its error.
func TestRun(t *testing.T) {
	here, err := os.Getwd()
	must.Do(t, err)
	want := errors.New("given back")
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			err := thread.Run(func() error {
				if unix.Gettid() == unix.Getpid() {
					t.Error("on the first thread")
				}
				var at [unix.PathMax]byte
				n, err := unix.Getcwd(at[:])
				if got := string(at[:max(n-1, 0)]); err != nil || got != here {
					t.Errorf("begins in %q: %v", got, err)
				}
				must.Report(t, errors.Join(unix.Unshare(unix.CLONE_FS), unix.Chdir("/")))
				return want
			})
			must.Is(t, err, want)
		})
	}
	wg.Wait()
}
