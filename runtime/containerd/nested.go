package containerd

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime/rootless"
	"github.com/securebench/sbench/runtime/watchdog"
)

// nestedNamespace gives a sandbox, where sbench is itself in a user namespace, one
// below that with the same ids. Its root has no power over sbench's, and processes
// are counted for each sandbox apart (user_namespaces(7), setrlimit(2)).
func (b *Box) nestedNamespace() []oci.Option {
	if !rootless.InUserNamespace() {
		return nil
	}
	return []oci.Option{oci.WithUserNamespace(sameIDs()...)}
}

// sameIDs maps every id of this user namespace to itself. One mapping must not
// span two of the namespace above (user_namespaces(7)).
func sameIDs() []specs.LinuxIDMapping {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil
	}
	var ms []specs.LinuxIDMapping
	for line := range strings.Lines(string(text)) {
		var first, outside, size uint32
		if n, err := fmt.Sscan(line, &first, &outside, &size); err == nil && n == 3 {
			ms = append(ms, specs.LinuxIDMapping{ContainerID: first, HostID: first, Size: size})
		}
	}
	return ms
}

// attach hands the first process of a sandbox to the watchdog, if there is one.
func (b *Box) attach(pid uint32) error {
	if g, ok := b.group.(*watchdog.Group); ok {
		return g.Attach(int(pid))
	}
	return nil
}

// held is what files in memory hold of the sandbox's memory: of its own file
// systems as a process sees them, and of volumes that would be in memory on any
// host. Larger volumes have a bound of their own.
func (b *Box) held(pid int) int64 {
	var sum int64
	for _, dir := range []string{"/tmp", "/run", "/dev/shm"} {
		sum += usedBytes(filepath.Join(fmt.Sprintf("/proc/%d/root", pid), dir))
	}
	if b.cfg.Limits.LayerBytes <= maxMemoryVolume && b.layer != nil {
		sum += usedBytes(b.layer.Path())
	}
	return sum
}

func usedBytes(dir string) int64 {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil || st.Type != unix.TMPFS_MAGIC {
		return 0
	}
	return int64(st.Blocks-st.Bfree) * st.Bsize
}
