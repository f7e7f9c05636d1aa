package service

import (
	"testing"
	"time"
)

// TestReadyHangs: a service does not start if its ready command does not end, nor if the command fails until then.
func TestReadyHangs(t *testing.T) {
	for _, ready := range [][]string{{"sleep", "60"}, {"sh", "-c", "sleep 60 | cat"}, {"false"}, {"/missing"}} {
		begun := time.Now()
		if err := (Service{Args: []string{"true"}, Ready: ready, Wait: time.Second}).start(nil); err == nil || time.Since(begun) > 30*time.Second {
			t.Errorf("%q: %v after %v", ready, err, time.Since(begun))
		}
	}
}
