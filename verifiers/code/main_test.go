package code_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	os.Exit(m.Run())
}
