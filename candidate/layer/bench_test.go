package layer_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/runtime"
)

// BenchmarkLayer captures and restores 500 MB in ten files, and 50,000 files of 1 kB. For comparison,
// tar with zstd's fastest level captures them.
func BenchmarkLayer(b *testing.B) {
	if os.Geteuid() != 0 {
		b.Skip("needs root")
	}
	for name, of := range map[string]struct{ files, bytes int }{"500 MB": {10, 50 << 20}, "50,000 files": {50_000, 1 << 10}} {
		b.Run(name, func(b *testing.B) {
			dir, image := b.TempDir(), b.TempDir()
			content := make([]byte, of.bytes)
			_, _ = rand.Read(content[:len(content)/2]) // half of it does not compress
			for i := range of.files {
				at := filepath.Join(dir, fmt.Sprint(i/1000))
				_ = os.Mkdir(at, 0o755)
				if err := os.WriteFile(filepath.Join(at, fmt.Sprint(i)), content, 0o644); err != nil {
					b.Fatal(err)
				}
			}
			var text bytes.Buffer
			below, err := os.OpenRoot(image)
			if err != nil {
				b.Fatal(err)
			}
			measure(b, "capture", func() error {
				text.Reset()
				_, err := layer.Write(b.Context(), &text, runtime.Changes{Dir: dir}, limits)
				return err
			})
			measure(b, "restore", func() error {
				to, err := os.OpenRoot(b.TempDir())
				if err == nil {
					err = layer.Apply(b.Context(), bytes.NewReader(text.Bytes()), to, below, limits, nil)
				}
				return err
			})
			measure(b, "tar", func() error {
				return exec.Command("sh", "-c", `tar -cf - -C "$0" . | zstd -1 -c > /dev/null`, dir).Run()
			})
			b.ReportMetric(float64(text.Len())/1e6, "MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// measure reports the shortest of three times in seconds, whatever -benchtime says.
func measure(b *testing.B, unit string, f func() error) {
	b.Helper()
	best := time.Duration(math.MaxInt64)
	for range 3 {
		begun := time.Now()
		if err := f(); err != nil {
			b.Fatal(err)
		}
		best = min(best, time.Since(begun))
	}
	b.ReportMetric(best.Seconds(), unit+"-s")
}
