package host

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/daemon"
	"github.com/securebench/sbench/runtime/hostcheck"
)

// Diagnose examines whether this host can run sandboxes with opts. It connects to a daemon,
// starting one if necessary, and runs a sandbox. What it cannot do is a finding.
func Diagnose(ctx context.Context, opts Options) []hostcheck.Finding {
	opts = withDefaults(opts)
	var findings []hostcheck.Finding
	h, err := Open(ctx, opts)
	if err != nil {
		findings = append(findings, hostcheck.Failure("daemon", err.Error(), "do what the error says, or choose another daemon: --address SOCKET, or none for one of sbench's own"))
	} else {
		findings = append(findings, daemonFinding(h), ociRuntimeFinding(h), isolationFinding(h), trialFinding(ctx, h), gvisorFinding(ctx, h), userNamespaceFinding(h), imageStoreFinding(ctx, h))
		if h.platform.LayersOnDisk {
			findings = append(findings, hostcheck.Warning("layers", "what sandboxes write over their root is on disk below "+opts.Root+", watched and not bounded by the kernel: file systems in memory have no user.* attributes here", "Linux 6.6 or later"))
		}
	}
	findings = slices.Concat(findings, hostcheck.Cgroups(opts.AllowDegraded), []hostcheck.Finding{hostcheck.Room(opts.Root), hostcheck.Room(opts.State)})
	if h != nil {
		if err := h.Close(ctx); err != nil {
			findings = append(findings, hostcheck.Failure("daemon stops", err.Error(), "look at containerd's log in the state directory"))
		}
	}
	return findings
}

// ociRuntimeFinding reports which program is the OCI runtime. Without seccomp, it would
// refuse every sandbox.
func ociRuntimeFinding(h *Host) hostcheck.Finding {
	const check = "oci runtime"
	if h.program.path == "" {
		return hostcheck.Warning(check, "not in PATH: the daemon's own is used, and records do not name it", "install the package runc, or name one with --oci-runtime")
	}
	text := h.program.path + ": " + strings.ReplaceAll(h.program.version, "\n", ", ")
	if !strings.Contains(strings.ToLower(text), "seccomp") { // runc names libseccomp, crun +SECCOMP
		return hostcheck.Warning(check, text+": it does not say that it is built with seccomp", "install a runc or crun that is")
	}
	if escapable(h.program.version) {
		return hostcheck.Warning(check, text+": runc before 1.2.8, and 1.3 before 1.3.3, has known ways out of a container (CVE-2024-21626, CVE-2025-31133, CVE-2025-52565, CVE-2025-52881), unless your distribution has closed them",
			"update runc, or look up what your distribution's package has closed")
	}
	return hostcheck.Fine(check, text)
}

// escapable reports whether a version, as runc prints it, has the known ways out of a container that were
// published in 2024 and 2025.
func escapable(version string) bool {
	var major, minor, patch int
	if n, _ := fmt.Sscanf(version, "runc version %d.%d.%d", &major, &minor, &patch); n < 3 {
		return false // another runtime
	}
	switch {
	case major != 1:
		return major < 1
	case minor == 2:
		return patch < 8
	case minor == 3:
		return patch < 3
	case minor == 4 && patch == 0:
		return strings.Contains(version, "1.4.0-rc.1") || strings.Contains(version, "1.4.0-rc.2")
	}
	return minor < 2
}

// isolationFinding says plainly what keeps sandboxes apart from the host.
func isolationFinding(h *Host) hostcheck.Finding {
	if h.Isolation() == runtime.GVisor {
		return hostcheck.Fine("isolation", "gvisor: every sandbox has a kernel of its own")
	}
	return hostcheck.Fine("isolation", "container: shared kernel: a flaw of the host's kernel can be a way out of every sandbox")
}

// gvisorFinding reports whether sandboxes can have a kernel of their own here.
func gvisorFinding(ctx context.Context, h *Host) hostcheck.Finding {
	const check = "gvisor"
	e, err := h.NewRun(ctx, runtime.GVisor)
	if err == nil {
		err = e.Close(ctx)
	}
	switch {
	case err == nil:
		return hostcheck.Fine(check, h.GVisor()+": tasks that ask for it, or all with --isolation gvisor, get a kernel of their own")
	case h.Isolation() == runtime.GVisor:
		return hostcheck.Failure(check, err.Error(), "the error says what is missing")
	}
	return hostcheck.Fine(check, "cannot be had: "+err.Error())
}

// trialFinding creates, runs and removes a sandbox, as every run does before its first task.
func trialFinding(ctx context.Context, h *Host) hostcheck.Finding {
	const check, cure = "trial sandbox", "do what the error says"
	e, err := h.NewRun(ctx)
	if err != nil {
		return hostcheck.Failure(check, err.Error(), cure)
	}
	if err := e.Close(ctx); err != nil {
		return hostcheck.Failure(check, "its removal: "+err.Error(), cure)
	}
	return hostcheck.Fine(check, "created, started, and removed without a trace")
}

func daemonFinding(h *Host) hostcheck.Finding {
	kind := "running before sbench"
	if h.Private() {
		kind = "private, started and stopped by sbench"
	}
	return hostcheck.Fine("daemon", fmt.Sprintf("containerd %s at %s (%s)", h.conn.Version, h.conn.Address, kind))
}

func imageStoreFinding(ctx context.Context, h *Host) hostcheck.Finding {
	list, err := h.conn.Client.ImageService().List(h.conn.Context(ctx))
	switch {
	case err != nil:
		return hostcheck.Failure("image store", daemon.Native(err).Error(), "see the daemon's log")
	case len(list) == 0:
		return hostcheck.Warning("image store", "no images in namespace "+h.opts.Namespace, "make image, sbench image import, or sbench image pull")
	}
	return hostcheck.Fine("image store", fmt.Sprintf("%d images in namespace %s", len(list), h.opts.Namespace))
}

// userNamespaceFinding reports how sandboxes get their ids.
func userNamespaceFinding(h *Host) hostcheck.Finding {
	const check = "sandbox ids"
	mode, why := h.UserNamespace()
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
