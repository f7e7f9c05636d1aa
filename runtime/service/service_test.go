package service_test

import (
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
)

func TestMain(m *testing.M) {
	service.Inside()
	containerdtest.Enter()
	m.Run()
}

// TestServiceUser: a service runs as its own user, and then the command as the sandbox's, which has no further powers and
// can open its output again.
func TestServiceUser(t *testing.T) {
	run, image := containerdtest.NewRun(t, containerdtest.Open(t))
	cfg := runtime.Config{
		Name: "users", Image: image, User: "1000:1000", Limits: runtime.DefaultLimits(), Workdir: "/tmp",
		Capabilities: []string{"CAP_CHOWN", "CAP_SETGID", "CAP_SETUID"},
	}
	const who = "echo $(id -u):$(id -g):$(id -G):$HOME"
	services := []service.Service{
		{Args: []string{"sh", "-c", who + " >/tmp/root"}, User: "root", Once: true},
		{Args: []string{"sh", "-c", who + " >/tmp/mail"}, User: "mail", Once: true},
		{Args: []string{"sh", "-c", who + " >/tmp/own"}, Once: true},
		{Args: []string{"sleep", "60"}, Ready: []string{"sh", "-c", "test $(id -u) = 8"}, User: "mail"},
	}
	args, err := service.Beside(services, []string{"sh", "-c", "cat /tmp/root /tmp/mail /tmp/own >/dev/stdout; " + who + "; grep -E 'CapEff|CapPrm' /proc/self/status; env | grep -c SBENCH_"}, &cfg)
	must.Do(t, err)
	sandbox, err := run.Create(t.Context(), cfg)
	must.Do(t, err)
	defer func() { must.Report(t, sandbox.Close(t.Context())) }()
	exit, err := sandbox.Exec(t.Context(), runtime.Process{Args: args, Wall: time.Minute})
	must.Do(t, err)
	want := []string{"0:0:0:/root", "8:8:8:/var/mail", "1000:1000:1000:/", "1000:1000:1000:/", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000", "0"}
	must.Equal(t, strings.Join(want, "\n")+"\n", string(exit.Stdout.Bytes()))
	must.Equal(t, "", string(exit.Stderr.Bytes()))
}
