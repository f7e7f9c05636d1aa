package providertest

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// ParseText parses a script in text form. A line is a step, or says something about the
// step that follows. Empty lines and lines that begin with # are ignored.
//
//	say TEXT                     steps; TEXT and COMMAND may be a here-document:
//	shell COMMAND                  shell <<END
//	write PATH <<END               ...
//	                               END
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

func (p *textParser) line(line string) error {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	switch word {
	case "say", "shell", "write":
		if err := p.action(word, rest); err != nil {
			return err
		}
		p.script.Steps = append(p.script.Steps, p.step)
		p.step, p.about = Step{}, false
		return nil
	}
	p.about = true
	switch word {
	case "think":
		text, err := p.text(rest)
		p.step.Think = text
		return err
	case "tokens":
		return p.tokens(rest)
	case "delay":
		var err error
		p.step.Delay, err = time.ParseDuration(rest)
		return err
	}
	f, err := fault(word, strings.Fields(rest))
	p.step.Faults = append(p.step.Faults, f)
	return err
}

func (p *textParser) action(word, rest string) (err error) {
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
	}
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

func fault(word string, args []string) (*Fault, error) {
	f := &Fault{}
	needsArg := word == "fail" || word == "cut" || word == "error"
	if needsArg && len(args) == 0 {
		return f, fmt.Errorf("%s: of what?", word)
	}
	var err error
	switch word {
	case "fail":
		f.Status, err = strconv.Atoi(args[0])
	case "cut":
		f.Cut, err = strconv.Atoi(args[0])
	case "error":
		f.Error = args[0]
	case "garble":
		f.Garble = true
	default:
		return f, fmt.Errorf("%q is no word of this language", word)
	}
	if needsArg {
		args = args[1:]
	}
	for _, a := range args {
		if after, ok := strings.CutPrefix(a, "after="); ok && err == nil {
			f.RetryAfter, err = strconv.Atoi(after)
		} else if a == "forever" {
			f.Times = -1
		} else if err == nil {
			f.Times, err = strconv.Atoi(a)
		}
	}
	return f, err
}
