// Package idmap gives sandboxes user and group ids of their own without changing files
// on disk, which keep the ids 0 to 65535. A sandbox sees them through mounts that shift
// these ids into a range of host ids that is used for nothing else (mount_setattr(2),
// MOUNT_ATTR_IDMAP).
//
// The package needs the capabilities of the host's root, and does not work in a user
// namespace.
package idmap

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/userns"
)

// Size is the number of ids in a range, which are 0 to 65535 inside the sandbox.
const Size = 1 << 16

// Ranges are taken from the upper end of the ids that systemd reserves for containers,
// 524288 to 1879048191 (UIDS-GIDS.md of systemd), since tools that allocate ids in order
// begin at the lower end.
const (
	slots     = 1 << 14
	lastSlot  = 1879048192 / Size
	firstSlot = lastSlot - slots
)

const maxTries = 64

// A Pool hands out ranges of ids that no other process has taken from a pool with the same
// lock file, and that /etc/subuid and /etc/subgid assign to no user. Its methods are safe
// for concurrent use.
type Pool struct {
	locks     string
	reserved  []userns.Grant
	hostOwned bool
}

// NewPool returns a pool without the ids that /etc/subuid and /etc/subgid assign to users.
// Locks on the file locks, which is created if it is missing, record the ranges that are
// taken.
//
// The range's own root owns its user namespace or, with hostOwned, the host's root, who then
// has all capabilities in it. What the kernel counts per user, such as inotify instances, it
// also counts for the owner in the parent namespace: with hostOwned, one sandbox can use up
// what all share (namespaces(7), user_namespaces(7)).
func NewPool(locks string, hostOwned bool) (*Pool, error) {
	p := &Pool{locks: locks, hostOwned: hostOwned}
	for _, name := range []string{"/etc/subuid", "/etc/subgid"} {
		given, err := userns.Grants(name)
		if err != nil {
			return nil, err
		}
		p.reserved = append(p.reserved, given...)
	}
	return p, nil
}

// Take returns a range that nobody else gets until it is closed. The caller closes it.
func (p *Pool) Take() (*Range, error) {
	r, err := p.claim()
	if err != nil {
		return nil, err
	}
	owner := r.base
	if p.hostOwned {
		owner = 0
	}
	r.Namespace, err = userns.New(owner, []userns.Mapping{{Outside: r.base, Size: Size}})
	if err != nil {
		return nil, fmt.Errorf("ids from %d: %w", r.base, errors.Join(err, r.claimed.Close()))
	}
	return r, nil
}

// claim finds and locks a free range.
func (p *Pool) claim() (*Range, error) {
	for range maxTries {
		base := (firstSlot + rand.Uint32N(slots)) * Size
		if p.isReserved(base) {
			continue
		}
		claim, err := p.claimBase(base)
		if err == nil {
			return &Range{base: base, claimed: claim}, nil
		}
		if !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("claim ids from %d: %w", base, err)
		}
	}
	return nil, fmt.Errorf("no free range of ids found in %d tries", maxTries)
}

func (p *Pool) isReserved(base uint32) bool {
	return slices.ContainsFunc(p.reserved, func(g userns.Grant) bool {
		return int64(base) < g.First+g.Count && g.First < int64(base)+Size
	})
}

// claimBase reserves a range with a lock on one byte of a file that only this user may open.
// The kernel releases the lock when this process ends (fcntl(2), "Open file description
// locks").
func (p *Pool) claimBase(base uint32) (*os.File, error) {
	f, err := os.OpenFile(p.locks, os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	lock := unix.Flock_t{Type: unix.F_WRLCK, Start: int64(base / Size), Len: 1}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lock); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// A Range is [Size] consecutive ids of the host, for users and groups alike, with a user
// namespace in which they are 0 to 65535.
type Range struct {
	*userns.Namespace
	base    uint32
	claimed *os.File
}

// Base returns the host's id for the root of the range.
func (r *Range) Base() uint32 { return r.base }

// Close returns the range to the pool. No process may still run with its ids, and r must not
// be used again.
func (r *Range) Close() error { return errors.Join(r.Namespace.Close(), r.claimed.Close()) }
