package terminal_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/verifiers/terminal"
)

func TestMain(m *testing.M) {
	terminal.Inside()
	containerdtest.Enter()
	os.Exit(m.Run())
}
