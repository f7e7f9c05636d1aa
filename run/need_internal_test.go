package run

import (
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/domain"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/run/admission"
)

// TestNeed: admission counts every sandbox that runs at the same time, and what sbench holds for its connections.
func TestNeed(t *testing.T) {
	const mib = 1 << 20
	row := func(environment, eval string) string {
		return `{"id": "t", "family": "terminal_task", "input": {"instructions": "x"}, "environment": {"image": "x", "resources": {"memory": "100m", "pids": 10}` + environment + `}, "eval": {` + eval + `}}` + "\n"
	}
	const checker, split = `"checker": {"command": "true"}`, `"split": {"questions": 1, "driver": {"path": "d"}, "oracle": {"path": "o"}}`
	held := proxy.EgressLimits{}.SandboxBytes()
	if least := int64(64 * 2 * proxy.SocketBytes); held < least { // a proxy's connections with a socket on each side
		t.Errorf("a proxy holds %d bytes, want at least %d", held, least)
	}
	for _, tt := range []struct {
		name, row string
		reaches   []domain.Domain
		provider  *harness.CommandProvider
		want      admission.Need
		spare     int64 // disk that one more run of the checker takes
	}{
		{"a sandbox", row("", checker), nil, nil, admission.Need{Memory: 100 * mib, Pids: 10, Disk: 3032 * mib}, 2032 * mib},
		{"a sidecar beside it", row(`, "sidecars": [{"name": "s", "image": "y"}]`, checker), nil, nil, admission.Need{Memory: 200 * mib, Pids: 20, Disk: 3064 * mib}, 2064 * mib},
		{"processes that are kept", row(`, "keep_processes": true`, checker), nil, nil, admission.Need{Memory: 200 * mib, Pids: 20, Disk: 5064 * mib}, 2032 * mib},
		{"an oracle beside the driver", row("", split), nil, nil, admission.Need{Memory: 1124 * mib, Pids: 266, Disk: 3064 * mib}, 2032 * mib},
		{"a proxy beside it", row("", checker), make([]domain.Domain, 1), nil, admission.Need{Memory: 100*mib + held, Pids: 10, Disk: 3032 * mib}, 2032 * mib},
		{"a relay, too", row("", checker), nil, &harness.CommandProvider{}, admission.Need{Memory: 100*mib + held + relay.HostLimits{}.SandboxBytes(), Pids: 10, Disk: 3032 * mib}, 2032 * mib},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config{Plan: Plan{Inputs: Inputs{Tester: &testerfile.File{}}}}
			c.Producer, c.Egress.Domains = harness.Command{Provider: tt.provider}, tt.reaches
			c.Tester.Runtime.Limits.WorkspaceBytes = 1000 * mib
			task, _ := packtest.Task(t, tt.row)
			if got := c.need(task); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
			must.Equal(t, tt.spare, c.sandboxNeed(task).Disk)
		})
	}
}

// TestHostNotMeasured: that the free space cannot be measured is no bug of sbench.
func TestHostNotMeasured(t *testing.T) {
	s := &session{}
	s.cfg.Output = filepath.Join(t.TempDir(), "removed")
	must.Is(t, s.makeAttempts(t.Context()), ErrInfrastructure)
}

// TestNoneLeft: if no task can be prepared, the reason of each is told.
func TestNoneLeft(t *testing.T) {
	p := Plan{Inputs: Inputs{Pack: &compiler.Pack{TasksPath: "tasks.jsonl"}}}
	p.LeftOut = []LeftOut{{Task: "a", Reason: "no image"}, {Task: "b", Reason: "no network"}}
	must.Equal(t, "none of 2 tasks can be prepared\na: no image\nb: no network", p.noneLeft().Message)
}
