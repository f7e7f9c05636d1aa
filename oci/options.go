package oci

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// WithArgs sets the argument vector of the sandbox's first process. The OCI runtime looks up the
// first argument in the PATH of the process's environment unless the argument contains a slash.
// WithArgs fails if the first argument is missing or empty, or if any argument contains a NUL byte.
// There is no default: [New] requires it.
func WithArgs(args ...string) Option {
	return func(s *draft) error {
		if len(args) == 0 || args[0] == "" {
			return errors.New("arguments: the command is empty")
		}
		for i, a := range args {
			if strings.ContainsRune(a, 0) {
				return fmt.Errorf("arguments: number %d contains a NUL byte", i)
			}
		}
		s.Process.Args = slices.Clone(args)
		return nil
	}
}

// WithEnv adds NAME=value entries to the environment, which is otherwise empty. The last entry with
// a name counts. It fails for an entry without "=", with an empty name or with a NUL byte. Errors
// quote the name but never the value, which may be a secret.
func WithEnv(env ...string) Option {
	return func(s *draft) error {
		for _, e := range env {
			name, _, ok := strings.Cut(e, "=")
			if !ok || name == "" || strings.ContainsRune(e, 0) {
				return fmt.Errorf("environment: entry for %q is not NAME=value", name) // the value may be a secret
			}
			s.Process.Env = slices.DeleteFunc(s.Process.Env, func(have string) bool { return strings.HasPrefix(have, name+"=") })
			s.Process.Env = append(s.Process.Env, e)
		}
		return nil
	}
}

// WithCwd sets the working directory, a clean absolute path inside the sandbox. The default
// is "/".
func WithCwd(dir string) Option {
	return func(s *draft) error {
		if !cleanAbs(dir) {
			return fmt.Errorf("working directory %q is not a clean absolute path", dir)
		}
		s.Process.Cwd = dir
		return nil
	}
}

// WithUser sets the numeric user, group and supplementary group ids of the first process, as
// seen inside the sandbox. The default is 0 for user and group and no supplementary groups:
// root without any capability.
func WithUser(uid, gid uint32, groups ...uint32) Option {
	return always(func(s *draft) { s.Process.User = specs.User{UID: uid, GID: gid, AdditionalGids: slices.Clone(groups)} })
}

// WithUserNamespace joins the existing user namespace at p, an absolute host path. Files
// whose owner has no mapping there appear to belong to the overflow user
// (user_namespaces(7)). Without this option the sandbox stays in the caller's user
// namespace. It fails if p is not clean and absolute, if a namespace was given before, or if
// a mapping has size 0.
//
// mappings apply to user and group ids alike and must be the namespace's mappings. Pass them only for
// runc before 1.1.11, which refuses to join without them. The OCI specification reserves mappings for
// a namespace that the runtime creates (config-linux.md, "User namespace mappings"), so later versions
// of runc, and crun, must get none.
func WithUserNamespace(p string, mappings ...specs.LinuxIDMapping) Option {
	return func(s *draft) error {
		if slices.ContainsFunc(mappings, func(m specs.LinuxIDMapping) bool { return m.Size == 0 }) {
			return errors.New("user namespace: a mapping has size 0")
		}
		s.Linux.UIDMappings, s.Linux.GIDMappings = slices.Clone(mappings), slices.Clone(mappings)
		return joinNamespace(s, specs.UserNamespace, p)
	}
}

// WithOwnKernel is for an OCI runtime that brings a kernel of its own, such as gVisor's runsc. Such a
// runtime joins no user namespace: it makes one with the given mappings, which apply to user and group ids
// alike; none leave the sandbox in the caller's. It has no use for a cgroup namespace either. It fails if
// a user namespace was given before, or if a mapping has size 0.
func WithOwnKernel(mappings ...specs.LinuxIDMapping) Option {
	return func(s *draft) error {
		s.ownKernel = true
		s.Linux.Namespaces = slices.DeleteFunc(s.Linux.Namespaces, func(ns specs.LinuxNamespace) bool { return ns.Type == specs.CgroupNamespace })
		if len(mappings) == 0 {
			return nil
		}
		if hasNamespace(s, specs.UserNamespace) || slices.ContainsFunc(mappings, func(m specs.LinuxIDMapping) bool { return m.Size == 0 }) {
			return errors.New("user namespace: given twice, or a mapping has size 0")
		}
		s.Linux.UIDMappings, s.Linux.GIDMappings = slices.Clone(mappings), slices.Clone(mappings)
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace})
		return nil
	}
}

func joinNamespace(s *draft, kind specs.LinuxNamespaceType, p string) error {
	if !cleanAbs(p) {
		return fmt.Errorf("%s namespace %q is not a clean absolute path", kind, p)
	}
	if hasNamespace(s, kind) {
		return fmt.Errorf("%s namespace: given twice", kind)
	}
	s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: kind, Path: p})
	return nil
}

// WithDevices mounts the host directory source as /dev, instead of the tmpfs that the OCI
// runtime fills itself. The directory must already contain the device nodes, the symbolic
// links and the directories pts and shm. It is for hosts on which the runtime cannot
// create device nodes. It fails if source is not clean and absolute.
func WithDevices(source string) Option {
	return func(s *draft) error {
		if !cleanAbs(source) {
			return fmt.Errorf("devices in %q, which is not a clean absolute path", source)
		}
		dev := slices.IndexFunc(s.Mounts, func(m specs.Mount) bool { return m.Destination == "/dev" })
		s.Mounts[dev] = specs.Mount{Destination: "/dev", Type: "bind", Source: source, Options: []string{"bind", "private", "nosuid", "noexec", "rw"}}
		return nil
	}
}

// WithNetworkNamespace joins the existing network namespace at p, an absolute host path.
// There is no default, since [New] requires it, and no option to share the host's network.
// It fails if p is not clean and absolute or if a namespace was given before.
func WithNetworkNamespace(p string) Option {
	return func(s *draft) error { return joinNamespace(s, specs.NetworkNamespace, p) }
}

// WithIsolatedProcesses keeps the processes of a sandbox from reading or writing each other's
// memory. It is for a trusted process that starts an untrusted process as the same user. /proc,
// with /proc/PID/mem (proc(5)), becomes read-only, and ptrace(2) fails with EPERM. The filter
// always denies process_vm_readv(2) and process_vm_writev(2).
func WithIsolatedProcesses() Option {
	return always(func(s *draft) {
		s.Linux.ReadonlyPaths = append(s.Linux.ReadonlyPaths, "/proc")
		s.sealed = true
	})
}

// WithReadOnlyPaths makes paths of the root file system read-only, with everything below them
// (config-linux.md, "Readonly Paths"). The OCI runtime ignores paths that do not exist.
// WithReadOnlyPaths fails if a path is not clean and absolute.
func WithReadOnlyPaths(paths ...string) Option {
	return func(s *draft) error {
		for _, p := range paths {
			if !cleanAbs(p) || p == "/" {
				return fmt.Errorf("read-only path %q is not a clean absolute path below the root", p)
			}
		}
		s.Linux.ReadonlyPaths = append(s.Linux.ReadonlyPaths, paths...)
		return nil
	}
}

// WithOwnFilters lets processes confine themselves with seccomp filters, socket filters and
// Landlock, for programs that need these. The kernel compiles such filters into memory that no limit of
// the sandbox bounds, within one budget for the whole host (net.core.bpf_jit_limit). It writes each access
// that Landlock denies to the host's audit log.
func WithOwnFilters() Option {
	return always(func(s *draft) { s.ownFilters = true })
}

// WithNetlink lets processes open netlink sockets (netlink(7)), for programs that need them.
// Messages queued in them take kernel memory that no limit of the sandbox bounds.
func WithNetlink() Option {
	return always(func(s *draft) { s.netlink = true })
}

// WithTmpfs mounts an empty in-memory file system at dest that every user of the sandbox may
// write to (mode 1777). It holds at most bytes, rounded up to whole KiB, and inodes files.
// Setuid programs and device nodes have no effect on it; programs can be executed. Its
// contents count towards the memory limit. It fails below 4 KiB or 2 inodes, and for the
// same destinations as [WithBind].
func WithTmpfs(dest string, bytes, inodes int64) Option {
	return tmpfs(dest, bytes, inodes, "nosuid", "nodev")
}

// WithSharedMemory mounts /dev/shm, for POSIX shared memory (shm_overview(7)), with room for
// at most bytes. Without this option there is no /dev/shm. Unlike with [WithTmpfs], programs on it
// cannot be executed. It fails below 4 KiB.
func WithSharedMemory(bytes int64) Option {
	return tmpfs("/dev/shm", bytes, bytes/(4*kib)+16, "nosuid", "nodev", "noexec")
}

func tmpfs(dest string, bytes, inodes int64, flags ...string) Option {
	return func(s *draft) error {
		if bytes < 4*kib || inodes < 2 {
			return fmt.Errorf("tmpfs %q: %d bytes and %d inodes are no usable size", dest, bytes, inodes)
		}
		return addMount(s, specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs", Options: append(flags, sized(bytes, inodes, 0o1777)...)})
	}
}

// WithBind makes the host file or directory source visible at dest, read-only unless
// writable is set. Mounts below source on the host are not included, and setuid programs and
// device nodes have no effect. It fails if either path is not clean and absolute, or if dest
// is "/", was mounted before, or is in /proc, /sys or /dev, except /dev/shm.
func WithBind(source, dest string, writable bool) Option {
	return func(s *draft) error {
		if !cleanAbs(source) {
			return fmt.Errorf("bind source %q is not a clean absolute path", source)
		}
		mode := "ro"
		if writable {
			mode = "rw"
		}
		return addMount(s, specs.Mount{Destination: dest, Type: "bind", Source: source, Options: []string{"bind", "private", "nosuid", "nodev", mode}})
	}
}

// WithCapabilities sets the bounding, effective and permitted capability sets of the first
// process to names (capabilities(7)), and admits the system calls that need them. The default is
// none. A second call replaces the first. It accepts:
//
//	CAP_SYS_CHROOT                                       for tasks that need chroot(2)
//	CAP_SETUID, CAP_SETGID, CAP_KILL                     for a trusted first process that runs other
//	                                                     processes as another user of the sandbox
//	CAP_CHOWN, CAP_DAC_OVERRIDE, CAP_FOWNER, CAP_FSETID, for package managers and services, after
//	CAP_NET_BIND_SERVICE                                 WithUserNamespace only: then they apply to
//	                                                     the namespace's own ids and network
//
// Any other name is an error.
func WithCapabilities(names ...string) Option {
	return func(s *draft) error {
		for _, n := range names {
			switch {
			case slices.Contains([]string{"CAP_SYS_CHROOT", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"}, n):
			case !slices.Contains([]string{"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FOWNER", "CAP_FSETID", "CAP_NET_BIND_SERVICE"}, n):
				return fmt.Errorf("capability %q cannot be given to a sandbox", n)
			case !hasNamespace(s, specs.UserNamespace):
				return fmt.Errorf("capability %q needs a user namespace of the sandbox's own (sbench doctor says why there is none)", n)
			}
		}
		c := s.Process.Capabilities
		for _, set := range []*[]string{&c.Bounding, &c.Effective, &c.Permitted} {
			*set = slices.Clone(names)
		}
		return nil
	}
}

// WithAnnotation attaches value under key, for people and other programs. The OCI runtime
// ignores unknown keys. A later value replaces an earlier one. It fails if key is empty.
func WithAnnotation(key, value string) Option {
	return func(s *draft) error {
		if key == "" {
			return errors.New("annotation without a key")
		}
		s.Annotations[key] = value
		return nil
	}
}

// addMount refuses destinations that would hide the specification's own mounts.
func addMount(s *draft, m specs.Mount) error {
	if !cleanAbs(m.Destination) || m.Destination == "/" {
		return fmt.Errorf("mount destination %q is not a clean absolute path below the root", m.Destination)
	}
	for _, top := range []string{"/proc", "/sys", "/dev"} {
		if (m.Destination == top || strings.HasPrefix(m.Destination, top+"/")) && m.Destination != "/dev/shm" {
			return fmt.Errorf("mount destination %q lies in %s", m.Destination, top)
		}
	}
	if slices.ContainsFunc(s.Mounts, func(have specs.Mount) bool { return have.Destination == m.Destination }) {
		return fmt.Errorf("mount destination %q: given twice", m.Destination)
	}
	s.Mounts = append(s.Mounts, m)
	return nil
}
