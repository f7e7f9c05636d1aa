package packtest_test

import (
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
)

// TestOutsideOfARepository: without a go.mod above, the data is missing.
func TestOutsideOfARepository(t *testing.T) {
	t.Chdir("/")
	t.Setenv("SBENCH_DATA", "")
	_, err := packtest.HumanEval(t)
	must.Tells(t, err, "MISSING")
}
