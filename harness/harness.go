// Package harness runs a producer of candidates in one sandbox, and extracts the candidate
// once every process in the sandbox is dead or, for a task that keeps them, suspended.
//
// A producer receives only a [Request], so it has no access to evaluation inputs or hidden
// values. There are two producers here: [Command] runs a command of the tester file, and [Agent]
// installs and runs an agent that a file of the directory agents describes ([CLI]). Both share the
// main path, production.run. Package predictions has a third, which hands in existing answers.
package harness

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/securebench/sbench/candidate"
	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/service"
	"github.com/securebench/sbench/workspace"
)

// Engine is what a producer needs from the runtime.
type Engine = candidate.Engine

// A Producer makes one candidate for one task.
type Producer interface {
	// Produce runs one attempt in sandboxes of e. An error means that nothing was measured. A
	// fault of the agent is a Failure in the Result.
	Produce(ctx context.Context, e Engine, r Request) (Result, error)
	// Identity describes the producer. It is the same for all tasks.
	Identity() Identity
}

// An Identity describes a producer to the run and in records.
type Identity struct {
	Type    string // in records; "" means the tester file's harness.type
	Version string // of an agent's CLI; "" for none
	// Digest covers the files that the producer shows the agent; "" if there are none. If Type is
	// set, it covers the files that the candidates come from.
	Digest     string
	Relay      *relay.Config // to the provider of its model; nil for none
	Prompted   bool          // the process reads [Prompt], which names TaskFile, and reports events
	TaskFile   string
	Descriptor []byte // of an agent that the tester brought, else nil
}

// A Request describes one attempt to a [Producer].
type Request struct {
	Task           compiler.AgentView
	Kind           compiler.CandidateKind
	Plan           workspace.Plan // what the agent may see, and where
	Image          runtime.Image
	Before         *candidate.Candidate // the harness begins with its machine and workspace; nil for the image's
	Sidecars       []service.Sidecar    // beside the harness
	Timeout        time.Duration        // of the harness's process
	Limits         runtime.Limits
	WorkspaceBytes int64    // bounds the workspace, and separately the changes to the image's files
	OutputBytes    int64    // bounds what the record has of each stream
	Env            []string // NAME=value of harness.env
	Attempt        int      // of this task, from 1
	Egress         Egress
	// Trace, if not nil, receives an agent's output as it is written, one line per Write.
	// OnStep, if not nil, receives the text of each [Step] that has a text. One goroutine calls
	// both.
	Trace  io.Writer
	OnStep func(text string)
	// Judge is called for a task with Environment.KeepProcesses once the result has its candidate, while
	// what the harness left in its sandbox runs without network access. An error ends Produce.
	Judge func(result Result, left runtime.Sandbox) error
	// Dest is an existing, empty host directory. It receives the workspace as the agent left
	// it, without what a candidate must not contain.
	Dest string
}

// Result is what [Producer.Produce] returns.
type Result struct {
	Exit      runtime.Exit
	Candidate candidate.Candidate
	Failure   *candidate.Failure // why no candidate could be extracted; nil if there is one
	// Ended says how the harness ended badly, such as by its time limit; nil if it ended well. The
	// work that it had done by then is still the candidate, unless there is a Failure.
	Ended  *candidate.Failure
	Egress *EgressTotals // nil if the sandbox could reach nothing
	Agent  *About        // nil unless the producer is an Agent
}

// Prompt returns the instructions for an agent: the task's public input, and a paragraph on how the
// result is collected. They are the same for every agent. taskFile is relative to the workspace.
func Prompt(r Request, taskFile string) string {
	var b strings.Builder
	for _, v := range r.Task.Input {
		name := strings.ReplaceAll(v.Name, "_", " ")
		fmt.Fprintf(&b, "## %s%s\n\n%s\n\n", strings.ToUpper(name[:1]), name[1:], strings.TrimRight(v.Plain(), "\n"))
	}
	workdir := r.Task.Environment.Dir()
	fmt.Fprintf(&b, "## How your result is collected\n\nYou work alone in a sandbox; nobody answers questions, and the network reaches nothing but what the task allows. "+
		"The task is also in %s, and its public files are in %s. %s Do not end before the result is there.\n", r.taskPath(taskFile), workdir, strings.TrimSpace(collected(r)+" "+r.Task.Rules))
	if format := r.Task.AnswerFormat; format != "" {
		fmt.Fprintf(&b, "\n%s\n", format)
	}
	return b.String()
}

// collected tells the agent where to leave its result.
func collected(r Request) string {
	workdir := r.Task.Environment.Dir()
	switch r.Kind {
	case compiler.CandidateText:
		return fmt.Sprintf("Write your final answer to the file %s/%s.", workdir, textFile)
	case compiler.CandidateCode:
		return fmt.Sprintf("Write the complete program, with all imports and definitions it needs, to the file %s/%s; it is loaded and tested.", workdir, r.Task.CodeFile)
	case compiler.CandidatePatch:
		return fmt.Sprintf("Change the repository in %s in place. The difference between its files and the original commit is your result, whether you commit or not; ignored files do not count. Tests are run that you do not see.", workdir)
	}
	background := "background processes are gone by then"
	if r.Task.Environment.KeepProcesses {
		background = "what you leave in the background runs on, without network access"
	}
	return fmt.Sprintf("Leave the directory %s in the state that the task asks for. It is checked when you have ended; %s.", workdir, background)
}
