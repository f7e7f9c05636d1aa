// Package manual writes the manual page of a program from the definitions that its --help is made from.
package manual

import (
	"fmt"
	"strings"

	"github.com/alecthomas/kong"
)

// Page returns the page in the macros of man(7), without a date: it changes only with the program.
func Page(program *kong.Application, version, exitCodes string) string {
	var page strings.Builder
	line := func(format string, args ...any) { _, _ = fmt.Fprintf(&page, format+"\n", args...) }
	item := func(head string, v *kong.Value) {
		line(".TP\n.B %s\n%s", roff(head), roff(kong.DefaultHelpValueFormatter(v)))
	}
	flags := func(node *kong.Node) {
		for _, f := range node.Flags {
			if !f.Hidden {
				item(f.String(), f.Value)
			}
		}
	}

	summary, _, _ := strings.Cut(program.Help, "\n")
	line(`.TH SBENCH 1 "" "sbench %s" "User Commands"`, roff(version))
	line(".SH NAME\nsbench \\- %s", roff(strings.ToLower(summary[:1])+strings.TrimSuffix(summary[1:], ".")))
	line(".SH SYNOPSIS\n.B sbench\n.I command\n[\\fIoption\\fR ...] [\\fIargument\\fR ...]")
	line(".SH COMMANDS")
	for _, command := range program.Leaves(true) {
		line(".SS %s\n%s", roff("sbench "+command.Summary()), roff(command.Help))
		if command.Detail != "" {
			line(".PP\n%s", roff(command.Detail))
		}
		for _, v := range command.Positional {
			item(v.Summary(), v)
		}
		for node := command; node.Parent != nil; node = node.Parent {
			flags(node)
		}
	}
	line(".SH OPTIONS OF EVERY COMMAND")
	flags(program.Node)
	line(".SH EXIT STATUS\n%s", roff(exitCodes))
	line(".SH SEE ALSO\n.BR containerd (8),\n.BR runc (8),\n.BR newuidmap (1)")
	return page.String()
}

// roff escapes text so that every character is printed as it is.
func roff(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'").Replace(text)
	if strings.HasPrefix(text, ".") || strings.HasPrefix(text, "'") {
		return `\&` + text
	}
	return text
}
