// Package hostcheck examines, without a daemon, what a host can do for sandboxes.
package hostcheck

import (
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/limits"
	"github.com/securebench/sbench/runtime/proc"
)

// Severity says how serious a [Finding] is. The zero Severity is invalid.
type Severity string

// The severities.
const (
	OK    Severity = "ok"
	Warn  Severity = "warn"  // runs work, with restrictions
	Error Severity = "error" // runs do not work
)

// A Finding is one line of a report.
type Finding struct {
	Check    string   `json:"check"` // what was examined
	Severity Severity `json:"severity"`
	Detail   string   `json:"detail"`
	Cure     string   `json:"cure,omitempty"` // empty if nothing is wrong
}

// Fine returns a finding of no fault.
func Fine(check, detail string) Finding { return Finding{check, OK, detail, ""} }

// Warning returns a finding with the severity Warn.
func Warning(check, detail, cure string) Finding { return Finding{check, Warn, detail, cure} }

// Failure returns a finding with the severity Error.
func Failure(check, detail, cure string) Finding { return Finding{check, Error, detail, cure} }

// Cgroups reports what bounds the sandboxes of this user. Limits in allowDegraded may be missing.
func Cgroups(allowDegraded []string) []Finding {
	h, err := cgroup.Usable()
	if err != nil {
		return []Finding{Failure("cgroups", err.Error(), "mount the cgroup file system at /sys/fs/cgroup")}
	}
	findings := []Finding{Fine("cgroups", string(h.Mode()))}
	switch lack := h.Lack(); {
	case lack.Why != "":
		findings = []Finding{Warning("cgroups", string(h.Mode())+": "+lack.Why, lack.Cure)}
	case h.Mode() == cgroup.None:
		findings = []Finding{Warning("cgroups", "none mounted", "mount the cgroup file system at /sys/fs/cgroup")}
	}
	for _, l := range limits.New(h, allowDegraded).Limits() {
		f := Fine("limit "+l.Name, "can be enforced")
		if l.Missing {
			f = Warning(f.Check, "cannot be enforced", l.Cure)
		}
		if l.Missing && l.Instead != "" {
			f.Detail += "; " + l.Instead
		}
		if l.Missing && !l.Allowed {
			f.Severity, f.Cure = Error, l.Cure+"; or list "+l.Name+" in runtime.allow_degraded or --allow-degraded"
		}
		findings = append(findings, f)
	}
	return findings
}

// Shared reports what sandboxes can take from the whole host. lowCores says that the OCI
// runtime cannot set RLIMIT_CORE above 0.
func Shared(lowCores bool) []Finding { return []Finding{cores(lowCores), descriptors(), overcommit()} }

// cores reports what a crash in a sandbox starts on the host; see noCores in package oci.
func cores(low bool) Finding {
	const check = "core files"
	pattern := proc.Text("/proc/sys/kernel/core_pattern")
	switch {
	case strings.HasPrefix(pattern, "@"):
		return Warning(check, "the kernel sends the core of every crash in a sandbox to the host's socket (kernel.core_pattern is "+pattern+")", "sysctl kernel.core_pattern=core, or a pattern that is a pipe")
	case strings.HasPrefix(pattern, "|") && low:
		return Warning(check, "every crash in a sandbox starts the host's handler, outside of its limits (kernel.core_pattern is "+pattern+"): containerd's hard limit on core files is 0", "start containerd with a hard limit on core files of at least 1")
	case strings.HasPrefix(pattern, "|"):
		return Fine(check, "none of sandboxes: their crashes do not start the host's handler (kernel.core_pattern is "+pattern+")")
	}
	return Fine(check, "none of sandboxes")
}

// descriptors compares the host's bound on open files with what sandboxes may open.
func descriptors() Finding {
	const check = "open files of the host"
	text := proc.Text("/proc/sys/fs/file-max")
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return Warning(check, fmt.Sprintf("fs.file-max is %q", text), "")
	}
	l := runtime.DefaultLimits()
	one := l.Files * uint64(l.Pids)
	if wanted := one * uint64(goruntime.NumCPU()); limit < wanted {
		return Warning(check, fmt.Sprintf("at most %d (fs.file-max): %d sandboxes whose processes all open as many as they may leave none to others", limit, limit/one+1), fmt.Sprintf("sysctl fs.file-max=%d", 2*wanted))
	}
	return Fine(check, "at most "+text)
}

// overcommit warns about mode 2, in which the kernel bounds the memory that all processes of
// the host reserve. No control group bounds what a sandbox reserves
// (overcommit-accounting.rst).
func overcommit() Finding {
	const check = "memory that is only reserved"
	if proc.Text("/proc/sys/vm/overcommit_memory") == "2" {
		return Warning(check, "counted for the whole host (vm.overcommit_memory is 2): one sandbox can reserve what others need", "sysctl vm.overcommit_memory=0")
	}
	return Fine(check, "not counted")
}

// Room warns if dir lacks room for a handful of images and sandboxes.
func Room(dir string) Finding {
	const wantBytes, wantInodes = 2 << 30, 100_000
	var st unix.Statfs_t
	for at := dir; ; at = filepath.Dir(at) { // the directory may not exist yet
		err := unix.Statfs(at, &st)
		if err == nil {
			break
		}
		if at == "/" {
			return Failure("room in "+dir, err.Error(), "")
		}
	}
	free := int64(st.Bavail) * st.Bsize
	f := Fine("room in "+dir, fmt.Sprintf("%d MiB and %d inodes free", free>>20, st.Ffree))
	// Some file systems (btrfs) do not count inodes and report 0 free of 0.
	if free < wantBytes || st.Files > 0 && st.Ffree < wantInodes {
		f.Severity, f.Cure = Warn, "free some, or choose another directory with --root or --state"
	}
	return f
}
