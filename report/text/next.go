package text

import (
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run"
)

// WriteNext writes which tasks of a run were not prepared, and what to do next. args is the command line
// without the program, dir the pack's directory, standIn the command that replaces the pack's stand-in rows, if
// it has any.
func WriteNext(w io.Writer, s run.Summary, r report.Run, args []string, dir, standIn string) error {
	var b strings.Builder
	line := func(format string, values ...any) { _, _ = fmt.Fprintf(&b, format+"\n", values...) }
	if len(s.LeftOut) > 0 {
		line("\nnot prepared, and left out of the score:")
		for _, l := range s.LeftOut {
			reason, _, _ := strings.Cut(l.Reason, "\n") // a build has printed the rest
			line("  %s: %s", report.Visible(l.Task, report.ShownName), report.Visible(reason, report.ShownLine))
		}
	}
	if standIn != "" {
		line("\nthese rows stand in for the benchmark's own: download those as %s says, and put them in place with\n      %s --out %s",
			quoted(filepath.Join(dir, "README.md")), standIn, quoted(dir))
	}
	line("\nnext: sbench report %s", quoted(filepath.Dir(s.Output)))
	hopeless := slices.IndexFunc(r.Tasks, func(t report.Task) bool { return t.Scored > 1 && t.Passed == 0 })
	hint := ""
	switch {
	case s.Errors > s.Infrastructure:
		hint = "the pack or its image is at fault: fix it, and continue with --resume"
	case s.Failed > 2 && s.Failed == s.Total:
		hint = "no attempt passed: does the reference pass?"
	case hopeless >= 0:
		hint = "no candidate of " + report.Visible(r.Tasks[hopeless].TaskID, report.ShownName) + " passed: does the reference pass?"
	}
	if hint != "" {
		line("      sbench pack check %s\n      (%s)", quoted(dir), hint)
	}
	if s.Interrupted() || s.Infrastructure > 0 {
		again := "sbench"
		for _, arg := range args {
			again += " " + quoted(arg)
		}
		if !slices.Contains(args, "--resume") {
			again += " --resume"
		}
		line("      %s", again)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

var plainWord = regexp.MustCompile(`^[\w@%+=:,./-]+$`)

func quoted(word string) string {
	if plainWord.MatchString(word) {
		return word
	}
	return compiler.ShellWords(word)
}
