package containerd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/containerd/volume"
)

// maxSocketBytes bounds what a sandbox may queue in sockets where that does not count as its
// memory (cgroup v1). It is enough for lo, the only interface.
const maxSocketBytes = 64 << 20

// group finds, counts and kills the processes of a sandbox, except the one with the pid
// spare. It is a control group or a group of the watchdog.
type group interface {
	Pids() ([]int, error)
	Signal(sig unix.Signal, spare int) error
	KillAll(ctx context.Context, spare int) error
	Stats() (cgroup.Stats, error)
	Remove() error
}

// watched reports whether a watchdog replaces the sandboxes' cgroups, which could not bound
// both memory and processes.
func (c *Client) watched() bool { return !c.cgroups.Bounds() }

// newGroup returns the group of a sandbox. A watchdog adds held, unless it is nil, to the
// memory of the processes.
func (c *Client) newGroup(path string, l runtime.Limits, held func() int64) group {
	if c.watched() {
		return c.watch.Group(l, held)
	}
	return c.cgroups.Group(path)
}

// Degraded lists the limits that this host's kernel cannot enforce for a sandbox and that
// may be missing: disk, and those in Options.AllowDegraded. The error names all other
// missing limits. Without control groups, a watchdog enforces the limit on memory and the
// kernel that on processes, per user namespace; see package watchdog.
func (c *Client) Degraded() ([]string, error) { return c.missing.degraded, c.missing.refused }

func (c *Client) findMissing() (degraded []string, refusal error) {
	var have []string
	if c.watched() {
		have = append(have, "swap") // the watchdog counts it as memory
	} else {
		have = c.cgroups.Controllers()
	}
	if volume.Images() {
		have = append(have, "disk")
	}
	mount := "mount its cgroup controller"
	if lack := c.cgroups.Lack(); lack.Cure != "" {
		mount = lack.Cure
	}
	cures := []struct{ limit, cure string }{
		{"memory", mount},
		{"swap", "boot with swapaccount=1, or turn swap off"},
		{"pids", mount},
		{"cpu", mount},
		{"disk", "install e2fsprogs and make /dev/loop-control available; until then large volumes live in memory"},
	}
	var refused, cured []string
	for _, l := range cures {
		switch {
		case slices.Contains(have, l.limit):
		case l.limit == "disk", slices.Contains(c.opts.AllowDegraded, l.limit): // a volume in memory is bounded, too
			degraded = append(degraded, l.limit)
		default:
			refused = append(refused, l.limit)
			if !slices.Contains(cured, l.cure) {
				cured = append(cured, l.cure)
			}
		}
	}
	if len(refused) > 0 {
		return degraded, fmt.Errorf("the kernel cannot enforce these limits for a sandbox here: %s. Remedy: %s. "+
			"To run without them, list them in runtime.allow_degraded or --allow-degraded", strings.Join(refused, ", "), strings.Join(cured, "; "))
	}
	return degraded, nil
}

// limitOptions turns limits into options, without those that Degraded allows to be missing.
func (c *Client) limitOptions(l runtime.Limits, group string) ([]oci.Option, error) {
	degraded, err := c.Degraded()
	if err != nil {
		return nil, err
	}
	opts := []oci.Option{
		oci.WithNoFile(min(l.Files, c.limits.files)),
		// Not below the daemon's: lowering it needs CAP_SYS_RESOURCE.
		oci.WithOOMScoreAdj(max(oomScoreAdj, c.limits.oomScoreAdj)),
	}
	if c.limits.lowCores {
		opts = append(opts, oci.WithLowCoreLimit())
	}
	if len(degraded) > 0 {
		opts = append(opts, oci.WithAnnotation("org.securebench.degraded", strings.Join(degraded, ",")))
	}
	if c.watched() {
		return append(opts, withoutCgroup(l)...), nil
	}
	opts = append(opts, oci.WithCgroup(c.cgroups.Group(group).Path()), oci.WithMemoryLimit(l.Memory), oci.WithPidsLimit(l.Pids))
	if slices.Contains(degraded, "cpu") {
		opts = append(opts, oci.WithoutCPULimit())
	} else {
		opts = append(opts, oci.WithCPUs(l.CPUs))
	}
	if slices.Contains(degraded, "swap") {
		opts = append(opts, oci.WithoutSwapLimit())
	}
	return opts, nil
}

// checkLimits verifies that the kernel has the limits of a sandbox before its first process
// starts, and sets the limit on sockets, which OCI runtimes do not set. From then on it is counted
// how often the memory limit is reached.
func (s *Sandbox) checkLimits() error {
	g, ok := s.group.(cgroup.Group)
	if !ok {
		return nil
	}
	c, want := s.run.c, s.cfg.Limits
	degraded, err := c.Degraded()
	if err != nil {
		return err
	}
	if slices.Contains(degraded, "cpu") {
		want.CPUs = 0
	}
	if g, err = g.CountOOMs(); err != nil {
		return err
	}
	s.group = g
	if err := g.Verify(want, !slices.Contains(degraded, "swap")); err != nil || !c.cgroups.CountsSocketsApart() {
		return err
	}
	return g.LimitSockets(min(want.Memory, maxSocketBytes))
}

// withoutCgroup returns the limits that the kernel enforces per process or user namespace.
// The bound on data is not the sandbox's memory limit, which the watchdog enforces: it keeps
// one process from taking the host's memory between two readings, and is generous, since
// programs reserve more memory than they use.
func withoutCgroup(l runtime.Limits) []oci.Option {
	const least = 1 << 30
	var host unix.Sysinfo_t
	data := max(4*uint64(l.Memory), least)
	if unix.Sysinfo(&host) == nil {
		data = max(data, uint64(host.Totalram)*uint64(host.Unit)/2)
	}
	return []oci.Option{oci.WithoutCgroup(), oci.WithNProc(uint64(l.Pids)), oci.WithDataSize(data)}
}
