package run

import (
	"io"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/workspace"
)

// networked says whether a harness of this run may reach anything.
func (c Config) networked() bool {
	_, agent := c.Producer.(*harness.Agent)
	return agent || len(c.Egress.Domains) > 0
}

// openEgress makes the run's egress log, if anything may leave a sandbox.
func (r *attemptRun) openEgress() (io.Closer, error) {
	if !r.cfg.networked() {
		return io.NopCloser(nil), nil
	}
	f, err := os.OpenFile(filepath.Join(r.cfg.Output, egressFile), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	r.egress = proxy.NewLog(clean{f, r.secrets})
	return f, nil
}

// clean writes without secrets. Each Write is a text of its own, such as a line.
type clean struct {
	w io.Writer
	r redactor
}

func (c clean) Write(p []byte) (int, error) {
	if _, err := io.WriteString(c.w, c.r.text(string(p))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// watch adds to an agent's request where its events go: to a file of the
// attempt's own and to the progress. The closer is to be called after it.
func (r *attemptRun) watch(task *compiler.Task, request *harness.Request) (io.Closer, error) {
	if _, agent := r.cfg.Producer.(*harness.Agent); !agent {
		return io.NopCloser(nil), nil
	}
	dir := filepath.Join(r.cfg.Output, logsDir, workspace.TaskDir(task.ID()), "1")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f, err := os.Create(filepath.Join(dir, traceFile))
	if err != nil {
		return nil, err
	}
	secrets := r.secrets.with(task.Secrets()...)
	request.Trace = clean{f, secrets}
	request.Said = func(text string) {
		r.emit(Event{Kind: AgentOutput, Task: task.ID(), Detail: secrets.text(text)})
	}
	return f, nil
}
