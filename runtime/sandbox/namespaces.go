package sandbox

import (
	"cmp"
	"fmt"
	"os"

	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/runtime"
)

// checkNamespaces returns an error unless the process that an OCI runtime reports is in the
// namespaces that its specification names. Where the specification names none, the process must not share the
// namespace with this process. A runtime with virtual machines reports a process of the host: to seal its
// mounts would seal the mounts of the host.
func checkNamespaces(pid int, spec *specs.Spec) error {
	for _, ns := range spec.Linux.Namespaces {
		name := string(ns.Type)
		switch ns.Type { // namespaces(7), the names in /proc/PID/ns
		case specs.MountNamespace:
			name = "mnt"
		case specs.NetworkNamespace:
			name = "net"
		}
		is, err := os.Stat(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if err != nil {
			return fmt.Errorf("the sandbox's first process: %w", err)
		}
		other, err := os.Stat(cmp.Or(ns.Path, "/proc/self/ns/"+name))
		if err != nil {
			return err
		}
		if same := os.SameFile(is, other); same != (ns.Path != "") {
			return fmt.Errorf("%w: the OCI runtime says that the sandbox's first process is %d, which is in another %s namespace than asked for: the runtime isolates in a way that sbench does not know",
				runtime.ErrUnavailable, pid, ns.Type)
		}
	}
	return nil
}
