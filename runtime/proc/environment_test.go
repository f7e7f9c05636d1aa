package proc_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/runtime/proc"
)

// TestEnvironment: variables that are not named stay here.
func TestEnvironment(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	t.Setenv("https_proxy", "http://proxy")
	if got := proc.Environment("https_proxy"); !slices.Contains(got, "https_proxy=http://proxy") || !slices.Contains(got, "PATH="+os.Getenv("PATH")) {
		t.Errorf("%q", got)
	}
	for _, got := range proc.Environment() {
		if strings.HasPrefix(got, "AWS_") || strings.HasPrefix(got, "https_proxy") {
			t.Errorf("%q", got)
		}
	}
}
