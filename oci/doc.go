// Package oci builds locked-down OCI runtime specifications. It is pure: a [Config] goes in, a
// specification comes out. It never consults a daemon, a file or the host.
//
// A minimal specification:
//
//	spec, err := oci.New(oci.Config{
//		Rootfs: "/run/example/rootfs", Args: []string{"/bin/true"}, Network: "/run/example/netns", Files: 1024,
//		Limits: oci.Limits{Cgroup: "/example", Memory: 256 << 20, Pids: 64, CPUs: 1},
//	})
//
// Each further field of the Config opens or sizes one point. If New cannot do exactly what a field
// says, it returns an error, and never falls back to a default. It refuses a Config without a
// required limit.
//
// This sandbox has no capabilities, cannot gain privileges through execve(2), has its own PID, IPC,
// UTS, mount and cgroup namespaces, and may make only the system calls of an allow-list
// (seccomp(2)). Other calls fail with EPERM, or with ENOSYS where programs can do without them. The
// caller's root file system and mounts decide where the sandbox can write, and how much.
//
// The package has no state: all functions may be called concurrently.
//
// The settings follow the OCI runtime specification 1.0.2 (the newest version that runc 1.1 reads),
// and the kernel documentation and manual pages that the comments name.
package oci
