package containerd

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/containerd/volume"
	"github.com/securebench/sbench/runtime/netns"
	"github.com/securebench/sbench/runtime/userns"
)

// Severity says how serious a [Finding] is. The zero Severity is invalid.
type Severity string

// The severities.
const (
	OK    Severity = "ok"
	Warn  Severity = "warn"  // runs work, with restrictions
	Error Severity = "error" // runs do not work
)

// A Finding is one line of what [Diagnose] reports.
type Finding struct {
	Check    string   `json:"check"` // what was examined
	Severity Severity `json:"severity"`
	Detail   string   `json:"detail"`
	Cure     string   `json:"cure,omitempty"` // empty if nothing is wrong
}

// Diagnose examines whether this host can run sandboxes with opts. It connects to a
// daemon, starting one if necessary, runs a sandbox, makes a network namespace and an
// overlay mount, and removes all of them. What it cannot do is a finding.
func Diagnose(ctx context.Context, opts Options) []Finding {
	opts = withDefaults(opts)
	var findings []Finding
	c, err := Open(ctx, opts)
	if err != nil {
		findings = append(findings, Finding{"daemon", Error, err.Error(), "install the packages containerd and runc, or name a running daemon with --address"})
	} else {
		findings = append(findings, c.describe(), c.ociRuntimeFinding(), c.life(ctx), c.userNamespaceFinding(), c.imageStore(ctx))
	}
	findings = append(findings, cgroups(opts)...)
	findings = append(findings, seccomp(), userNamespaces(), networkNamespace(), overlay(c), loopVolumes(c), subordinateIDs())
	findings = append(findings, cores(c), descriptors(), overcommit())
	findings = append(findings, room(opts.Root), room(opts.State))
	if c != nil {
		if err := c.Close(ctx); err != nil {
			findings = append(findings, Finding{"daemon stops", Error, err.Error(), "look at containerd's log in the state folder"})
		}
	}
	return findings
}

// ociRuntimeFinding reports which program is the OCI runtime. One without seccomp would
// refuse every sandbox.
func (c *Client) ociRuntimeFinding() Finding {
	const check = "oci runtime"
	if c.program.path == "" {
		return Finding{check, Warn, "not in PATH: the daemon's own is used, and records do not name it", "install the package runc, or name one with --oci-runtime"}
	}
	text := c.program.path + ": " + strings.ReplaceAll(c.program.version, "\n", ", ")
	if !strings.Contains(strings.ToLower(text), "seccomp") { // runc names libseccomp, crun +SECCOMP
		return Finding{check, Warn, text + ": it does not say that it is built with seccomp", "install a runc or crun that is"}
	}
	return Finding{check, OK, text, ""}
}

// life creates, runs and removes a sandbox, as every run does before its first task.
func (c *Client) life(ctx context.Context) Finding {
	const check, cure = "a sandbox's life", "the error says what refused; see also docs/hosts.md"
	r, err := c.NewRun(ctx)
	if err != nil {
		return Finding{check, Error, err.Error(), cure}
	}
	if err := r.Close(ctx); err != nil {
		return Finding{check, Error, "its end: " + err.Error(), cure}
	}
	return Finding{check, OK, "created, started, and removed without a trace", ""}
}

func (c *Client) describe() Finding {
	kind := "running before sbench"
	if c.Private() {
		kind = "private, started and stopped by sbench"
	}
	return Finding{"daemon", OK, fmt.Sprintf("containerd %s at %s (%s)", c.version, c.address, kind), ""}
}

func (c *Client) imageStore(ctx context.Context) Finding {
	list, err := c.Images(ctx)
	switch {
	case err != nil:
		return Finding{"image store", Error, err.Error(), "see the daemon's log"}
	case len(list) == 0:
		return Finding{"image store", Warn, "no images in namespace " + c.opts.Namespace, "make image, sbench image import, or sbench image pull"}
	}
	return Finding{"image store", OK, fmt.Sprintf("%d images in namespace %s", len(list), c.opts.Namespace), ""}
}

// cgroups reports which limits the kernel can enforce for a sandbox of this user.
func cgroups(opts Options) []Finding {
	h, err := hierarchies()
	if err != nil {
		return []Finding{{"cgroups", Error, err.Error(), "mount the cgroup file system at /sys/fs/cgroup"}}
	}
	findings := []Finding{{"cgroups", OK, string(h.Mode()), ""}}
	lack := h.Lack()
	switch {
	case lack.Why != "":
		findings = []Finding{{"cgroups", Warn, string(h.Mode()) + ": " + lack.Why, lack.Cure}}
	case h.Mode() == cgroup.None:
		findings = []Finding{{"cgroups", Warn, "none mounted", "mount the cgroup file system at /sys/fs/cgroup"}}
	}
	have := h.Controllers()
	watched := !slices.Contains(have, "memory") || !slices.Contains(have, "pids")
	for _, l := range []struct{ limit, instead, cure string }{
		{"memory", "a watchdog kills what uses more", "enable the memory controller (cgroup_enable=memory)"},
		{"swap", "", "boot with swapaccount=1, or turn swap off"},
		{"pids", "the kernel counts them for the sandbox's user namespace", "enable the pids controller"},
		{"cpu", "nothing limits it", "enable the cpu controller (CONFIG_CFS_BANDWIDTH)"},
	} {
		if lack.Cure != "" {
			l.cure = lack.Cure
		}
		switch {
		case slices.Contains(have, l.limit):
			findings = append(findings, Finding{"limit " + l.limit, OK, "can be enforced", ""})
		case watched && l.limit == "swap": // counted as memory
		default:
			findings = append(findings, missingLimit(opts, l.limit, l.instead, l.cure))
		}
	}
	return findings
}

func missingLimit(opts Options, limit, instead, cure string) Finding {
	f := Finding{"limit " + limit, Error, "cannot be enforced", cure + "; or list " + limit + " in runtime.allow_degraded or --allow-degraded"}
	if userns.Inside() && instead != "" {
		f.Detail += "; without control groups " + instead
	}
	if slices.Contains(opts.AllowDegraded, limit) {
		f.Severity = Warn
	}
	return f
}

func seccomp() Finding {
	actions, err := os.ReadFile("/proc/sys/kernel/seccomp/actions_avail")
	if err != nil || !strings.Contains(string(actions), "errno") {
		return Finding{"seccomp", Error, "the kernel has no seccomp filters", "use a kernel with CONFIG_SECCOMP_FILTER"}
	}
	return Finding{"seccomp", OK, "filters available", ""}
}

// cores reports what a crash in a sandbox starts on the host; see noCores in package oci.
func cores(c *Client) Finding {
	const check = "core files"
	pattern := readWord("/proc/sys/kernel/core_pattern")
	switch {
	case strings.HasPrefix(pattern, "@"):
		return Finding{check, Warn, "the kernel sends the core of every crash in a sandbox to the host's socket (kernel.core_pattern is " + pattern + ")", "sysctl kernel.core_pattern=core, or a pattern that is a pipe"}
	case strings.HasPrefix(pattern, "|") && c != nil && c.limits.lowCores:
		return Finding{check, Warn, "every crash in a sandbox starts the host's handler, outside of its limits (kernel.core_pattern is " + pattern + "): containerd's hard limit on core files is 0", "start containerd with a hard limit on core files of at least 1"}
	case strings.HasPrefix(pattern, "|"):
		return Finding{check, OK, "none of sandboxes: their crashes do not start the host's handler (kernel.core_pattern is " + pattern + ")", ""}
	}
	return Finding{check, OK, "none of sandboxes", ""}
}

// descriptors compares the host's bound on open files with what sandboxes may open.
func descriptors() Finding {
	const check = "open files of the host"
	text := readWord("/proc/sys/fs/file-max")
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return Finding{check, Warn, fmt.Sprintf("fs.file-max is %q", text), ""}
	}
	l := runtime.DefaultLimits()
	one := l.Files * uint64(l.Pids)
	if wanted := one * uint64(goruntime.NumCPU()); limit < wanted {
		return Finding{check, Warn, fmt.Sprintf("at most %d (fs.file-max): %d sandboxes whose processes all open as many as they may leave none to others", limit, limit/one+1), fmt.Sprintf("sysctl fs.file-max=%d", 2*wanted)}
	}
	return Finding{check, OK, "at most " + text, ""}
}

// overcommit warns of mode 2, in which the kernel bounds the memory that all processes of
// the host reserve together. No control group bounds what a sandbox reserves
// (overcommit-accounting.rst).
func overcommit() Finding {
	const check = "memory that is only reserved"
	if readWord("/proc/sys/vm/overcommit_memory") == "2" {
		return Finding{check, Warn, "counted for the whole host (vm.overcommit_memory is 2): one sandbox can reserve what others need", "sysctl vm.overcommit_memory=0"}
	}
	return Finding{check, OK, "not counted", ""}
}

func userNamespaces() Finding {
	limit := readWord("/proc/sys/user/max_user_namespaces")
	switch {
	case limit == "" || limit == "0":
		return Finding{"user namespaces", Warn, "not available", "sysctl user.max_user_namespaces=15000; only rootless use needs them"}
	case readWord("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		return Finding{"user namespaces", Warn, "for root only", "sysctl kernel.unprivileged_userns_clone=1; only rootless use needs it"}
	case readWord("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") == "1":
		return Finding{"user namespaces", Warn, "restricted by AppArmor", "give sbench an AppArmor profile with \"userns,\"; only rootless use needs it"}
	}
	return Finding{"user namespaces", OK, "up to " + limit, ""}
}

func readWord(name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}

func networkNamespace() Finding {
	ns, err := netns.New(netns.Options{})
	if err != nil {
		return Finding{"network namespace", Error, err.Error(), "run as root, or in a user namespace of your own"}
	}
	counts := ns.Counts()
	if err := ns.Close(); err != nil {
		return Finding{"network namespace", Error, err.Error(), ""}
	}
	if !counts {
		return Finding{"network namespace", Warn, "the kernel does not tell of TCP sockets: the memory of connections that nobody accepts is not counted", "modprobe tcp_diag, or a kernel with CONFIG_INET_DIAG"}
	}
	return Finding{"network namespace", OK, "can be made, with lo only", ""}
}

// overlay tries an overlay mount where the layers of sandboxes will be.
func overlay(c *Client) Finding {
	const check = "overlayfs"
	if c == nil {
		return Finding{check, Warn, "not tried: there is no daemon", "see above"}
	}
	if err := c.tryOverlay(c.stack); err != nil {
		return Finding{check, Error, err.Error(), "load the overlay module, and keep the state folder on a file system that overlay accepts"}
	}
	if c.stack.OnDisk {
		return Finding{check, Warn, "what sandboxes write over their root is on disk below " + c.opts.Root + ", watched and not bounded by the kernel: file systems in memory have no user.* attributes here", "Linux 6.6 or later"}
	}
	if c.stack.Fuse != "" {
		return Finding{check, Warn, "the kernel gives this user none: fuse-overlayfs is used, which is slower", "Linux 5.11 or later"}
	}
	return Finding{check, OK, "works below " + c.opts.State, ""}
}

func loopVolumes(c *Client) Finding {
	if c != nil && volume.Images() {
		return Finding{"limit disk", OK, "large volumes are ext4 images on loop devices", ""}
	}
	return Finding{"limit disk", Warn, "large volumes live in memory", "run as root, with e2fsprogs installed and /dev/loop-control there"}
}

func subordinateIDs() Finding {
	var missing []string
	for _, p := range []string{"newuidmap", "newgidmap"} {
		if _, err := exec.LookPath(p); err != nil {
			missing = append(missing, p)
		}
	}
	for _, f := range []string{"/etc/subuid", "/etc/subgid"} {
		if readWord(f) == "" {
			missing = append(missing, "entries in "+f)
		}
	}
	if len(missing) > 0 {
		return Finding{"rootless", Warn, "missing: " + strings.Join(missing, ", "), "install the package uidmap and give the user subordinate ids; root does not need them"}
	}
	return Finding{"rootless", OK, "newuidmap, newgidmap and subordinate ids are there", ""}
}

// room warns if there is not enough room in dir for a handful of images and sandboxes.
func room(dir string) Finding {
	const wantBytes, wantInodes = 2 << 30, 100_000
	var st unix.Statfs_t
	for at := dir; ; at = filepath.Dir(at) { // the folder may not exist yet
		err := unix.Statfs(at, &st)
		if err == nil {
			break
		}
		if at == "/" {
			return Finding{"room in " + dir, Error, err.Error(), ""}
		}
	}
	free := int64(st.Bavail) * st.Bsize
	f := Finding{"room in " + dir, OK, fmt.Sprintf("%d MiB and %d inodes free", free>>20, st.Ffree), ""}
	// Some file systems (btrfs) do not count inodes and report 0 free of 0.
	if free < wantBytes || st.Files > 0 && st.Ffree < wantInodes {
		f.Severity, f.Cure = Warn, "free some, or choose another folder with --root or --state"
	}
	return f
}
