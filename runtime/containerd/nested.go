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
	"github.com/securebench/sbench/runtime/userns"
	"github.com/securebench/sbench/runtime/watchdog"
)

// makeUserNamespace gives a sandbox, where sbench is itself in a user namespace,
// one below that with the same ids. Its root has no power over sbench's, and
// processes are counted for each sandbox apart (user_namespaces(7), setrlimit(2)).
func (b *Box) makeUserNamespace() error {
	if !rootless.InUserNamespace() {
		return nil
	}
	var err error
	if b.ids, err = sameIDs(); err != nil {
		return err
	}
	b.userns, err = userns.New(filepath.Join(b.run.dir, "pause"), b.ids)
	return err
}

// sameIDs maps every id of this user namespace to itself. One mapping must not
// span two of the namespace above (user_namespaces(7)).
func sameIDs() ([]userns.Mapping, error) {
	text, err := os.ReadFile("/proc/self/uid_map")
	if err != nil {
		return nil, err
	}
	var ms []userns.Mapping
	for line := range strings.Lines(string(text)) {
		var m userns.Mapping
		if _, err := fmt.Sscan(line, &m.First, &m.Outside, &m.Size); err != nil {
			return nil, fmt.Errorf("/proc/self/uid_map: %q: %w", line, err)
		}
		m.Outside = m.First
		ms = append(ms, m)
	}
	return ms, nil
}

// userNamespace is what the specification says of the namespace, if there is one.
func (b *Box) userNamespace() []oci.Option {
	if b.userns == nil {
		return nil
	}
	ids := make([]specs.LinuxIDMapping, 0, len(b.ids))
	for _, m := range b.ids {
		ids = append(ids, specs.LinuxIDMapping{ContainerID: m.First, HostID: m.Outside, Size: m.Size})
	}
	return []oci.Option{oci.WithUserNamespace(b.userns.Path(), ids...)}
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
