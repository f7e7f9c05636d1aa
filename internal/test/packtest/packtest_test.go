package packtest_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/packtest"
)

// TestOutsideOfARepository: without a go.mod above, the data is missing.
func TestOutsideOfARepository(t *testing.T) {
	t.Chdir("/")
	t.Setenv("SBENCH_DATA", "")
	if file, err := packtest.HumanEval(t); err == nil || !strings.Contains(err.Error(), "MISSING") {
		t.Errorf("%s, %v", file, err)
	}
}
