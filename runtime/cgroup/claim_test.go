package cgroup_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime/cgroup"
)

// userVar, if set, makes the test binary act as the user of a delegated group.
const userVar = "SBENCH_TEST_CGROUP_USER"

func TestMain(m *testing.M) {
	if os.Getenv(userVar) == "" {
		os.Exit(m.Run())
	}
	if err := json.NewEncoder(os.Stdout).Encode(useDelegated()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// account reports what the user of a delegated group could do with it.
type account struct {
	Before, After []string // controllers
	Lack          cgroup.Lack
	Group         string // of the sandbox
	Own           string // this process's group, after Claim
	Again         string // as Group, from hierarchies delegated again after Claim
	MemoryMax     string
	Killed        bool
	Errors        []string
}

// useDelegated claims the delegated group, creates and limits a group below it, and
// kills and removes that group, as a run does.
func useDelegated() (a account) {
	try := func(what string, err error) {
		if err != nil {
			a.Errors = append(a.Errors, what+": "+err.Error())
		}
	}
	h, err := cgroup.Usable()
	try("usable", err)
	a.Before, a.Lack = h.Controllers(), h.Lack()
	try("claim", h.Claim())
	try("second claim", h.Claim())
	g := h.Group("/sandbox")
	a.Group = g.Path()
	dir := filepath.Join("/sys/fs/cgroup", a.Group)
	try("make", os.Mkdir(dir, 0o755))
	try("limit", os.WriteFile(filepath.Join(dir, "memory.max"), []byte("8388608"), 0))
	limit, err := os.ReadFile(filepath.Join(dir, "memory.max"))
	try("read the limit", err)
	a.MemoryMax = strings.TrimSpace(string(limit))
	a.Killed = killOne(g, dir, try)
	try("remove", g.Remove())
	text, err := os.ReadFile("/proc/self/cgroup")
	try("own group", err)
	a.Own = strings.TrimSpace(strings.TrimPrefix(string(text), "0::"))
	again, err := cgroup.Usable()
	try("usable again", err)
	a.After, a.Again = again.Controllers(), again.Group("/sandbox").Path()
	return a
}

func killOne(g *cgroup.Group, dir string, try func(string, error)) bool {
	cmd := exec.Command("sleep", "1000")
	try("start", cmd.Start())
	if cmd.Process == nil {
		return false
	}
	try("move", os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(cmd.Process.Pid)), 0))
	ended := make(chan struct{})
	go func() {
		_ = cmd.Wait() // fails, since a signal ends the process
		close(ended)
	}()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	try("kill", g.KillAll(ctx, 0))
	select {
	case <-ended:
		return cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGKILL
	case <-ctx.Done():
		try("end", errors.Join(ctx.Err(), cmd.Process.Kill()))
		return false
	}
}

// TestDelegatedForReal delegates a real group to another user, as whom this binary then
// runs useDelegated.
func TestDelegatedForReal(t *testing.T) {
	h, err := cgroup.Mounted()
	if err != nil || h.Mode() != cgroup.V2 || os.Geteuid() != 0 {
		t.Skipf("needs root and version 2 alone: mode %s, %v", h.Mode(), err)
	}
	have := h.Controllers()
	name, dir := handOver(t, h)
	f, err := os.Open(dir)
	must.Do(t, err)
	defer func() { _ = f.Close() }()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), userVar+"=1")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Credential:  &syscall.Credential{Uid: nobody, Gid: nobody},
		UseCgroupFD: true, CgroupFD: int(f.Fd()),
	}
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var a account
	must.Do(t, json.Unmarshal(out, &a))
	slices.Sort(have)
	slices.Sort(a.Before)
	slices.Sort(a.After)
	if len(a.Errors) > 0 || !slices.Equal(a.Before, have) || !slices.Equal(a.After, have) || a.Lack != (cgroup.Lack{}) {
		t.Errorf("host has %v; %+v", have, a)
	}
	if a.Group != name+"/sandbox" || a.Again != a.Group || a.Own != name+"/sbench-supervisor" || a.MemoryMax != "8388608" || !a.Killed {
		t.Errorf("%+v", a)
	}
}

// handOver creates a group and delegates it to the user nobody, as cgroups(7) describes.
func handOver(t *testing.T, h cgroup.Hierarchies) (name, dir string) {
	t.Helper()
	name = fmt.Sprintf("/sbench-test-%d-%d", os.Getpid(), time.Now().UnixNano())
	dir = filepath.Join("/sys/fs/cgroup", name)
	for _, c := range h.Controllers() {
		if c == "swap" {
			continue
		}
		must.Do(t, os.WriteFile("/sys/fs/cgroup/cgroup.subtree_control", []byte("+"+c), 0))
	}
	must.Do(t, os.Mkdir(dir, 0o755))
	t.Cleanup(func() { must.Report(t, h.Group(name).Remove()) })
	for _, f := range []string{"", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		must.Do(t, os.Chown(filepath.Join(dir, f), nobody, nobody))
	}
	return name, dir
}
