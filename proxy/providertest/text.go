package providertest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ParseText parses a script in text form. A line is a step, or says something about the
// step that follows. Empty lines and lines that begin with # are ignored.
//
//	say TEXT                     steps; TEXT and COMMAND may be a here-document:
//	shell COMMAND                  shell <<END
//	call TOOL JSON                 ...
//	write PATH <<END               END
//
//	think TEXT                   about the next step
//	tokens in=N cached=N out=N reasoning=N
//	delay 20ms                   before each event
//	fail 429 [TIMES|forever] [after=SECONDS]
//	cut EVENTS [TIMES|forever]
//	garble [TIMES|forever]
//	error TYPE [TIMES|forever]
func ParseText(src string) (Script, error) {
	p := textParser{lines: strings.Split(src, "\n")}
	for p.next < len(p.lines) {
		line := strings.TrimSpace(p.lines[p.next])
		p.next++
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := p.next
		if err := p.line(line); err != nil {
			return Script{}, fmt.Errorf("script: line %d: %w", at, err)
		}
	}
	if p.about {
		return Script{}, fmt.Errorf("script: line %d: no step follows", len(p.lines))
	}
	return p.script, p.script.check()
}

type textParser struct {
	lines  []string
	next   int
	script Script
	step   Step // the next
	about  bool // a line about it was read
}

func (p *textParser) line(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	p.about = true
	switch word {
	case "say":
		p.step.Say, err = p.text(rest)
	case "shell":
		p.step.Shell, err = p.text(rest)
	case "write":
		path, mark, ok := strings.Cut(rest, " <<")
		if !ok {
			return fmt.Errorf("write %s: a here-document must follow", rest)
		}
		p.step.Write = &File{Path: strings.TrimSpace(path)}
		p.step.Write.Content, err = p.text("<<" + mark)
		p.step.Write.Content += "\n"
	case "call":
		tool, input, _ := strings.Cut(rest, " ")
		p.step.Call = &Call{Tool: tool, Input: input}
	case "think":
		p.step.Think, err = p.text(rest)
		return err
	case "tokens":
		return p.tokens(rest)
	case "delay":
		p.step.Delay, err = time.ParseDuration(rest)
		return err
	default:
		f, err := fault(word, strings.Fields(rest))
		p.step.Faults = append(p.step.Faults, f)
		return err
	}
	p.script.Steps = append(p.script.Steps, p.step)
	p.step, p.about = Step{}, false
	return err
}

// text returns the rest of the line or a here-document, without its last line end.
func (p *textParser) text(rest string) (string, error) {
	mark, ok := strings.CutPrefix(rest, "<<")
	if !ok || mark == "" {
		return rest, nil
	}
	start := p.next
	for p.next < len(p.lines) {
		if p.next++; p.lines[p.next-1] == mark {
			return strings.Join(p.lines[start:p.next-1], "\n"), nil
		}
	}
	return "", fmt.Errorf("no line is %s", mark)
}

func (p *textParser) tokens(rest string) error {
	u := Usage{}
	for _, f := range strings.Fields(rest) {
		name, value, _ := strings.Cut(f, "=")
		n, err := strconv.ParseInt(value, 10, 64)
		if err != nil {
			return err
		}
		into := map[string]*int64{"in": &u.Input, "cached": &u.Cached, "out": &u.Output, "reasoning": &u.Reasoning}[name]
		if into == nil {
			return fmt.Errorf("tokens: %q is none of in, cached, out and reasoning", name)
		}
		*into = n
	}
	p.step.Usage = &u
	return nil
}

func fault(word string, args []string) (f *Fault, err error) {
	f = &Fault{Garble: word == "garble"}
	switch {
	case f.Garble:
		args = append([]string{""}, args...)
	case !slices.Contains([]string{"fail", "cut", "error"}, word):
		return f, fmt.Errorf("%q is no word of this language", word)
	case len(args) == 0:
		return f, fmt.Errorf("%s: of what?", word)
	}
	switch word {
	case "fail":
		f.Status, err = strconv.Atoi(args[0])
	case "cut":
		f.Cut, err = strconv.Atoi(args[0])
	case "error":
		f.Error = args[0]
	}
	for _, a := range args[1:] {
		after, isAfter := strings.CutPrefix(a, "after=")
		switch {
		case err != nil:
		case isAfter:
			f.RetryAfter, err = strconv.Atoi(after)
		case a == "forever":
			f.Times = -1
		default:
			f.Times, err = strconv.Atoi(a)
		}
	}
	return f, err
}
