package runtime_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
)

func TestCapture(t *testing.T) {
	tests := []struct {
		name   string
		limit  int64
		writes []string
		want   string
		cut    int64
	}{
		{"empty", 8, nil, "", 0},
		{"within head", 8, []string{"abc"}, "abc", 0},
		{"exactly full", 8, []string{"abcdefgh"}, "abcdefgh", 0},
		{"one over", 8, []string{"abcdefghi"}, "abcd\n[sbench: 1 bytes cut]\nfghi", 1},
		{"byte by byte", 4, []string{"a", "b", "c", "d", "e", "f", "g"}, "ab\n[sbench: 3 bytes cut]\nfg", 3},
		{"ring wraps twice", 6, []string{"012", "34", "56", "789", "xy"}, "012\n[sbench: 6 bytes cut]\n9xy", 6},
		{"one huge write", 4, []string{string(bytes.Repeat([]byte("z"), 1000)) + "end"}, "zz\n[sbench: 999 bytes cut]\nnd", 999},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var tee bytes.Buffer
			c := runtime.NewCapture(tt.limit, &tee)
			all := ""
			for _, w := range tt.writes {
				if n, err := c.Write([]byte(w)); n != len(w) || err != nil {
					t.Fatalf("Write = %d, %v", n, err)
				}
				all += w
			}
			out := c.Output()
			if got := string(out.Bytes()); got != tt.want || out.Cut() != tt.cut {
				t.Errorf("kept %q, cut %d; want %q, %d", got, out.Cut(), tt.want, tt.cut)
			}
			if tee.String() != all {
				t.Errorf("passed on %d of %d bytes", tee.Len(), len(all))
			}
		})
	}
}

type brokenWriter struct{ calls int }

func (b *brokenWriter) Write([]byte) (int, error) { b.calls++; return 0, errors.New("broken") }

// TestCaptureOutlivesItsTee: a tee that fails must not stop the capture.
func TestCaptureOutlivesItsTee(t *testing.T) {
	tee := &brokenWriter{}
	c := runtime.NewCapture(100, tee)
	for range 3 {
		_, err := fmt.Fprint(c, "x")
		must.Do(t, err)
	}
	if got := c.Output().String(); got != "xxx" || tee.calls != 1 {
		t.Errorf("kept %q after %d calls of the tee", got, tee.calls)
	}
}
