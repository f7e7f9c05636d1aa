package family

import (
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/hidden"
	"github.com/securebench/sbench/compiler/schema"
)

// TerminalTask asks for changes to a workspace. A checker judges its final state.
func TerminalTask() *compiler.Family {
	return &compiler.Family{
		Name: "terminal_task", CandidateKind: compiler.CandidateWorkspace,
		Doc: "Bring a workspace into a state. A checker then looks at a copy of it.",
		Input: &schema.Object{Fields: []schema.Field{
			schema.Required("instructions", schema.Text("What to do.")),
			schema.Optional("context", textOrObject("What the instructions are about.")),
		}},
		Eval: &schema.Object{Fields: slices.Concat([]schema.Field{
			schema.Optional("checker", compiler.CheckerSchema()),
			compiler.SplitField(),
			schema.Optional("run_tests", schema.Open("A file that the checker runs: {\"path\", \"mount\", \"read_only\"}.")),
			schema.Optional("test_files", schema.Open("A file or directory that the checker uses: {\"path\", \"mount\", \"read_only\"}.")),
		}, schema.Fields(TerminalEval{}, nil), []schema.Field{
			schema.Optional("expected_state", anything("What the workspace should be like, for people.")),
		})},
		Inputs:  []string{"checker", "run_tests", "test_files", "needed_commands", "services", "expected_changes", "trusted_paths"},
		Machine: true,
		Check: func(c *schema.Checker, _, eval document.Value) {
			compiler.OneCheck(c, eval, "checker", "a command, or the path of a pytest file or script below asset_roots.eval; or give split", "run_tests", "test_files", "needed_commands", "services")
		},
	}
}

// TerminalEval is what is needed to verify a terminal_task. It prints as
// "<redacted>".
type TerminalEval struct {
	hidden.Fields
	Checker         compiler.Checker
	NeededCommands  []string  `key:"needed_commands" rule:"null" enum:"chroot" items:"The only one known is \"chroot\"." doc:"Dangerous commands that the checker needs and the tester has to allow."`
	Services        []Service `key:"services" rule:"null" items:"A service." doc:"Processes that run beside the checker, started one after the other before it."`
	ExpectedChanges []string  `key:"expected_changes" rule:"null absolute" items:"An absolute path." doc:"environment.candidate machine only: paths, absolute, of the image's programs and settings that the task is about. The checker sees them as the candidate left them."`
	TrustedPaths    []string  `key:"trusted_paths" rule:"null absolute" items:"An absolute path." doc:"environment.candidate machine only: paths, absolute, at and below which the checker sees the image's files, whatever the candidate changed."`
	// Files are the eval files to put into the verifier's copy of the workspace, sorted by mount.
	Files []compiler.FileRef
}

// A Service is a process that runs beside a checker.
type Service struct {
	Command schema.Command `key:"command" rule:"required" doc:"The command of the service."`
	Ready   schema.Command `key:"ready" doc:"A command that succeeds as soon as the service can be used. It is tried again until then."`
	Timeout time.Duration  `key:"timeout_seconds" rule:"null" doc:"How long it may take until the service is ready, by default a minute."`
}

// TerminalTaskOf returns what is needed to verify a task of the family.
func TerminalTaskOf(t *compiler.Task) TerminalEval {
	eval := compiler.EvalOf[TerminalEval](t)
	eval.Checker = t.Checker()
	eval.NeededCommands = slices.Compact(eval.NeededCommands)
	eval.Files = slices.DeleteFunc(t.Files(), func(f compiler.FileRef) bool { return f.Lane != compiler.EvaluationInputs })
	slices.SortFunc(eval.Files, func(a, b compiler.FileRef) int { return strings.Compare(a.Mount, b.Mount) })
	return eval
}
