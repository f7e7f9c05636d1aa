package daemon

import (
	"fmt"
	"path/filepath"
	"strings"
)

// unused lists the plugins that sbench does not need, by their names in containerd 1.x and
// 2.x; the daemon ignores unknown names. Disabling CRI also avoids CNI, a second listener
// and periodic work.
func unused() []string {
	return []string{
		"io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime", "io.containerd.podsandbox.controller.v1.podsandbox",
		"io.containerd.nri.v1.nri", "io.containerd.tracing.processor.v1.otlp", "io.containerd.internal.v1.tracing",
		"io.containerd.snapshotter.v1.aufs", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.devmapper",
		"io.containerd.snapshotter.v1.zfs", "io.containerd.snapshotter.v1.blockfile",
	}
}

// toml is the daemon's configuration. containerd 1.6 and 2.x both read version 2.
func (d *Daemon) toml() string {
	var quoted []string
	for _, name := range unused() {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	return fmt.Sprintf(`version = 2
root = %q
state = %q
disabled_plugins = [%s]
[grpc]
  address = %q
[plugins."io.containerd.internal.v1.opt"]
  path = %q
`, filepath.Join(d.cfg.Root, "root"), filepath.Join(d.cfg.State, "state"), strings.Join(quoted, ", "),
		d.Address(), filepath.Join(d.cfg.Root, "opt"))
}
