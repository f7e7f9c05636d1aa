package shim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOpenFIFOIsBounded: the wait for the other end of a FIFO ends with the context, whichever of the
// two comes first.
func TestOpenFIFOIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "fifo")
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan error, 1)
		if i%2 == 0 {
			cancel()
		}
		go func() {
			f, err := openFIFO(ctx, path, []int{os.O_RDONLY, os.O_WRONLY}[i/2%2])
			if err == nil {
				err = f.Close()
			}
			done <- err
		}()
		cancel()
		select {
		case err := <-done:
			if !errors.Is(err, context.Canceled) {
				t.Fatalf("attempt %d: %v", i, err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("attempt %d hangs", i)
		}
	}
}
