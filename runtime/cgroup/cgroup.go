// Package cgroup works with control groups that an OCI runtime has created: it reads
// their counters and limits, lists and kills their processes, and removes them. It
// supports version 1, version 2 and the hybrid of the two (cgroups(7)). For a process
// that is not the host's root it finds the group that is delegated to it.
package cgroup

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Mode names the layout of the host's cgroup file systems.
type Mode string

// The layouts. In Hybrid both versions are mounted, and version 1 has the controllers.
const (
	None   Mode = "none"
	V1     Mode = "v1"
	Hybrid Mode = "hybrid"
	V2     Mode = "v2"
)

// Hierarchies are the cgroup file systems of this mount namespace. The zero value
// has none. They are immutable and safe for concurrent use.
type Hierarchies struct {
	byController map[string]string // v1 controller → mount point
	unified      string            // mount point of v2; "" if there is none
	top          string            // the group that this mount point shows
	to           *delegation       // nil if the hierarchies are used without delegation
}

// Mounted finds the mounted hierarchies. It is not an error if there are none.
func Mounted() (Hierarchies, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return Hierarchies{}, err
	}
	defer func() { _ = f.Close() }()
	h := Hierarchies{byController: map[string]string{}}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		left, right, ok := strings.Cut(sc.Text(), " - ")
		fields, super := strings.Fields(left), strings.Fields(right)
		if !ok || len(fields) < 5 || len(super) < 3 {
			continue
		}
		switch super[0] {
		case "cgroup2":
			h.unified, h.top = fields[4], fields[3]
		case "cgroup":
			for option := range strings.SplitSeq(super[2], ",") {
				if option != "rw" && option != "ro" {
					h.byController[option] = fields[4]
				}
			}
		}
	}
	return h, nil
}

// Mode returns the layout of the hierarchies.
func (h Hierarchies) Mode() Mode {
	_, memory := h.byController["memory"]
	switch {
	case memory && h.unified != "":
		return Hybrid
	case memory:
		return V1
	case h.unified != "":
		return V2
	}
	return None
}

// Controllers lists which of memory, swap, pids and cpu can be limited in a new group.
// For hierarchies that [Hierarchies.Delegated] returned, they can be limited only after
// [Hierarchies.Claim].
func (h Hierarchies) Controllers() []string {
	var have []string
	if h.to != nil {
		have = slices.Clone(h.to.can)
		if slices.Contains(have, "memory") && swapAccounted(filepath.Join(h.unified, h.to.group)) {
			have = append(have, "swap")
		}
		return have
	}
	add := func(name, dir, file string) {
		if dir == "" {
			return
		}
		if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
			have = append(have, name)
		}
	}
	if h.Mode() != V2 {
		add("memory", h.byController["memory"], "memory.limit_in_bytes")
		add("swap", h.byController["memory"], "memory.memsw.limit_in_bytes")
		add("pids", h.byController["pids"], "cgroup.procs")
		add("cpu", h.byController["cpu"], "cpu.cfs_quota_us")
		return have
	}
	for _, c := range strings.Fields(readString(filepath.Join(h.unified, "cgroup.controllers"))) {
		if slices.Contains(controllers(), c) {
			have = append(have, c)
		}
	}
	if slices.Contains(have, "memory") && swapAccounted(h.unified) {
		have = append(have, "swap")
	}
	return have
}

// CountsSocketsApart reports whether the kernel accounts the memory of sockets
// separately, so that it needs a limit of its own; see [Group.LimitSockets].
func (h Hierarchies) CountsSocketsApart() bool {
	if h.Mode() == V2 {
		return false
	}
	_, err := os.Stat(filepath.Join(h.byController["memory"], "memory.kmem.tcp.limit_in_bytes"))
	return err == nil
}

// swapAccounted reports whether the kernel accounts swap, in which case memory.swap.max
// exists in every group but the root, or whether the host has no swap.
func swapAccounted(dir string) bool {
	for _, at := range []string{dir, filepath.Join(dir, "*")} {
		if files, err := filepath.Glob(filepath.Join(at, "memory.swap.max")); err == nil && len(files) > 0 {
			return true
		}
	}
	return noSwap()
}

func noSwap() bool { return strings.Count(readString("/proc/swaps"), "\n") <= 1 }

// A Group names one control group in every hierarchy. The group need not exist.
type Group struct {
	h    Hierarchies
	path string
}

// Group names the group at path, which is absolute within the hierarchies or, if
// [Hierarchies.Delegated] returned them, within the delegated group. It creates
// nothing.
func (h Hierarchies) Group(path string) Group { return Group{h, path} }

// dirs lists the group's directories without duplicates.
func (g Group) dirs() []string {
	if g.h.to != nil && g.h.to.group == "" {
		return nil
	}
	seen := map[string]bool{}
	for _, mount := range g.h.byController {
		seen[filepath.Join(mount, g.Path())] = true
	}
	if g.h.unified != "" {
		seen[filepath.Join(g.h.unified, g.Path())] = true
	}
	dirs := make([]string, 0, len(seen))
	for d := range seen {
		dirs = append(dirs, d)
	}
	slices.Sort(dirs)
	return dirs
}

// file returns "" if nothing is delegated, since then no group's counters belong to this
// process.
func (g Group) file(controller, name string) string {
	if g.Path() == "" {
		return ""
	}
	if dir, ok := g.h.byController[controller]; ok {
		return filepath.Join(dir, g.Path(), name)
	}
	return filepath.Join(g.h.unified, g.Path(), name)
}

// Pids lists the processes of the group and of all groups below it, in any hierarchy. A
// group that does not exist has none. If no group is delegated, an empty list would prove
// nothing, so the error is [ErrUndelegated]. The ids are those of this process's PID
// namespace; version 2 lists processes outside it as 0.
func (g Group) Pids() ([]int, error) {
	if g.Path() == "" {
		return nil, fmt.Errorf("cgroup %s: %w", g.path, ErrUndelegated)
	}
	seen := map[int]bool{}
	for _, dir := range g.dirs() {
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
				return nil // removed during the walk, so it was empty
			}
			if err != nil || d.Name() != "cgroup.procs" {
				return err
			}
			return addPids(p, seen)
		})
		if err != nil {
			return nil, fmt.Errorf("cgroup %s: %w", g.path, err)
		}
	}
	pids := make([]int, 0, len(seen))
	for pid := range seen {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

func addPids(file string, seen map[int]bool) error {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	if err != nil {
		return err
	}
	for field := range strings.FieldsSeq(string(text)) {
		pid, err := strconv.Atoi(field)
		if err != nil {
			return fmt.Errorf("%s: %q is not a process id", file, field)
		}
		seen[pid] = true
	}
	return nil
}

// Signal sends sig to every process of the group except spare (0 spares none). It skips
// process 1 and processes that have ended or are outside this PID namespace.
func (g Group) Signal(sig unix.Signal, spare int) error {
	pids, err := g.Pids()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if pid == spare || pid <= 1 {
			continue
		}
		if err := g.signalOne(pid, sig); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("cgroup %s: signal %d: %w", g.path, pid, err)
		}
	}
	return nil
}

// signalOne checks the membership again once it holds a pidfd, so that a reused id
// cannot direct the signal at an unrelated process.
func (g Group) signalOne(pid int, sig unix.Signal) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(fd) }()
	for line := range strings.Lines(readString(fmt.Sprintf("/proc/%d/cgroup", pid))) {
		if _, path, ok := strings.Cut(strings.TrimSpace(line), ":/"); ok && within("/"+path, g.shown()) {
			return unix.PidfdSendSignal(fd, sig, nil, 0)
		}
	}
	return unix.ESRCH
}

func within(path, top string) bool {
	return path == top || strings.HasPrefix(path, top+"/")
}

// KillAll kills every process of the group except spare (0 spares none) and waits until
// they have ended or ctx is done. If processes remain after two passes, KillAll freezes
// the group before it signals, since the group may fork faster than it is killed.
func (g Group) KillAll(ctx context.Context, spare int) error {
	for pass := 0; ; pass++ {
		pids, err := g.Pids()
		if err != nil {
			return err
		}
		pids = slices.DeleteFunc(pids, func(p int) bool { return p == spare })
		if len(pids) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cgroup %s: %d processes survive: %w", g.path, len(pids), context.Cause(ctx))
		}
		frozen := pass >= 2 && g.freeze(true) == nil
		err = g.Signal(unix.SIGKILL, spare)
		if frozen { // version 1 delivers the signal only when the group is thawed
			err = errors.Join(err, g.freeze(false))
		}
		if err != nil {
			return err
		}
		time.Sleep(time.Millisecond << min(pass, 5))
	}
}

func (g Group) freeze(on bool) error {
	if g.h.Mode() == V2 {
		return os.WriteFile(g.file("", "cgroup.freeze"), map[bool][]byte{true: []byte("1"), false: []byte("0")}[on], 0)
	}
	return os.WriteFile(g.file("freezer", "freezer.state"), map[bool][]byte{true: []byte("FROZEN"), false: []byte("THAWED")}[on], 0)
}

// Remove deletes the group and the groups below it, none of which may contain a
// process. It is not an error if the group does not exist.
func (g Group) Remove() error {
	var errs []error
	for _, dir := range g.dirs() {
		var below []string
		err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err == nil && d.IsDir() {
				below = append(below, p)
			}
			return err
		})
		errs = append(errs, err)
		for _, p := range slices.Backward(below) {
			if err := unix.Rmdir(p); err != nil && !errors.Is(err, unix.ENOENT) {
				errs = append(errs, fmt.Errorf("remove %s: %w", p, err))
			}
		}
	}
	return errors.Join(errs...)
}

// Children lists, over all hierarchies, the names of the groups that start with prefix
// and lie directly below the root or, for Delegated hierarchies, below the delegated
// group.
func (h Hierarchies) Children(prefix string) []string {
	seen := map[string]bool{}
	for _, dir := range h.Group("/").dirs() {
		matches, err := filepath.Glob(filepath.Join(dir, prefix+"*"))
		if err != nil {
			continue // only a malformed pattern fails
		}
		for _, m := range matches {
			if info, err := os.Stat(m); err == nil && info.IsDir() {
				seen[filepath.Base(m)] = true
			}
		}
	}
	names := make([]string, 0, len(seen))
	for n := range seen {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

func readString(file string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return ""
	}
	return string(text)
}

func number(text string) int64 {
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// keyed returns the value of key in lines of the form "key value", or 0.
func keyed(text, key string) int64 {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, " "); ok && name == key {
			return number(value)
		}
	}
	return 0
}
