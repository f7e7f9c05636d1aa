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
	"syscall"
	"time"

	"github.com/securebench/sbench/runtime"
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
}

// Beside returns a command line that starts services, each as soon as the one before is ready, and then
// becomes args, and the mount that it needs. Without args it prints a line when all are ready, and ends
// after them. Without services, Beside returns args and no mount.
func Beside(services []Service, args []string) ([]string, []runtime.Mount, error) {
	if len(services) == 0 {
		return args, nil, nil
	}
	own, err := mount(program)
	if err != nil {
		return nil, nil, err
	}
	text, err := json.Marshal(services)
	return append([]string{program, string(text)}, args...), []runtime.Mount{own}, err
}

// start does in a sandbox what [Beside] says, for the arguments after the name of the program. It
// returns only errors.
func start(args []string) error {
	var services []Service
	if len(args) == 0 {
		return errors.New("no services")
	}
	if err := json.Unmarshal([]byte(args[0]), &services); err != nil {
		return err
	}
	for _, s := range services {
		if err := s.start(); err != nil {
			return err
		}
	}
	if len(args) == 1 {
		return awaitChildren()
	}
	found, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	return syscall.Exec(found, args[1:], os.Environ())
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
func (s Service) start() error {
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	if s.Once {
		cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
		return cmd.Run()
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if len(s.Ready) == 0 {
		proc.Settle(context.Background(), proc.Used)
		return nil
	}
	wait := cmp.Or(s.Wait, defaultWait)
	for end := time.Now().Add(wait); ; time.Sleep(interval) {
		if exec.Command(s.Ready[0], s.Ready[1:]...).Run() == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the service %q is not ready after %s", s.Args, wait)
		}
	}
}
