package run

import (
	"testing"

	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/internal/test/packtest"
	"github.com/securebench/sbench/run/admission"
)

// TestNeed: admission counts every sandbox that runs at the same time.
func TestNeed(t *testing.T) {
	const mib = 1 << 20
	row := func(environment, eval string) string {
		return `{"id": "t", "family": "terminal_task", "input": {"instructions": "x"}, "environment": {"image": "x", "resources": {"memory": "100m", "pids": 10}` + environment + `}, "eval": {` + eval + `}}` + "\n"
	}
	const checker, split = `"checker": {"command": "true"}`, `"split": {"questions": 1, "driver": {"path": "d"}, "oracle": {"path": "o"}}`
	for _, tt := range []struct {
		name, row string
		want      admission.Need
	}{
		{"a sandbox", row("", checker), admission.Need{Memory: 100 * mib, Pids: 10, Disk: 1032 * mib}},
		{"a sidecar beside it", row(`, "sidecars": [{"name": "s", "image": "y"}]`, checker), admission.Need{Memory: 200 * mib, Pids: 20, Disk: 1064 * mib}},
		{"an oracle beside the driver", row("", split), admission.Need{Memory: 1124 * mib, Pids: 266, Disk: 2064 * mib}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := config{Plan: Plan{Inputs: Inputs{Tester: &testerfile.File{}}}}
			c.Tester.Runtime.Limits.WorkspaceBytes = 1000 * mib
			task, _ := packtest.Task(t, tt.row)
			if got := c.need(task); got != tt.want {
				t.Errorf("got %+v, want %+v", got, tt.want)
			}
		})
	}
}
