package main

import (
	"fmt"
	goruntime "runtime"
	"runtime/debug"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/cgroup"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/userns"
)

// sbenchVersion returns what records say about this program.
func sbenchVersion() record.Version {
	v := record.Version{Version: version}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				v.Commit = s.Value
			}
		}
	}
	if _, commit, ok := strings.Cut(version, "-g"); ok && v.Commit == "" { // as git describe writes it
		v.Commit = strings.TrimSuffix(commit, "-dirty")
	}
	return v
}

// hostFacts returns what records say about this host. Unknown facts are zero.
func hostFacts(c *host.Host) record.Host {
	h := record.Host{OS: goruntime.GOOS, Arch: goruntime.GOARCH, CPUs: goruntime.NumCPU(), Containerd: c.Version()}
	var name unix.Utsname
	if unix.Uname(&name) == nil {
		h.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		h.Memory = int64(info.Totalram) * int64(info.Unit)
	}
	_, h.Runtime = c.OCIRuntime()
	h.Shim = c.Shim()
	if hierarchies, err := cgroup.Mounted(); err == nil {
		h.Cgroups = fmt.Sprint(hierarchies.Mode())
	}
	h.UserNamespace, h.UserNamespaceReason = c.UserNamespace()
	h.Rootless = userns.Inside()
	return h
}
