package providertest

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A Step is one answer of a script: exactly one of Say, Shell, Write and Call. The next step is
// derived from the conversation in the request, so a retried request gets the same step, and
// several agents may follow one script.
type Step struct {
	Say   string // text
	Shell string // a command for the agent's shell
	Write *File
	Call  *Call

	Think  string        // reasoning before the answer
	Usage  *Usage        // as reported; nil: 10 in, 5 out
	Delay  time.Duration // before the answer; in a stream, before each event
	Faults []*Fault      // answers before the step, in order
}

// A File is a file to write with the agent's tool for files, or else with its shell.
type File struct {
	Path    string
	Content string
}

// A Call is a call of a tool that the agent offers under this name, perhaps after a prefix.
type Call struct {
	Tool  string
	Input string // JSON
}

// Usage is the tokens of one answer. Input includes Cached, Output includes Reasoning.
type Usage struct {
	Input     int64
	Cached    int64
	Output    int64
	Reasoning int64
}

// A Fault makes the answers to some requests bad: exactly one of Status, Cut and Garble.
type Fault struct {
	Times int // how many requests; 0 means one, -1 all

	Status     int  // answer with this error, 400 to 599
	RetryAfter int  // with Status: the header, in seconds; 0: none
	Cut        int  // break the connection after so many events, or bytes if the answer is not streamed
	Garble     bool // write malformed events
}

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
func ParseText(src string) ([]Step, error) {
	p := textParser{lines: strings.Split(src, "\n")}
	for p.next < len(p.lines) {
		line := strings.TrimSpace(p.lines[p.next])
		p.next++
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		at := p.next
		if err := p.line(line); err != nil {
			return nil, fmt.Errorf("script: line %d: %w", at, err)
		}
	}
	switch {
	case p.about:
		return nil, fmt.Errorf("script: line %d: no step follows", len(p.lines))
	case len(p.steps) == 0:
		return nil, errors.New("script: has no steps")
	}
	return p.steps, nil
}

type textParser struct {
	lines []string
	next  int
	steps []Step
	step  Step // the next
	about bool // a line about it was read
}

func (p *textParser) line(line string) (err error) {
	word, rest, _ := strings.Cut(line, " ")
	rest = strings.TrimSpace(rest)
	if rest == "" && word != "garble" {
		return fmt.Errorf("%s: of what?", word)
	}
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
	if err == nil && p.step.Say+p.step.Shell == "" && p.step.Write == nil && p.step.Call == nil {
		return fmt.Errorf("%s: of what?", word)
	}
	p.steps = append(p.steps, p.step)
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
	if !f.Garble {
		what := args[0]
		args = args[1:]
		switch word {
		case "fail":
			f.Status, err = strconv.Atoi(what)
		case "cut":
			f.Cut, err = strconv.Atoi(what)
		default:
			return f, fmt.Errorf("%q is no word of this language", word)
		}
	}
	switch {
	case err != nil:
		return f, err
	case f.Status != 0 && (f.Status < 400 || f.Status > 599), *f == Fault{}:
		return f, errors.New("must be an error's status, or the number of an event")
	}
	for _, a := range args {
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
