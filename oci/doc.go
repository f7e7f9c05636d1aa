// Package oci builds locked-down OCI runtime specifications. It is pure: options go in, a
// specification comes out. It never consults a daemon, a file or the host.
//
// [New] starts from the strictest specification that sbench uses, and applies each [Option] in order.
// An option opens or sizes one point. If it cannot do exactly this, it returns an error, and never
// falls back to a default. New refuses a specification without a required limit.
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
// execve(2), has its own PID, IPC, UTS, mount and cgroup namespaces, and may make only the system
// calls of an allow-list (seccomp(2)). Other calls fail with EPERM, or with ENOSYS where programs can
// do without them. The caller's root file system and mounts decide where the sandbox can write, and
// how much.
//
// Sizes are in bytes. Paths are absolute and clean, without NUL or newline. The package has no state:
// all functions may be called concurrently.
//
// The settings follow the OCI runtime specification 1.0.2 (the newest version that runc 1.1 reads),
// and the kernel documentation and manual pages that the comments name.
package oci
