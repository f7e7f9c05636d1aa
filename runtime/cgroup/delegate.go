package cgroup

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/runtime/proc"
	"github.com/securebench/sbench/runtime/userns"
)

// supervisor is the group below the delegated one that contains sbench itself: a group with
// processes of its own cannot enable controllers for its children (cgroups(7), "no internal
// processes").
const supervisor = "sbench-supervisor"

const askTimeout = 10 * time.Second

const (
	cureScope = "run sbench in a group of its own: systemd-run --user --scope -p Delegate=yes sbench ...; " +
		"it needs the user's systemd: log in, or loginctl enable-linger and XDG_RUNTIME_DIR=/run/user/$(id -u)"
	cureControllers = "as root, put the lines [Service] and Delegate=cpu cpuset io memory pids into " +
		"/etc/systemd/system/user@.service.d/delegate.conf; then systemctl daemon-reload, and systemctl restart user@UID or a new login"
	cureUnified = "boot with systemd.unified_cgroup_hierarchy=1, or run as root"
)

// ErrUndelegated is the error for operations on groups if this process may create none.
var ErrUndelegated = errors.New("no control group is delegated to this user")

// A Lack says why a controller is missing and what the user or administrator can do. The
// zero Lack means that none is missing.
type Lack struct {
	Why  string // the reason
	Cure string // what to do, such as a command to run
}

// delegation describes the group delegated to a process other than the host's root.
type delegation struct {
	group string   // the delegated group, absolute below the mount point; "" if there is none
	can   []string // controllers of the groups below it once Claim has run
	all   bool     // Claim moves all processes of the group
	lack  Lack
}

// Usable returns the mounted hierarchies as this process may use them.
//
//   - The host's root may use all that [Mounted] returns. In a container with a cgroup namespace,
//     the top of the tree counts as delegated.
//   - Anyone else, including root in a user namespace, needs a delegated group. Groups are then
//     named relative to it. Candidates are the group of the process and the groups above it which
//     the process may write to and systemd does not manage. The candidate with the most
//     controllers is the delegated group, the nearest one if several have as many. If there is
//     none, Controllers returns nothing and Lack says why. That is no error.
//
// Usable creates and removes empty groups and changes nothing else; [Hierarchies.Claim]
// makes the controllers available. The user's systemd can be asked only from outside a user
// namespace, so a process that will enter one must call Claim first.
func Usable() (Hierarchies, error) {
	h, err := Mounted()
	if err != nil || userns.HostRoot() {
		return h.contained(), err
	}
	return h.delegatedTo(ownGroup(), os.Getpid(), askManager), nil
}

// contained returns the hierarchies of the host's root. The top of a container's tree is an ordinary
// group: unlike the kernel's root group it has a type (cgroups(7)), and it cannot pass on
// controllers while it has processes.
func (h Hierarchies) contained() Hierarchies {
	if h.Mode() == V2 && exists(h.unified, "cgroup.type") {
		has := words(h.unified, "cgroup.controllers")
		h.to = &delegation{group: "/", all: true, can: slices.DeleteFunc(controllers(), func(c string) bool { return !slices.Contains(has, c) })}
	}
	return h
}

// Lack says why a controller that could be delegated is missing from Controllers. It is
// zero if none is missing, and for the host's root.
func (h Hierarchies) Lack() Lack {
	if h.to == nil {
		return Lack{}
	}
	return h.to.lack
}

// Path returns the group's path below the hierarchies' mount points, as linux.cgroupsPath of
// an OCI specification expects it; "" if nothing is delegated.
func (g *Group) Path() string {
	switch {
	case g.h.to == nil:
		return g.path
	case g.h.to.group == "":
		return ""
	}
	return filepath.Join(g.h.to.group, g.path)
}

// shown returns the group's path as /proc shows it.
func (g *Group) shown() string { return filepath.Join("/", g.h.top, g.Path()) }

// ownGroup returns this process's group in version 2, as /proc shows it; "" if version 2
// is not mounted.
func ownGroup() string { return proc.Field("/proc/self/cgroup", "0::") }

// delegatedTo is Usable for the process self in the group own. delegates reports whether a
// unit of the user's systemd is delegated.
func (h Hierarchies) delegatedTo(own string, self int, delegates func(unit string) (bool, error)) Hierarchies {
	none := func(cure, format string, args ...any) Hierarchies {
		h.to = &delegation{lack: Lack{fmt.Sprintf(format, args...), cure}}
		return h
	}
	if h.Mode() != V2 {
		return none(cureUnified, "control groups of version 1 cannot be delegated to a user")
	}
	group, ok := cutTop(own, h.top)
	if !ok {
		return none(cureScope, "the control group %s of this process is not in the mounted hierarchy", own)
	}
	claimed := path.Base(group) == supervisor
	if claimed {
		group = path.Dir(group)
	}
	unit, lineage := lineage(group)
	best, err := h.best(lineage, self)
	if err != nil {
		return none(cureScope, "the control group %s is not this user's: %v", group, err)
	}
	// A unit's files belong to the user even if it is not delegated, but then the user's
	// systemd may disable controllers again (systemd.resource-control(5)).
	if unit != "" && !claimed {
		yes, err := delegates(unit)
		if err != nil {
			return none(cureScope, "whether %s is delegated is unknown: %v", unit, err)
		}
		if !yes {
			return none(cureScope, "%s belongs to the user's systemd, and is not delegated", unit)
		}
	}
	h.byController, h.to = nil, &best
	return h
}

// cutTop converts a group's path in /proc into its path below the mount point, which shows
// the group top. It returns false if the group is not below top.
func cutTop(group, top string) (string, bool) {
	if top == "" || top == "/" {
		return group, path.IsAbs(group) && group == path.Clean(group)
	}
	if !within(group, top) {
		return "", false
	}
	return path.Clean("/" + strings.TrimPrefix(group, top)), true
}

// lineage lists group and its ancestors up to the first that is a unit of systemd, which
// manages everything above a unit. unit is the name of that unit if the user's systemd
// manages it, otherwise "": the system's systemd gives a user the files of a unit only by
// delegating it.
func lineage(group string) (unit string, groups []string) {
	for at := group; ; at = path.Dir(at) {
		groups = append(groups, at)
		if strings.HasSuffix(at, ".service") || strings.HasSuffix(at, ".scope") || strings.HasSuffix(at, ".slice") {
			if strings.Contains(at, "/user@") {
				unit = path.Base(at)
			}
			return unit, groups
		}
		if at == "/" {
			return "", groups
		}
	}
}

// best returns the group that can pass on the most controllers, the first of several equal
// ones. It fails if self may write to none.
func (h Hierarchies) best(groups []string, self int) (delegation, error) {
	var found delegation
	var refusal error
	for _, group := range groups {
		dir := filepath.Join(h.unified, group)
		if err := tryWrite(dir); err != nil {
			refusal = cmp.Or(refusal, err)
			continue
		}
		if d := examine(dir, self); found.group == "" || len(d.can) > len(found.can) {
			d.group = group
			found = d
		}
	}
	if found.group == "" {
		return delegation{}, refusal
	}
	return found, nil
}

// tryWrite tries everything that delegation permits, since inside a user namespace the
// files' owner and mode do not show it. A process that may write to cgroup.procs may move
// processes between the groups below.
func tryWrite(dir string) error {
	if kind := proc.Text(filepath.Join(dir, "cgroup.type")); kind != "" && kind != "domain" {
		return fmt.Errorf("it is of type %q", kind)
	}
	for _, name := range []string{"cgroup.procs", "cgroup.subtree_control"} {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		if err := f.Close(); err != nil {
			return err
		}
	}
	return inProbe(dir, func(string) error { return nil })
}

// inProbe calls f with a new, temporary group below dir.
func inProbe(dir string, f func(probe string) error) error {
	probe, err := os.MkdirTemp(dir, "sbench-probe-")
	if err != nil {
		return err
	}
	err = f(probe)
	return errors.Join(err, unix.Rmdir(probe))
}

// examine finds the controllers that a group can pass on: the controllers that it passes on already
// and, if it contains no process but self, all that it has.
func examine(dir string, self int) delegation {
	have := words(dir, "cgroup.controllers")
	on := words(dir, "cgroup.subtree_control")
	procs := words(dir, "cgroup.procs")
	others := len(procs)
	if slices.Contains(procs, strconv.Itoa(self)) {
		others--
	}
	var d delegation
	var lacking, blocked []string
	for _, c := range controllers() {
		switch {
		case slices.Contains(on, c), slices.Contains(have, c) && others == 0:
			d.can = append(d.can, c)
		case slices.Contains(have, c):
			blocked = append(blocked, c)
		default:
			lacking = append(lacking, c)
		}
	}
	switch {
	case len(lacking) > 0:
		d.lack = Lack{"the controllers " + strings.Join(lacking, ", ") + " are not delegated to this user", cureControllers}
	case len(blocked) > 0:
		d.lack = Lack{fmt.Sprintf("the control group holds %d other processes, and so can have no limited groups below it", others), cureScope}
	}
	return d
}

func words(dir, name string) []string { return strings.Fields(proc.Text(filepath.Join(dir, name))) }

// controllers are those that limit a sandbox.
func controllers() []string { return []string{"memory", "pids", "cpu"} }

// askManager asks the user's systemd whether a unit is delegated.
func askManager(unit string) (bool, error) {
	ctx, cancel := context.WithTimeoutCause(context.Background(), askTimeout, errors.New("no answer from the user's systemd"))
	defer cancel()
	cmd := exec.CommandContext(ctx, "systemctl", "--user", "show", "--property=Delegate", "--value", "--", unit)
	cmd.Env = os.Environ()
	if os.Getenv("XDG_RUNTIME_DIR") == "" {
		cmd.Env = append(cmd.Env, fmt.Sprintf("XDG_RUNTIME_DIR=/run/user/%d", os.Getuid()))
	}
	out, err := cmd.Output()
	if ctx.Err() != nil {
		return false, context.Cause(ctx)
	}
	if failed, ok := errors.AsType[*exec.ExitError](err); ok {
		return false, fmt.Errorf("systemctl --user show: %w: %s", err, strings.TrimSpace(string(failed.Stderr)))
	}
	return err == nil && strings.TrimSpace(string(out)) == "yes", err
}
