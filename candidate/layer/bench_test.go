package layer_test

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/runtime"
)

// BenchmarkLayer captures and restores 500 MB in ten files, and 50,000 files of 1 kB. The rival
// is tar with zstd's fastest level, which captures only (tar-s).
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
			b.Run("capture", func(b *testing.B) {
				for b.Loop() {
					text.Reset()
					if _, err := layer.Write(b.Context(), &text, runtime.Changes{Dir: dir}, limits); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(text.Len())/1e6, "MB")
			})
			b.Run("restore", func(b *testing.B) {
				below, err := os.OpenRoot(image)
				if err != nil {
					b.Fatal(err)
				}
				for b.Loop() {
					to, err := os.OpenRoot(b.TempDir())
					if err == nil {
						err = layer.Apply(b.Context(), bytes.NewReader(text.Bytes()), to, below, limits, nil)
					}
					if err != nil {
						b.Fatal(err)
					}
				}
			})
			b.Run("tar", func(b *testing.B) {
				for b.Loop() {
					if out, err := exec.Command("sh", "-c", `tar -cf - -C "$0" . | zstd -1 -c > /dev/null`, dir).CombinedOutput(); err != nil {
						b.Skipf("%v: %s", err, out)
					}
				}
			})
		})
	}
}
