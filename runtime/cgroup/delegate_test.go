package cgroup_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/cgroup"
)

const (
	nobody = 65534
	self   = 4242
	app    = "/user.slice/user-1000.slice/user@1000.service/app.slice"
)

// fake is one group of a directory tree that imitates cgroup2.
type fake struct {
	have, on, procs string // cgroup.controllers, cgroup.subtree_control, cgroup.procs
	kind            string // cgroup.type; "" means domain
	foreign         bool   // whether another user owns it
}

// tree creates groups, and gives this thread the user id that owns those that are not
// foreign.
func tree(t *testing.T, groups map[string]fake) string {
	t.Helper()
	root := t.TempDir()
	must.Do(t, os.Chmod(filepath.Dir(root), 0o711))
	for name, g := range groups {
		dir := filepath.Join(root, name)
		must.Do(t, os.MkdirAll(dir, 0o755))
		if g.kind == "" {
			g.kind = "domain"
		}
		for file, text := range map[string]string{
			"cgroup.controllers": g.have, "cgroup.subtree_control": g.on, "cgroup.procs": g.procs, "cgroup.type": g.kind,
		} {
			must.Do(t, os.WriteFile(filepath.Join(dir, file), []byte(strings.ReplaceAll(text, " ", "\n")), 0o644))
		}
	}
	for name, g := range groups { // once all of them exist
		for _, file := range []string{"cgroup.procs", "cgroup.subtree_control", ""} {
			own(t, filepath.Join(root, name, file), g.foreign)
		}
	}
	if os.Geteuid() == 0 {
		runtime.LockOSThread()
		must.Do(t, unix.Setfsuid(nobody))
		t.Cleanup(func() {
			must.Report(t, unix.Setfsuid(0))
			runtime.UnlockOSThread()
		})
	}
	return root
}

func own(t *testing.T, name string, foreign bool) {
	t.Helper()
	var err error
	switch {
	case foreign && os.Geteuid() == 0: // root owns it already
	case foreign:
		err = os.Chmod(name, 0o555)
		t.Cleanup(func() { _ = os.Chmod(name, 0o755) })
	case os.Geteuid() == 0:
		err = os.Chown(name, nobody, nobody)
	}
	must.Do(t, err)
}

func TestDelegatedTo(t *testing.T) {
	const all = "cpuset cpu io memory pids"
	yes := func(string) (bool, error) { return true, nil }
	no := func(string) (bool, error) { return false, nil }
	never := func(unit string) (bool, error) { t.Errorf("asked about %s", unit); return false, nil }
	tests := []struct {
		name   string
		groups map[string]fake
		top    string
		own    string
		ask    func(string) (bool, error)
		group  string // the delegated group
		can    []string
		why    string
	}{
		{
			name:   "scope of the user's systemd",
			groups: map[string]fake{app: {have: all, on: all}, app + "/a.scope": {have: all, procs: "4242"}},
			own:    app + "/a.scope", ask: yes, group: app + "/a.scope", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "two of three controllers",
			groups: map[string]fake{app + "/a.scope": {have: "memory pids", procs: "4242"}},
			own:    app + "/a.scope", ask: yes, group: app + "/a.scope", can: []string{"memory", "pids"},
			why: "controllers cpu are not delegated",
		},
		{
			name:   "undelegated unit, whose files are the user's",
			groups: map[string]fake{app: {have: all, on: all}, app + "/a.service": {have: all, procs: "4242"}},
			own:    app + "/a.service", ask: no, why: "a.service belongs to the user's systemd",
		},
		{
			name:   "group below an undelegated unit",
			groups: map[string]fake{app + "/a.service": {have: all, on: all}, app + "/a.service/b": {have: all, procs: "4242"}},
			own:    app + "/a.service/b", ask: no, why: "a.service belongs to the user's systemd",
		},
		{
			name:   "systemd does not answer",
			groups: map[string]fake{app + "/a.scope": {have: all, procs: "4242"}},
			own:    app + "/a.scope", ask: func(string) (bool, error) { return true, errors.New("no bus") }, why: "no bus",
		},
		{
			name:   "group made below the manager's own",
			groups: map[string]fake{"/user.slice/user@7.service": {have: all, on: all}, "/user.slice/user@7.service/a": {have: all, procs: "4242"}},
			own:    "/user.slice/user@7.service/a", ask: no, why: "user@7.service belongs",
		},
		{
			name: "login session",
			groups: map[string]fake{
				"/user.slice":                 {have: all, on: all, foreign: true},
				"/user.slice/session-3.scope": {have: all, procs: "4242", foreign: true},
			},
			own: "/user.slice/session-3.scope", ask: never, why: "is not this user's",
		},
		{
			name: "nothing above a unit is ours, writable or not",
			groups: map[string]fake{
				"/a.slice":         {have: all, on: all},
				"/a.slice/b.scope": {have: all, procs: "4242", foreign: true},
			},
			own: "/a.slice/b.scope", ask: never, why: "is not this user's",
		},
		{
			name: "service of the system with Delegate",
			groups: map[string]fake{
				"/system.slice":           {have: all, on: all, foreign: true},
				"/system.slice/a.service": {have: all, procs: "4242"},
			},
			own: "/system.slice/a.service", ask: never, group: "/system.slice/a.service", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "others live in the group",
			groups: map[string]fake{"/a.service": {have: all, procs: "17 4242"}},
			own:    "/a.service", ask: never, group: "/a.service", why: "holds 1 other processes",
		},
		{
			name:   "process of an outer id namespace",
			groups: map[string]fake{"/a.service": {have: all, procs: "0 4242"}},
			own:    "/a.service", ask: never, group: "/a.service", why: "holds 1 other processes",
		},
		{
			name:   "claimed before, by this very process",
			groups: map[string]fake{app + "/a.scope": {have: all, on: "memory pids cpu"}, app + "/a.scope/sbench-supervisor": {have: all, procs: "4242"}},
			own:    app + "/a.scope/sbench-supervisor", ask: never, group: app + "/a.scope", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "claimed before",
			groups: map[string]fake{app + "/a.scope": {have: all, on: "memory pids cpu"}, app + "/a.scope/sbench-supervisor": {have: all, procs: "0 4242"}},
			own:    app + "/a.scope/sbench-supervisor", ask: never, group: app + "/a.scope", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "a group that its parent passes nothing on to",
			groups: map[string]fake{"/a.service": {have: all}, "/a.service/main": {procs: "4242"}},
			own:    "/a.service/main", ask: never, group: "/a.service", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "the nearest of two",
			groups: map[string]fake{"/a": {have: all, on: all}, "/a/b": {have: all, procs: "4242"}},
			own:    "/a/b", ask: never, group: "/a/b", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "threaded group",
			groups: map[string]fake{"/a.service": {have: all, procs: "4242", kind: "threaded"}},
			own:    "/a.service", ask: never, why: `of type "threaded"`,
		},
		{
			name:   "mount that shows a part",
			groups: map[string]fake{"/b": {have: all, procs: "4242"}},
			top:    "/outer/a", own: "/outer/a/b", ask: never, group: "/b", can: []string{"memory", "pids", "cpu"},
		},
		{
			name:   "outside the part that is shown",
			groups: map[string]fake{"/b": {have: all, procs: "4242"}},
			top:    "/outer/a", own: "/outer/ab/b", ask: never, why: "not in the mounted hierarchy",
		},
		{
			name:   "outside the cgroup namespace",
			groups: map[string]fake{"/b": {have: all, procs: "4242"}},
			own:    "/../b", ask: never, why: "not in the mounted hierarchy",
		},
		{
			name:   "root of a cgroup namespace",
			groups: map[string]fake{"/": {have: all, procs: "4242"}},
			own:    "/", ask: never, group: "/", can: []string{"memory", "pids", "cpu"},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := tree(t, tt.groups)
			h := cgroup.At(root, tt.top).DelegatedTo(tt.own, self, tt.ask)
			can := slices.DeleteFunc(h.Controllers(), func(c string) bool { return c == "swap" })
			if !slices.Equal(can, tt.can) {
				t.Errorf("controllers %v, want %v", can, tt.can)
			}
			checkLack(t, h.Lack(), tt.why)
			want := ""
			if tt.group != "" {
				want = filepath.Join(tt.group, "x/y")
			}
			must.Equal(t, want, h.Group("/x/y").Path())
			if left, err := filepath.Glob(filepath.Join(root, tt.group, "sbench-probe-*")); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func checkLack(t *testing.T, l cgroup.Lack, why string) {
	t.Helper()
	if why == "" && l != (cgroup.Lack{}) || !strings.Contains(l.Why, why) {
		t.Errorf("lack %q, want %q", l.Why, why)
	}
	if (l.Why == "") != (l.Cure == "") {
		t.Errorf("lack %+v", l)
	}
}

// TestUndelegated: without delegation, Pids and what depends on it fail rather than
// report an empty group.
func TestUndelegated(t *testing.T) {
	h := cgroup.AtV1(t.TempDir()).DelegatedTo("/", self, nil)
	if c := h.Controllers(); len(c) > 0 {
		t.Errorf("controllers %v", c)
	}
	checkLack(t, h.Lack(), "version 1")
	g := h.Group("/x")
	_, err := g.Pids()
	must.Is(t, err, cgroup.ErrUndelegated)
	must.Is(t, g.KillAll(context.Background(), 0), cgroup.ErrUndelegated)
	must.Is(t, g.Signal(unix.SIGTERM, 0), cgroup.ErrUndelegated)
	if s, err := g.Stats(); s != (cgroup.Stats{}) || err != nil {
		t.Errorf("stats %+v, %v", s, err)
	}
	must.Report(t, errors.Join(g.Remove(), h.Claim()))
}
