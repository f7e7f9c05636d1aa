package oci

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
)

// withoutCgroup marks a spec whose lack of limits is on purpose, so that a
// forgotten limit is told apart from a host that has none to give.
const withoutCgroup = "org.securebench.without-cgroup"

// withoutCPU marks a spec that lacks a CPU limit on purpose.
const withoutCPU = "org.securebench.without-cpu-limit"

// ownFilters marks a spec whose processes may install filters of their own.
const ownFilters = "org.securebench.own-filters"

// netlinkAllowed marks a spec whose processes may open netlink sockets.
const netlinkAllowed = "org.securebench.netlink"

// sealedProcesses marks a spec whose processes may not trace one another.
const sealedProcesses = "org.securebench.sealed-processes"

// WithArgs sets the process's argument vector. The first is looked up in the
// PATH of the process's environment unless it holds a slash.
func WithArgs(args ...string) Option {
	return func(s *specs.Spec) error {
		if len(args) == 0 || args[0] == "" {
			return errors.New("arguments: the command is empty")
		}
		for i, a := range args {
			if strings.ContainsRune(a, 0) {
				return fmt.Errorf("arguments: number %d holds a NUL byte", i)
			}
		}
		s.Process.Args = slices.Clone(args)
		return nil
	}
}

// WithEnv adds NAME=value entries; a later entry replaces an earlier one of
// the same name.
func WithEnv(env ...string) Option {
	return func(s *specs.Spec) error {
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

// WithCwd sets the working directory, an absolute path inside the sandbox.
func WithCwd(dir string) Option {
	return func(s *specs.Spec) error {
		if !cleanAbs(dir) {
			return fmt.Errorf("working directory %q is not a clean absolute path", dir)
		}
		s.Process.Cwd = dir
		return nil
	}
}

// WithUser sets numeric ids inside the sandbox. The zero value of a spec is
// root without any capability.
func WithUser(uid, gid uint32, groups ...uint32) Option {
	return func(s *specs.Spec) error {
		s.Process.User = specs.User{UID: uid, GID: gid, AdditionalGids: slices.Clone(groups)}
		return nil
	}
}

// WithUserNamespace joins the user namespace at p, an absolute host path. What has
// no mapping there shows as nobody's. The specification says that mappings are for
// a namespace that the OCI runtime makes itself (config-linux.md, "User namespace
// mappings"), and runc from 1.1.11 on and crun hold to that; runc before 1.1.11
// refuses to join without the namespace's own mappings, of user and group ids alike.
func WithUserNamespace(p string, mappings ...specs.LinuxIDMapping) Option {
	return func(s *specs.Spec) error {
		if !cleanAbs(p) {
			return fmt.Errorf("user namespace %q is not a clean absolute path", p)
		}
		if hasNamespace(s, specs.UserNamespace) {
			return errors.New("user namespace: given twice")
		}
		for _, m := range mappings {
			if m.Size == 0 {
				return errors.New("user namespace: a mapping of no ids")
			}
		}
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.UserNamespace, Path: p})
		s.Linux.UIDMappings, s.Linux.GIDMappings = slices.Clone(mappings), slices.Clone(mappings)
		return nil
	}
}

// WithDevices shows the host path source, which holds device nodes, links and
// the folders pts and shm, as /dev, instead of one that the OCI runtime fills.
func WithDevices(source string) Option {
	return func(s *specs.Spec) error {
		if !cleanAbs(source) {
			return fmt.Errorf("devices in %q, which is not a clean absolute path", source)
		}
		for i, m := range s.Mounts {
			if m.Destination == "/dev" {
				s.Mounts[i] = specs.Mount{Destination: "/dev", Type: "bind", Source: source, Options: []string{"bind", "private", "nosuid", "noexec", "rw"}}
				return nil
			}
		}
		return errors.New("devices: no /dev to replace")
	}
}

// WithNetworkNamespace joins the namespace at p, an absolute host path. There
// is no option to share the host's.
func WithNetworkNamespace(p string) Option {
	return func(s *specs.Spec) error {
		if !cleanAbs(p) {
			return fmt.Errorf("network namespace %q is not a clean absolute path", p)
		}
		if hasNamespace(s, specs.NetworkNamespace) {
			return errors.New("network namespace: given twice")
		}
		s.Linux.Namespaces = append(s.Linux.Namespaces, specs.LinuxNamespace{Type: specs.NetworkNamespace, Path: p})
		return nil
	}
}

// WithSealedProcesses keeps the processes of a sandbox out of one another's
// memory, where a trusted one starts an untrusted one of the same user: /proc is
// read-only, mem files included, and ptrace(2) fails. It comes before
// [WithSeccomp].
func WithSealedProcesses() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Seccomp != nil {
			return errors.New("WithSealedProcesses after WithSeccomp")
		}
		s.Linux.ReadonlyPaths = append(s.Linux.ReadonlyPaths, "/proc")
		return annotate(s, sealedProcesses, "true")
	}
}

// WithOwnFilters lets processes install seccomp and socket filters, for programs that
// need them. Their translated code is memory of the host that no limit of the sandbox
// bounds; see [WithSeccomp]. It comes before that.
func WithOwnFilters() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Seccomp != nil {
			return errors.New("WithOwnFilters after WithSeccomp")
		}
		return annotate(s, ownFilters, "true")
	}
}

// WithNetlink lets processes open netlink sockets, for programs that need them. What
// waits in them is memory of the host that no limit of the sandbox bounds; see
// [WithSeccomp]. It comes before that.
func WithNetlink() Option {
	return func(s *specs.Spec) error {
		if s.Linux.Seccomp != nil {
			return errors.New("WithNetlink after WithSeccomp")
		}
		return annotate(s, netlinkAllowed, "true")
	}
}

// WithTmpfs mounts an empty file system of at most bytes and inodes at dest,
// open to every user of the sandbox.
func WithTmpfs(dest string, bytes, inodes int64) Option {
	return tmpfs(dest, bytes, inodes, "nosuid", "nodev")
}

// WithSharedMemory mounts /dev/shm with at most bytes.
func WithSharedMemory(bytes int64) Option {
	return tmpfs("/dev/shm", bytes, bytes/(4*kib)+16, "nosuid", "nodev", "noexec")
}

func tmpfs(dest string, bytes, inodes int64, flags ...string) Option {
	return func(s *specs.Spec) error {
		if bytes < 4*kib || inodes < 2 {
			return fmt.Errorf("tmpfs %q: %d bytes and %d inodes are no usable size", dest, bytes, inodes)
		}
		return addMount(s, specs.Mount{Destination: dest, Type: "tmpfs", Source: "tmpfs", Options: append(flags, sized(bytes, inodes, 0o1777)...)})
	}
}

// WithBind shows the host path source at dest, read-only unless writable.
// Mounts below source on the host do not come along.
func WithBind(source, dest string, writable bool) Option {
	return func(s *specs.Spec) error {
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

// WithCapabilities gives names, and the system calls they stand for, to the
// process. Only these can be given: CAP_SYS_CHROOT, the one needed_command that
// exists, and CAP_SETUID, CAP_SETGID and CAP_KILL, for a first process of ours that runs
// others as another user of the sandbox.
func WithCapabilities(names ...string) Option {
	return func(s *specs.Spec) error {
		for _, n := range names {
			if !slices.Contains([]string{"CAP_SYS_CHROOT", "CAP_SETUID", "CAP_SETGID", "CAP_KILL"}, n) {
				return fmt.Errorf("capability %q cannot be given to a sandbox", n)
			}
		}
		if s.Linux.Seccomp != nil {
			return errors.New("WithCapabilities after WithSeccomp")
		}
		c := s.Process.Capabilities
		for _, set := range []*[]string{&c.Bounding, &c.Effective, &c.Permitted} {
			*set = slices.Clone(names)
		}
		return nil
	}
}

// WithAnnotation attaches a name for people and other programs; the OCI
// runtime ignores it.
func WithAnnotation(key, value string) Option {
	return func(s *specs.Spec) error { return annotate(s, key, value) }
}

func annotate(s *specs.Spec, key, value string) error {
	if key == "" {
		return errors.New("annotation without a key")
	}
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[key] = value
	return nil
}

// addMount refuses destinations that would cover what the specification
// itself relies on.
func addMount(s *specs.Spec, m specs.Mount) error {
	if !cleanAbs(m.Destination) || m.Destination == "/" {
		return fmt.Errorf("mount destination %q is not a clean absolute path below the root", m.Destination)
	}
	for _, top := range []string{"/proc", "/sys", "/dev"} {
		if (m.Destination == top || strings.HasPrefix(m.Destination, top+"/")) && m.Destination != "/dev/shm" {
			return fmt.Errorf("mount destination %q lies in %s", m.Destination, top)
		}
	}
	for _, have := range s.Mounts {
		if have.Destination == m.Destination {
			return fmt.Errorf("mount destination %q: given twice", path.Clean(m.Destination))
		}
	}
	s.Mounts = append(s.Mounts, m)
	return nil
}
