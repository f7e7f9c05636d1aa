package sandbox

import (
	"fmt"
	"io"

	"github.com/moby/sys/user"
	"github.com/opencontainers/runtime-spec/specs-go"

	"github.com/securebench/sbench/oci"
	"github.com/securebench/sbench/runtime/idmap"
	"github.com/securebench/sbench/runtime/passwd"
	"github.com/securebench/sbench/runtime/userns"
)

// IDs says how the ids of sandboxes relate to the host's.
type IDs struct {
	Pool *idmap.Pool // of ranges of ids for each sandbox; nil if sandboxes have the ids of sbench
	// Mappings means that the specification repeats the user namespace's mappings, without
	// which some OCI runtimes do not join it; see oci.Config.Mappings.
	Mappings bool
	// OnDisk means that every volume is on disk, because the ids of a tmpfs cannot be
	// shifted (before Linux 6.3).
	OnDisk bool
}

// sandboxIDs are a sandbox's ids and the user namespace in which it has them.
type sandboxIDs struct {
	own    *idmap.Range      // nil if the sandbox has the ids of this process
	userns *userns.Namespace // nil if it is in sbench's user namespace
}

// take returns a range of ids if there is a pool.
func (m IDs) take() (sandboxIDs, error) {
	if m.Pool == nil {
		return sandboxIDs{}, nil
	}
	own, err := m.Pool.Take()
	if err != nil {
		return sandboxIDs{}, err
	}
	return sandboxIDs{own, own.Namespace}, nil
}

// nest makes the sandbox's user namespace if sbench itself is in one: a child of it with the
// same ids. The sandbox's root then has no power over sbench's namespace, and the kernel
// counts each sandbox's processes separately (user_namespaces(7), setrlimit(2)).
func (s *sandboxIDs) nest() error {
	if !userns.Inside() {
		return nil
	}
	ids, err := sameIDs()
	if err != nil {
		return err
	}
	s.userns, err = userns.New(0, ids)
	return err
}

// sameIDs maps every id of this user namespace to itself. No mapping may span two of the
// parent namespace's (user_namespaces(7)).
func sameIDs() ([]userns.Mapping, error) {
	own, err := user.CurrentProcessUIDMap()
	if err != nil {
		return nil, err
	}
	var ms []userns.Mapping
	for _, m := range own {
		ms = append(ms, userns.Mapping{First: uint32(m.ID), Outside: uint32(m.ID), Size: uint32(m.Count)})
	}
	return ms, nil
}

// check refuses a user without an id in the sandbox's range.
func (s *sandboxIDs) check(u passwd.User) error {
	if s.own == nil {
		return nil
	}
	for _, id := range append([]uint32{u.UID, u.GID}, u.Groups...) {
		if id >= idmap.Size {
			return fmt.Errorf("user or group %d: a sandbox with a user namespace of its own has the ids 0 to %d; runtime.user_namespace: host has all", id, idmap.Size-1)
		}
	}
	return nil
}

// configure adds the user namespace to a specification. A sandbox with ids of its own has its /dev in
// the directory devices.
func (s *sandboxIDs) configure(c *oci.Config, mappings bool, devices string) {
	if s.userns == nil {
		return
	}
	c.UserNamespace = s.userns.Path()
	if mappings {
		c.Mappings = s.mappings()
	}
	if s.own != nil {
		c.Devices = devices
	}
}

// mappings returns the mappings of the sandbox's user namespace, if it has one.
func (s *sandboxIDs) mappings() (ids []specs.LinuxIDMapping) {
	if s.userns == nil {
		return nil
	}
	for _, m := range s.userns.Mappings() {
		ids = append(ids, specs.LinuxIDMapping{ContainerID: m.First, HostID: m.Outside, Size: m.Size})
	}
	return ids
}

// close releases the sandbox's user namespace and ids. All its processes must be known to
// have ended.
func (s *sandboxIDs) close() error {
	var closer io.Closer = s.userns
	switch {
	case s.userns == nil:
		return nil
	case s.own != nil:
		closer = s.own
	}
	s.userns, s.own = nil, nil
	return closer.Close()
}
