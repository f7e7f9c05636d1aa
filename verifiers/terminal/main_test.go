package terminal_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/runtime/service"
)

func TestMain(m *testing.M) {
	service.Inside()
	containerdtest.Enter()
	os.Exit(m.Run())
}
