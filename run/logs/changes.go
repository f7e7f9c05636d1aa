package logs

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"unicode/utf8"

	udiff "github.com/aymanbagabas/go-udiff"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace/foreign"
)

const (
	maxDiffed  = 32 << 10  // bytes of a text that is compared
	maxDiff    = 256 << 10 // bytes of all differences
	maxEntries = 20_000    // entries of a layer that are compared
)

// Changes logs how a candidate changed small texts of an image, up to maxDiff bytes in total. The layer is the
// file name in the run's directory.
func (l *Attempt) Changes(ctx context.Context, name, digest string, image *os.Root) error {
	f, err := layer.Open(ctx, l.run.out, name, digest)
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	text, err := diffs(ctx, f, image)
	if err != nil || text == "" {
		return err
	}
	return l.Text(record.ChangesFile, text)
}

// diffs returns the differences between texts of an image and of a layer, in the unified format.
func diffs(ctx context.Context, changes io.Reader, image *os.Root) (string, error) {
	var all strings.Builder
	entries := 0
	for e, err := range layer.Entries(ctx, changes, candidate.LayerBudget(math.MaxInt64/2)) {
		if err != nil {
			return "", err
		}
		if entries++; entries > maxEntries || all.Len() > maxDiff {
			_, _ = fmt.Fprintln(&all, "[... the other changes are not compared ...]")
			break
		}
		if e.Kind != layer.File || e.Size > maxDiffed {
			continue
		}
		before, ok := imageText(image, e.Path)
		if !ok {
			continue // new, large, or no text
		}
		now, err := e.Peek(maxDiffed)
		if err != nil {
			return "", err
		}
		if isText(now) {
			all.WriteString(udiff.Unified("a/"+e.Path, "b/"+e.Path, before, string(now)))
		}
	}
	return all.String(), nil
}

// imageText returns the text of a small file of an image.
func imageText(image *os.Root, name string) (text string, ok bool) {
	data, err := foreign.Read(image, name, maxDiffed)
	return string(data), err == nil && isText(data)
}

func isText(data []byte) bool { return utf8.Valid(data) && !bytes.Contains(data, []byte{0}) }
