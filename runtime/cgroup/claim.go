package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Claim prepares the group that [Usable] found for child groups with limits: it moves this
// process, or in a container all processes, into a child group, and enables the controllers.
// Call it before starting any process and before entering a user or PID namespace. Calling
// it again changes nothing. It does nothing for the host's root outside of containers, or if
// no group is delegated.
func (h Hierarchies) Claim() error {
	if h.to == nil || len(h.to.can) == 0 {
		return nil
	}
	if err := h.claim(ownGroup(), os.Getpid()); err != nil {
		return fmt.Errorf("claim control group %s: %w", h.to.group, err)
	}
	return nil
}

func (h Hierarchies) claim(own string, self int) error {
	dir := filepath.Join(h.unified, h.to.group)
	if group, _ := cutTop(own, h.top); group == h.to.group {
		home := filepath.Join(dir, supervisor)
		if err := os.Mkdir(home, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return err
		}
		movers := []string{strconv.Itoa(self)}
		if h.to.all {
			movers = words(dir, "cgroup.procs")
		}
		for _, pid := range movers {
			if err := write(home, "cgroup.procs", pid); err != nil && !(h.to.all && errors.Is(err, unix.ESRCH)) { // it has ended
				return err
			}
		}
	}
	on := words(dir, "cgroup.subtree_control")
	for _, c := range h.to.can {
		if slices.Contains(on, c) {
			continue
		}
		if err := write(dir, "cgroup.subtree_control", "+"+c); err != nil {
			return fmt.Errorf("pass on %s: %w", c, err)
		}
	}
	return inProbe(dir, func(probe string) error {
		for _, c := range h.to.can { // "max" changes nothing in a new group, but shows that limits can be set
			if err := write(probe, c+".max", "max"); err != nil {
				return err
			}
		}
		return nil
	})
}

// write writes to an existing file; it never creates one.
func write(dir, name, text string) error {
	f, err := os.OpenFile(filepath.Join(dir, name), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
