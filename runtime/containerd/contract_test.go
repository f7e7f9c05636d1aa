package containerd_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/runtime/containerd"
	"github.com/securebench/sbench/runtime/containerd/containerdtest"
	"github.com/securebench/sbench/runtime/runtimetest"
)

func TestContract(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	runtimetest.Contract(t, run, image)
}

// TestContractOnFuse is the contract on fuse-overlayfs, which a user has where the
// kernel does not stack directories for users.
func TestContractOnFuse(t *testing.T) {
	if _, err := os.Stat("/dev/fuse"); err != nil {
		t.Skipf("this host has no FUSE: %v", err)
	}
	opts := containerdtest.Options()
	opts.Snapshotter = containerd.FuseSnapshotter
	run, image := containerdtest.NewRun(t, containerdtest.OpenWith(t, opts))
	runtimetest.Contract(t, run, image)
}
