package runtime_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/runtime"
)

// TestOver: a process's time is over after Wall and what does not count of the time, and never for a context that has ended.
func TestOver(t *testing.T) {
	for _, tt := range []struct {
		name   string
		waited func() time.Duration
		want   time.Duration
	}{
		{"all counts", nil, time.Minute},
		{"nothing was waited", func() time.Duration { return 0 }, time.Minute},
		{"half a minute does not count", func() time.Duration { return 30 * time.Second }, 90 * time.Second},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				<-runtime.Process{Wall: time.Minute, Waited: tt.waited}.Over(t.Context())
				if took := time.Since(begun); took != tt.want {
					t.Errorf("over after %v, want %v", took, tt.want)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithTimeout(t.Context(), time.Second)
		defer end()
		over := runtime.Process{Wall: time.Minute}.Over(ctx)
		time.Sleep(time.Hour)
		select {
		case <-over:
			t.Error("the time is over after the context")
		default:
		}
	})
}
