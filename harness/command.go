package harness

import (
	"context"

	"github.com/securebench/sbench/runtime"
)

// Command is a harness that runs a command from the tester file in the task's image, with
// the variables of harness.env.
type Command struct {
	Args     []string
	TaskFile string // relative to the workspace
	Mounts   []runtime.Mount
}

// Produce runs the command. A text candidate is its standard output.
func (c Command) Produce(ctx context.Context, e Engine, r Request) (Result, error) {
	way, err := openWay(r, nil)
	if err != nil {
		return Result{}, err
	}
	result, err := production{
		engine: e, request: r, taskFile: c.TaskFile, process: runtime.Process{Args: c.Args},
		env: append(way.env(), r.Env...), mounts: append(way.mounts(), c.Mounts...), network: way.network(),
	}.run(ctx)
	return way.close(result, err)
}
