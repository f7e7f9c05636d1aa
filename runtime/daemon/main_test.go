package daemon_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/runtime/containerd/containerdtest"
)

func TestMain(m *testing.M) {
	containerdtest.Enter()
	os.Exit(m.Run())
}
