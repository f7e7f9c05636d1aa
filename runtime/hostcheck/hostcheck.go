// Package hostcheck examines, without a daemon, what a host can do for sandboxes.
package hostcheck

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/limits"
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
