package verifiers

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"github.com/securebench/sbench/compiler"
)

const (
	// withServices names a program in the sandbox of a checker with services.
	withServices = "with-services"
	// serviceTimeout is how long a service may take to be ready if its task does not say.
	serviceTimeout = time.Minute
	// serviceInterval is the time between two attempts of its ready command.
	serviceInterval = 200 * time.Millisecond
)

// service is a service as with-services reads it.
type service struct {
	Args  []string      `json:"args"`
	Ready []string      `json:"ready"` // empty for none
	Wait  time.Duration `json:"wait"`
}

// serviceArgs returns the command line that starts services and then runs args.
func serviceArgs(services []compiler.Service, args []string) ([]string, error) {
	var all []service
	for _, s := range services {
		all = append(all, service{s.Command.Args(), s.Ready.Args(), cmp.Or(s.Timeout, serviceTimeout)})
	}
	text, err := json.Marshal(all)
	return append([]string{sbenchDir + "/" + withServices, string(text)}, args...), err
}

// startServices starts services, waits until each is ready, and becomes the command that
// follows. They run until the sandbox ends.
func startServices(args []string) error {
	var services []service
	if len(args) < 2 {
		return errors.New("no services and no command")
	}
	if err := json.Unmarshal([]byte(args[0]), &services); err != nil {
		return err
	}
	for _, s := range services {
		if err := s.start(); err != nil {
			return err
		}
	}
	program, err := exec.LookPath(args[1])
	if err != nil {
		return err
	}
	return syscall.Exec(program, args[1:], os.Environ())
}

// start starts the service, without input and output, and waits until it is ready.
func (s service) start() error {
	cmd := exec.Command(s.Args[0], s.Args[1:]...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("service: %w", err)
	}
	if len(s.Ready) == 0 {
		return nil
	}
	for end := time.Now().Add(s.Wait); ; time.Sleep(serviceInterval) {
		if exec.Command(s.Ready[0], s.Ready[1:]...).Run() == nil {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the service %q is not ready after %s", s.Args, s.Wait)
		}
	}
}
