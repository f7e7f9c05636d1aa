package containerd

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/hostcheck"
	"github.com/securebench/sbench/runtime/shim"
	"github.com/securebench/sbench/runtime/volume"
)

// Diagnose examines whether this host can run sandboxes with opts. It connects to a daemon,
// starting one if necessary, runs a sandbox, makes a network namespace and an overlay mount,
// and removes them all. What it cannot do is a finding.
func Diagnose(ctx context.Context, opts Options) []hostcheck.Finding {
	opts = withDefaults(opts)
	var findings []hostcheck.Finding
	c, err := Open(ctx, opts)
	if err != nil {
		findings = append(findings, hostcheck.Failure("daemon", err.Error(), "install the packages containerd and runc, or name a running daemon with --address"))
	} else {
		findings = append(findings, c.describe(), c.ociRuntimeFinding(), c.life(ctx), c.shimFinding(), c.userNamespaceFinding(), c.imageStore(ctx))
	}
	findings = slices.Concat(findings, hostcheck.Cgroups(opts.AllowDegraded), hostcheck.Kernel(),
		[]hostcheck.Finding{overlay(ctx, c), loopVolumes(c), hostcheck.SubordinateIDs()}, hostcheck.Shared(c != nil && c.conn.Inherited.LowCores),
		[]hostcheck.Finding{hostcheck.Room(opts.Root), hostcheck.Room(opts.State)})
	if c != nil {
		if err := c.Close(ctx); err != nil {
			findings = append(findings, hostcheck.Failure("daemon stops", err.Error(), "look at containerd's log in the state directory"))
		}
	}
	return findings
}

// ociRuntimeFinding reports which program is the OCI runtime. Without seccomp, it would
// refuse every sandbox.
func (c *Client) ociRuntimeFinding() hostcheck.Finding {
	const check = "oci runtime"
	if c.program.path == "" {
		return hostcheck.Warning(check, "not in PATH: the daemon's own is used, and records do not name it", "install the package runc, or name one with --oci-runtime")
	}
	text := c.program.path + ": " + strings.ReplaceAll(c.program.version, "\n", ", ")
	if !strings.Contains(strings.ToLower(text), "seccomp") { // runc names libseccomp, crun +SECCOMP
		return hostcheck.Warning(check, text+": it does not say that it is built with seccomp", "install a runc or crun that is")
	}
	return hostcheck.Fine(check, text)
}

// life creates, runs and removes a sandbox, as every run does before its first task.
func (c *Client) life(ctx context.Context) hostcheck.Finding {
	const check, cure = "trial sandbox", "the error says what refused; see also docs/design/hosts.md"
	r, err := c.NewRun(ctx)
	if err != nil {
		return hostcheck.Failure(check, err.Error(), cure)
	}
	if err := r.Close(ctx); err != nil {
		return hostcheck.Failure(check, "its removal: "+err.Error(), cure)
	}
	return hostcheck.Fine(check, "created, started, and removed without a trace")
}

// shimFinding reports which shim a run uses.
func (c *Client) shimFinding() hostcheck.Finding {
	const check = "shim"
	switch name := c.Shim(); {
	case name == "":
		return hostcheck.Failure(check, "not known: no sandbox could be started", "see above")
	case name == RuncHandler && c.opts.Handler == HandlerAuto:
		return hostcheck.Warning(check, name+", containerd's own: sandboxes take a third longer", "install "+shim.Program+" beside sbench, where the daemon, too, can execute it")
	default:
		return hostcheck.Fine(check, name)
	}
}

func (c *Client) describe() hostcheck.Finding {
	kind := "running before sbench"
	if c.Private() {
		kind = "private, started and stopped by sbench"
	}
	return hostcheck.Fine("daemon", fmt.Sprintf("containerd %s at %s (%s)", c.conn.Version, c.conn.Address, kind))
}

func (c *Client) imageStore(ctx context.Context) hostcheck.Finding {
	list, err := c.conn.Client.ImageService().List(c.conn.Context(ctx))
	switch {
	case err != nil:
		return hostcheck.Failure("image store", daemon.Native(err).Error(), "see the daemon's log")
	case len(list) == 0:
		return hostcheck.Warning("image store", "no images in namespace "+c.opts.Namespace, "make image, sbench image import, or sbench image pull")
	}
	return hostcheck.Fine("image store", fmt.Sprintf("%d images in namespace %s", len(list), c.opts.Namespace))
}

// overlay tries an overlay mount where the layers of sandboxes will be.
func overlay(ctx context.Context, c *Client) hostcheck.Finding {
	const check = "overlayfs"
	if c == nil {
		return hostcheck.Warning(check, "not tried: there is no daemon", "see above")
	}
	if err := c.tryOverlay(ctx, c.onDisk); err != nil {
		return hostcheck.Failure(check, err.Error(), "load the overlay module, and keep the state directory on a file system that overlay accepts")
	}
	if c.onDisk {
		return hostcheck.Warning(check, "what sandboxes write over their root is on disk below "+c.opts.Root+", watched and not bounded by the kernel: file systems in memory have no user.* attributes here", "Linux 6.6 or later")
	}
	return hostcheck.Fine(check, "works below "+c.opts.State)
}

func loopVolumes(c *Client) hostcheck.Finding {
	if c != nil && volume.Images() {
		return hostcheck.Fine("limit disk", "large volumes are ext4 images on loop devices")
	}
	return hostcheck.Warning("limit disk", "large volumes live in memory", "run as root, with e2fsprogs installed and /dev/loop-control there")
}

// userNamespaceFinding reports how sandboxes get their ids.
func (c *Client) userNamespaceFinding() hostcheck.Finding {
	const check = "sandbox ids"
	mode, why := c.UserNamespace()
	own := "every sandbox has a user namespace and a range of ids of its own"
	switch {
	case mode == "":
		return hostcheck.Failure(check, "not known: no sandbox could be started", "see above")
	case mode == nestedUserNamespace:
		return hostcheck.Fine(check, "every sandbox has a user namespace below this user's")
	case mode == ownUserNamespace && why == "":
		return hostcheck.Fine(check, own)
	case mode == ownUserNamespace:
		return hostcheck.Warning(check, own+", but "+why, "start containerd with CAP_SYS_RESOURCE")
	}
	return hostcheck.Warning(check, "root in a sandbox is the host's root, without capabilities: "+why,
		"run as root on Linux 5.19 or later, with --root and the daemon's images on ext4, xfs or btrfs, and --state in a directory that others may pass")
}
