package containerd

import (
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
)

// socketBytes bounds what a sandbox may queue in sockets where that is not part
// of its memory. There is only lo to send over.
const socketBytes = 64 << 20

// Degraded lists the limits that this host cannot enforce and that
// Options.AllowDegraded lets be missing. Any other missing limit is the error.
func (c *Client) Degraded() ([]string, error) {
	have := c.cgroups.Controllers()
	if c.diskVolumes() {
		have = append(have, "disk")
	}
	cures := []struct{ limit, cure string }{
		{"memory", "mount the memory cgroup controller, or delegate it to this user"},
		{"swap", "boot with swapaccount=1, or turn swap off"},
		{"pids", "mount the pids cgroup controller, or delegate it to this user"},
		{"cpu", "mount the cpu cgroup controller, or delegate it to this user"},
		{"disk", "install e2fsprogs and make /dev/loop-control available; until then large volumes live in memory"},
	}
	var degraded, refused []string
	for _, l := range cures {
		switch {
		case slices.Contains(have, l.limit):
		case l.limit == "disk", slices.Contains(c.opts.AllowDegraded, l.limit): // memory bounds a volume as well
			degraded = append(degraded, l.limit)
		default:
			refused = append(refused, fmt.Sprintf("%s (%s; or name it in runtime.allow_degraded)", l.limit, l.cure))
		}
	}
	if len(refused) > 0 {
		return degraded, fmt.Errorf("this host cannot enforce limits: %s", strings.Join(refused, ", "))
	}
	return degraded, nil
}

// limitOptions turns limits into options, leaving out what Degraded allows to
// be missing.
func (c *Client) limitOptions(l runtime.Limits, group string) ([]oci.Option, error) {
	degraded, err := c.Degraded()
	if err != nil {
		return nil, err
	}
	opts := []oci.Option{
		oci.WithNoFile(min(l.Files, c.limits.files)),
		// Only up: lowering it would need CAP_SYS_RESOURCE.
		oci.WithOOMScoreAdj(max(oomScoreAdj, c.limits.oomScoreAdj)),
	}
	if len(degraded) > 0 {
		opts = append(opts, oci.WithAnnotation("org.securebench.degraded", strings.Join(degraded, ",")))
	}
	for _, limit := range []string{"memory", "pids", "cpu"} {
		if slices.Contains(degraded, limit) {
			return nil, fmt.Errorf("running without the %s limit is not supported yet", limit)
		}
	}
	opts = append(opts, oci.WithCgroup(group), oci.WithMemoryLimit(l.Memory), oci.WithPidsLimit(l.Pids), oci.WithCPUs(l.CPUs))
	if c.cgroups.CountsSocketsApart() {
		opts = append(opts, oci.WithSocketMemoryLimit(min(l.Memory, socketBytes)))
	}
	if slices.Contains(degraded, "swap") {
		opts = append(opts, oci.WithoutSwapLimit())
	}
	return opts, nil
}
