// Package service starts processes beside those of a sandbox: services in the sandbox itself,
// and sidecars in sandboxes of their own that share its network namespace.
package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/passwd"
	"github.com/securebench/sbench/runtime/proc"
)

// Name is the name under which sbench's program starts services in a sandbox; see [Inside].
const Name = "with-services"

const (
	program = "/opt/sbench/" + Name
	// interval is the time between two attempts of a ready command.
	interval = 200 * time.Millisecond
)

// Failed is the exit code if a service could not be started.
const Failed = 126

const defaultWait = time.Minute // Service.Wait

// A Service is a process that runs until its sandbox ends, without input and output.
type Service struct {
	Args  []string      `json:"args"`
	Ready []string      `json:"ready"` // succeeds as soon as the service can be used; without one, the service is ready when it has settled
	Wait  time.Duration `json:"wait"`  // until it is ready; 0 means a minute
	Once  bool          `json:"once"`  // it has to end, with success, before what follows starts
	// User is the process's user, as in runtime.Config; "" is the sandbox's user. Any other needs CAP_SETUID, CAP_SETGID
	// and CAP_CHOWN in the sandbox.
	User string `json:"user"`
}

// servicesVariable holds the services until with-services has read them.
const servicesVariable = "SBENCH_SERVICES"

// Beside returns a command line that starts services, each as soon as the one before is ready, and then becomes args.
// It adds the environment and the mount that the line needs to cfg. Without args, the line prints that all services are
// ready, and ends after them. Without services, Beside returns args alone. The services are in the environment, which
// other users of the host cannot read.
func Beside(services []Service, args []string, cfg *runtime.Config) ([]string, error) {
	if len(services) == 0 {
		return args, nil
	}
	own, err := mount(program)
	if err != nil {
		return nil, err
	}
	for _, s := range services {
		if s.User != "" {
			cfg.Become = append(slices.Clip(cfg.Become), s.User)
		}
	}
	text, err := json.Marshal(services)
	cfg.Env = append(slices.Clone(cfg.Env), servicesVariable+"="+string(text))
	cfg.Mounts = append(slices.Clone(cfg.Mounts), own)
	return append([]string{program}, args...), err
}

// commandVariable holds a command until its shell has read it.
const commandVariable = "SBENCH_COMMAND"

// HideCommand moves the command that a shell gets in args to a variable for its environment, which other users
// of the host cannot read. Other arguments stay as they are.
func HideCommand(args []string) (hidden, env []string) {
	if len(args) != 3 || args[0] != "sh" || args[1] != "-c" {
		return args, nil
	}
	read := "c=$" + commandVariable + "; unset " + commandVariable + `; eval "unset c; $c"`
	return []string{"sh", "-c", read}, []string{commandVariable + "=" + args[2]}
}

// start does in a sandbox what [Beside] says. It returns only errors.
func start(args []string) error {
	var services []Service
	if err := json.Unmarshal([]byte(os.Getenv(servicesVariable)), &services); err != nil {
		return err
	}
	var all users
	if text := os.Getenv(runtime.UsersVariable); text != "" {
		if err := json.Unmarshal([]byte(text), &all); err != nil {
			return err
		}
	}
	if err := errors.Join(os.Unsetenv(servicesVariable), os.Unsetenv(runtime.UsersVariable)); err != nil {
		return err
	}
	for _, s := range services {
		if err := s.start(all); err != nil {
			return err
		}
	}
	if len(args) == 0 {
		return awaitChildren()
	}
	found, err := exec.LookPath(args[0])
	if err = errors.Join(err, all.becomeOwn()); err != nil {
		return err
	}
	return syscall.Exec(found, args, os.Environ())
}

// users are the users that this process can become, by the names in runtime.Config.Become; the sandbox's user is "". They
// are nil if this process started as the sandbox's user.
type users map[string]passwd.User

// becomeOwn gives this process, its input and its output to the sandbox's user.
func (all users) becomeOwn() error {
	u, ok := all[""]
	if !ok {
		return nil
	}
	var groups []int
	for _, g := range u.Groups {
		groups = append(groups, int(g))
	}
	uid, gid := int(u.UID), int(u.GID)
	for _, f := range []*os.File{os.Stdin, os.Stdout, os.Stderr} {
		_ = f.Chown(uid, gid) // it may be the host's /dev/null
	}
	return errors.Join(syscall.Setgroups(groups), syscall.Setgid(gid), syscall.Setuid(uid))
}

// command returns the command that args are, hidden, as the user.
func (all users) command(name string, args []string) *exec.Cmd {
	args, env := HideCommand(args)
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env, cmd.SysProcAttr = append(os.Environ(), env...), &syscall.SysProcAttr{}
	if u, ok := all[name]; ok {
		if os.Getenv("HOME") == all[""].Home { // the image gives none
			cmd.Env = append(cmd.Env, "HOME="+u.Home)
		}
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: u.UID, Gid: u.GID, Groups: u.Groups}
	}
	return cmd
}

// awaitChildren prints that all services are ready, and waits for the children. As the first process
// of a sandbox, this process gets all orphans.
func awaitChildren() error {
	if _, err := os.Stdout.WriteString("ready\n"); err != nil {
		return err
	}
	for {
		if _, err := syscall.Wait4(-1, nil, 0, nil); err != nil && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("the services have ended: %w", err)
		}
	}
}

// start starts the service and waits until it is ready.
func (s Service) start(all users) error {
	cmd := all.command(s.User, s.Args)
	if s.Once {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		return cmd.Run()
	}
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if len(s.Ready) == 0 {
		proc.Settle(context.Background(), nil, proc.Used)
		return nil
	}
	wait := cmp.Or(s.Wait, defaultWait)
	for end := time.Now().Add(wait); ; time.Sleep(interval) {
		if isReady(all.command(s.User, s.Ready), end) {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the service %q is not ready after %s", s.Args, wait)
		}
	}
}

// isReady reports whether a ready command succeeds. A command that has not ended at the time end is killed.
func isReady(cmd *exec.Cmd, end time.Time) bool {
	cmd.SysProcAttr.Setpgid = true
	if cmd.Start() != nil {
		return false
	}
	late := time.AfterFunc(time.Until(end), func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
	defer late.Stop()
	return cmd.Wait() == nil
}
