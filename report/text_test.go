package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/report"
)

// TestVisibleLines: all that builds print is shown, also a last line that no newline ends.
func TestVisibleLines(t *testing.T) {
	var shown strings.Builder
	v := &report.VisibleLines{To: &shown}
	_, err := fmt.Fprint(v, "one\r\n\ntw\x1bo\nthree")
	must.Do(t, err)
	must.Do(t, v.Close())
	must.Equal(t, "one\ntw\\x1bo\nthree\n", shown.String())
}
