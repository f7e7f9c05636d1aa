package containerd_test

import (
	"testing"

	"github.com/securebench/sbench/runtime/containerd/containerdtest"
	"github.com/securebench/sbench/runtime/runtimetest"
)

func TestContract(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	runtimetest.Contract(t, run, image)
}
