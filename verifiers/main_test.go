package verifiers_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/verifiers"
)

func TestMain(m *testing.M) {
	verifiers.Inside()
	containerdtest.Enter()
	os.Exit(m.Run())
}
