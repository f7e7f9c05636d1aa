// Package cgroup works with control groups that an OCI runtime has created: it reads their
// counters and limits, lists and kills their processes, and removes them. It supports
// version 1, version 2 and the hybrid of the two (cgroups(7)). For a process other than the
// host's root, it finds the delegated group.
package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
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
	top          string            // the group that the mount points show; not "/" in a container without a cgroup namespace
	to           *delegation       // nil if the hierarchies are used without delegation
}

// Mounted finds the mounted hierarchies. It is not an error if there are none.
func Mounted() (Hierarchies, error) { return listed("/proc/self/mountinfo") }

// listed finds the hierarchies in a table of mounts.
func listed(table string) (Hierarchies, error) {
	mounts, err := proc.Mounts(table, mountinfo.FSTypeFilter("cgroup", "cgroup2"))
	if err != nil {
		return Hierarchies{}, err
	}
	h := Hierarchies{byController: map[string]string{}}
	for _, m := range mounts {
		if m.FSType == "cgroup2" {
			h.unified, h.top = m.Mountpoint, m.Root
			continue
		}
		for option := range strings.SplitSeq(m.VFSOptions, ",") {
			if option != "rw" && option != "ro" {
				h.byController[option] = m.Mountpoint
			}
			if option == "memory" && h.unified == "" {
				h.top = m.Root
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

// Controllers lists which of memory, swap, pids and cpu can be limited in a new group. In
// hierarchies that [Usable] returned to an ordinary user, that takes [Hierarchies.Claim]
// first.
func (h Hierarchies) Controllers() []string {
	var have []string
	switch {
	case h.to != nil:
		have = slices.Clone(h.to.can)
	case h.Mode() == V2:
		have = slices.DeleteFunc(words(h.unified, "cgroup.controllers"), func(c string) bool { return !slices.Contains(controllers(), c) })
	default:
		for _, c := range []struct{ limit, controller, file string }{
			{"memory", "memory", "memory.limit_in_bytes"}, {"swap", "memory", "memory.memsw.limit_in_bytes"},
			{"pids", "pids", "cgroup.procs"}, {"cpu", "cpu", "cpu.cfs_quota_us"},
		} {
			if dir := h.byController[c.controller]; dir != "" && exists(dir, c.file) {
				have = append(have, c.limit)
			}
		}
		return have
	}
	dir := h.unified
	if h.to != nil {
		dir = filepath.Join(dir, h.to.group)
	}
	if slices.Contains(have, "memory") && swapAccounted(dir) {
		have = append(have, "swap")
	}
	return have
}

// Bounds reports whether a new group can bound both memory and processes.
func (h Hierarchies) Bounds() bool {
	have := h.Controllers()
	return slices.Contains(have, "memory") && slices.Contains(have, "pids")
}

func exists(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}

// swapAccounted reports whether the kernel accounts swap, so that every group but the root
// has memory.swap.max, or the host has no swap.
func swapAccounted(dir string) bool {
	for _, at := range []string{dir, filepath.Join(dir, "*")} {
		if files, err := filepath.Glob(filepath.Join(at, "memory.swap.max")); err == nil && len(files) > 0 {
			return true
		}
	}
	return noSwap()
}

// noSwap reports whether the host has no swap: /proc/swaps does not exist, or has only its headings.
func noSwap() bool {
	text, err := os.ReadFile("/proc/swaps")
	return errors.Is(err, fs.ErrNotExist) || err == nil && strings.Count(string(text), "\n") <= 1
}

// A Group names one control group in every hierarchy. It need not exist. Make one with
// [Hierarchies.Group].
type Group struct {
	h    Hierarchies
	path string
	ooms *oomCounter // nil unless CountOOMs made it
}

// Group names the group at path, absolute within the hierarchies or, if [Usable] returned
// them to an ordinary user, within the delegated group. It creates nothing.
func (h Hierarchies) Group(path string) *Group { return &Group{h: h, path: path} }

// dirs lists the group's directories without duplicates.
func (g *Group) dirs() []string {
	if g.h.to != nil && g.h.to.group == "" {
		return nil
	}
	mounts := slices.Collect(maps.Values(g.h.byController))
	if g.h.unified != "" {
		mounts = append(mounts, g.h.unified)
	}
	slices.Sort(mounts)
	mounts = slices.Compact(mounts)
	for i := range mounts {
		mounts[i] = filepath.Join(mounts[i], g.Path())
	}
	return mounts
}

// file returns "" if nothing is delegated: then no group's counters belong to this process.
func (g *Group) file(controller, name string) string {
	if g.Path() == "" {
		return ""
	}
	if dir, ok := g.h.byController[controller]; ok {
		return filepath.Join(dir, g.Path(), name)
	}
	return filepath.Join(g.h.unified, g.Path(), name)
}

// Pids lists the processes of the group and of all groups below it, in any hierarchy; a
// missing group has none. The error is [ErrUndelegated] if no group is delegated. Version 2
// lists processes outside this process's PID namespace as 0.
func (g *Group) Pids() ([]int, error) {
	if g.Path() == "" {
		return nil, fmt.Errorf("cgroup %s: %w", g.path, ErrUndelegated)
	}
	var pids []int
	dirs, err := g.tree()
	for _, dir := range dirs {
		text, readErr := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		if readErr != nil && !gone(readErr) {
			err = errors.Join(err, readErr)
		}
		for field := range strings.FieldsSeq(string(text)) {
			pid, atoiErr := strconv.Atoi(field)
			if atoiErr != nil {
				err = errors.Join(err, fmt.Errorf("%s: %q is not a process id", dir, field))
			}
			pids = append(pids, pid)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("cgroup %s: %w", g.path, err)
	}
	slices.Sort(pids)
	return slices.Compact(pids), nil
}

// tree lists the directories of the group and of all groups below it, parents first.
func (g *Group) tree() (all []string, err error) {
	for _, dir := range g.dirs() {
		err = errors.Join(err, filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
			if gone(err) {
				return nil // removed during the walk, so it was empty
			}
			if err == nil && d.IsDir() {
				all = append(all, p)
			}
			return err
		}))
	}
	return all, err
}

// Signal sends sig to every process of the group except spare (0 spares none). It skips
// process 1, and processes that have ended or are outside this PID namespace.
func (g *Group) Signal(sig unix.Signal, spare int) error {
	pids, err := g.Pids()
	if err != nil {
		return err
	}
	err = proc.SignalAll(pids, spare, sig, func(pid int) bool {
		for line := range strings.Lines(proc.Text(fmt.Sprintf("/proc/%d/cgroup", pid))) {
			if _, path, ok := strings.Cut(strings.TrimSpace(line), ":/"); ok && within("/"+path, g.shown()) {
				return true
			}
		}
		return false
	})
	if err != nil {
		return fmt.Errorf("cgroup %s: %w", g.path, err)
	}
	return nil
}

func within(path, top string) bool {
	return path == top || strings.HasPrefix(path, top+"/")
}

// KillAll kills every process of the group except spare (0 spares none) and waits until they
// have ended or ctx is done. If some remain after two passes, it freezes the group before
// signalling: the group may fork faster than it is killed.
func (g *Group) KillAll(ctx context.Context, spare int) error {
	return proc.KillAll(ctx, spare, g.Pids, func(pass int, _ []int) error {
		frozen := pass >= 2 && g.freeze(true) == nil
		err := g.Signal(unix.SIGKILL, spare)
		if frozen { // version 1 delivers the signal only when the group is thawed
			err = errors.Join(err, g.freeze(false))
		}
		return err
	})
}

// Freeze suspends the group's processes and returns once none runs, or resumes them.
func (g *Group) Freeze(ctx context.Context, on bool) error {
	for {
		if err := g.freeze(on); err != nil || !on {
			return err
		}
		file, want := g.file("freezer", "freezer.state"), "FROZEN"
		if g.h.Mode() == V2 {
			file, want = g.file("", "cgroup.events"), "frozen 1"
		}
		text, err := os.ReadFile(file)
		if err != nil || strings.Contains(string(text), want) {
			return err
		}
		if ctx.Err() != nil {
			return fmt.Errorf("cgroup %s is not frozen: %w", g.path, context.Cause(ctx))
		}
		time.Sleep(time.Millisecond)
	}
}

// freeze suspends or resumes the group's processes. A missing group is no error.
func (g *Group) freeze(on bool) error {
	file, text := g.file("freezer", "freezer.state"), map[bool]string{true: "FROZEN", false: "THAWED"}[on]
	if g.h.Mode() == V2 {
		file, text = g.file("", "cgroup.freeze"), map[bool]string{true: "1", false: "0"}[on]
	}
	if err := os.WriteFile(file, []byte(text), 0); !gone(err) {
		return err
	}
	return nil
}

// gone reports whether err comes from a removed group: its files do not exist, or were
// opened before (kernfs answers ENODEV).
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENODEV)
}

// Remove deletes the group and all groups below it. None of them may contain a process. A
// missing group is no error.
func (g *Group) Remove() error {
	if err := g.ooms.close(); err != nil {
		return err
	}
	alone := true
	for _, dir := range g.dirs() {
		if err := unix.Rmdir(dir); err != nil && !errors.Is(err, unix.ENOENT) {
			alone = false
		}
	}
	if alone { // as usual; a walk takes much longer
		return nil
	}
	dirs, err := g.tree()
	for _, dir := range slices.Backward(dirs) {
		if rmErr := unix.Rmdir(dir); rmErr != nil && !errors.Is(rmErr, unix.ENOENT) {
			err = errors.Join(err, fmt.Errorf("remove %s: %w", dir, rmErr))
		}
	}
	return err
}

// read returns the text of one of the group's files; see [proc.Text].
func (g *Group) read(controller, name string) string { return proc.Text(g.file(controller, name)) }

// number returns the number that follows key at the beginning of a line of the named file. It returns 0
// if no line begins so, or if the file does not exist.
func (g *Group) number(controller, name, key string) (int64, error) {
	text, err := os.ReadFile(g.file(controller, name))
	if err != nil && !gone(err) {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, key); ok {
			if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
				return n, nil
			}
		}
	}
	return 0, nil
}
