package harness

import (
	"fmt"
	"strings"

	"github.com/securebench/sbench/compiler"
)

// Prompt returns the instructions for an agent, the same for every agent: the task's public
// input, and a paragraph on how the result is collected. taskFile is relative to the
// workspace.
func Prompt(r Request, taskFile string) (string, error) {
	var b strings.Builder
	for _, v := range r.Task.Input() {
		text, err := v.Plain()
		if err != nil {
			return "", fmt.Errorf("prompt of task %q: %w", r.Task.ID(), err)
		}
		name := strings.ReplaceAll(v.Name, "_", " ")
		fmt.Fprintf(&b, "## %s%s\n\n%s\n\n", strings.ToUpper(name[:1]), name[1:], strings.TrimRight(text, "\n"))
	}
	workdir := r.Task.Environment().Workdir
	fmt.Fprintf(&b, "## How your result is collected\n\nYou work alone in a sandbox; nobody answers questions, and the network reaches nothing but what the task allows. "+
		"The task is also in %s/%s, and its public files are in %s. %s Do not end before the result is there.\n", workdir, taskFile, workdir, strings.TrimSpace(collected(r.Kind, workdir)+" "+r.Task.Rules()))
	return b.String(), nil
}

// collected tells the agent where to leave its result.
func collected(kind compiler.CandidateKind, workdir string) string {
	switch kind {
	case compiler.CandidateText:
		return fmt.Sprintf("Write your final answer, and nothing else, to the file %s/%s.", workdir, textFile)
	case compiler.CandidateCode:
		return fmt.Sprintf("Write the complete program, with all imports and definitions it needs, to the file %s/candidate.py; it is imported and tested.", workdir)
	case compiler.CandidatePatch:
		return fmt.Sprintf("Change the repository in %s in place. The difference between its files and the original commit is your result, whether you commit or not; ignored files do not count. Tests are run that you do not see.", workdir)
	}
	return fmt.Sprintf("Leave the directory %s in the state that the task asks for. It is checked when you have ended; background processes are gone by then.", workdir)
}
