// Package oci builds locked-down OCI runtime specifications. It is pure: options go in, a
// specification comes out. It never consults a daemon, a file or the host.
//
// [New] starts from the strictest specification that sbench uses. Each [Option] opens or
// sizes one point of it, and options are applied in order. An option that cannot do exactly
// what was asked returns an error; it never falls back to a default. A specification without
// a required limit is refused.
//
// A minimal specification:
//
//	spec, err := oci.New("/run/example/rootfs",
//		oci.WithArgs("/bin/true"),
//		oci.WithNetworkNamespace("/run/example/netns"),
//		oci.WithNoFile(1024),
//		oci.WithCgroup("/example"),
//		oci.WithMemoryLimit(256<<20),
//		oci.WithPidsLimit(64),
//		oci.WithCPUs(1),
//	)
//
// Without further options the sandbox has no capabilities, cannot gain privileges through
// execve(2), has its own PID, IPC, UTS, mount and cgroup namespaces, and runs under an
// allow-list of system calls (seccomp(2)): calls that are not on it fail with EPERM, or with
// ENOSYS where programs can do without them. What it can write, and how much, follows from
// the caller's root file system and mounts.
//
// Sizes are in bytes. Paths are absolute and clean, without NUL or newline. Nothing in this
// package keeps state, so everything may be called concurrently, with a different
// specification in each goroutine.
//
// The sources of the individual settings are the OCI runtime specification 1.0.2 (the newest
// version that runc 1.1 reads) and the kernel documentation and manual pages named beside
// them.
package oci
