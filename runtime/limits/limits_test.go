package limits_test

import (
	"slices"
	"testing"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/limits"
)

// TestProcessesBeside: without control groups, the processes of a sandbox with the same user namespace take none
// from a new one.
func TestProcessesBeside(t *testing.T) {
	e := limits.New(cgroup.Hierarchies{}, []string{"memory", "pids", "cpu"})
	l, err := e.Spec(runtime.Limits{Memory: 1 << 30, CPUs: 1, Pids: 64}, "/group", 100)
	must.Do(t, err)
	spec, err := oci.New(oci.Config{Rootfs: "/root", Args: []string{"true"}, Network: "/proc/7/fd/9", Files: 64, Limits: l})
	must.Do(t, err)
	if want := (specs.POSIXRlimit{Type: "RLIMIT_NPROC", Hard: 164, Soft: 164}); !slices.Contains(spec.Process.Rlimits, want) {
		t.Errorf("limits %v", spec.Process.Rlimits)
	}
}
