package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mattn/go-runewidth"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

const (
	maxColumns = 100 // a view narrower than the terminal survives its resizing
	maxBar     = 40  // columns
	maxSaid    = 3   // lines of agents' output
	maxNew     = 3   // failures that are shown
	cutMark    = "~" // one column wide in every locale
)

// Colours, as SGR parameters; each ends on the line where it begins.
const (
	plainText = ""
	green     = "32"
	red       = "31"
	yellow    = "33"
	faint     = "2"
)

// A board is what a live view shows, gathered from events. Its size depends on the number of concurrent attempts
// alone. The zero board is ready; it is not for concurrent use.
type board struct {
	began    time.Time // of the first event
	started  bool      // the run has started: its images are there
	stopping bool
	ended    bool

	pulled, pulls int
	image         string // the last one that was asked for

	tasks    int
	pace     pace
	verdicts map[record.Status]int
	retries  int
	tokens   int64

	running  []running // in the order of their start
	waiting  string    // what the next attempt waits for
	failures []string  // the newest attempts that did not pass
	said     []string  // the last lines of agents' output
}

// running is an attempt that has begun and is not recorded yet.
type running struct {
	run.Event // its start, with the tokens since
	phase     string
}

func (r running) is(e run.Event) bool { return r.Task == e.Task && r.Attempt == e.Attempt }

func (b *board) add(e run.Event) {
	if b.began.IsZero() {
		b.began = e.Time
	}
	b.pace.add(e)
	switch e.Kind {
	case run.ImagePull:
		if ref, done := strings.CutSuffix(e.Detail, ": done"); done {
			b.pulled++
		} else {
			b.pulls, b.image = b.pulls+1, ref
		}
	case run.RunStart:
		b.started, b.tasks = true, e.Tasks
	case run.RunDone:
		b.ended = true
	case run.Waiting:
		b.waiting = e.Detail + ": " + e.Task
	case run.Stopping:
		b.stopping = true
	case run.Egress:
		b.tokens += e.Tokens
		b.attempt(e).Tokens += e.Tokens
	case run.ProducerStart:
		b.attempt(e).phase = "harness"
	case run.VerifierStart:
		b.attempt(e).phase = "verifier"
	case run.TaskStart:
		b.waiting = ""
		b.end(e)
		b.running = append(b.running, running{e, "starting"})
	case run.TaskDone:
		b.addVerdict(e)
	case run.AgentOutput:
		for line := range strings.Lines(e.Detail) {
			if line = strings.TrimSpace(line); line != "" {
				b.said = newest(b.said, maxSaid, fit(e.Task+": "+line, maxColumns))
			}
		}
	}
}

func (b *board) addVerdict(e run.Event) {
	if e.Again {
		b.retries++
		b.attempt(e).phase = "waiting"
		return
	}
	b.end(e)
	if e.Status == record.Failed || e.Status == record.Error {
		b.failures = newest(b.failures, maxNew, fit(strings.Join(nonEmpty(string(e.Status), e.Task, e.Reason, e.FailureMessage), " "), maxColumns))
	}
	if b.verdicts == nil {
		b.verdicts = map[record.Status]int{}
	}
	b.verdicts[e.Status]++
}

// newest adds a line to the last ones.
func newest(lines []string, most int, line string) []string {
	lines = append(lines, line)
	return slices.Clone(lines[max(0, len(lines)-most):])
}

// attempt returns the event's attempt for changes, which have no effect if it is not running.
func (b *board) attempt(e run.Event) *running {
	if i := slices.IndexFunc(b.running, func(r running) bool { return r.is(e) }); i >= 0 {
		return &b.running[i]
	}
	return &running{}
}

// end removes the event's attempt.
func (b *board) end(e run.Event) {
	b.running = slices.DeleteFunc(b.running, func(r running) bool { return r.is(e) })
}

// canvas is the room for lines: their number, the width in columns that they stay below, and colours or none.
type canvas struct {
	width, height int
	colour        bool
}

// lines returns the whole view as of now. Its only control characters are those of colours.
func (b *board) lines(now time.Time, c canvas) []string {
	all := b.totals(now, c)
	room := c.height - len(all) - len(b.said) - len(b.failures)
	if b.waiting != "" {
		room--
	}
	all = append(all, b.attemptLines(now, c, room)...)
	if b.waiting != "" {
		all = append(all, c.paint(faint, "  waiting "+b.waiting))
	}
	for _, failure := range b.failures {
		all = append(all, c.paint(red, "  "+failure))
	}
	for _, said := range b.said {
		all = append(all, c.paint(faint, "> "+said))
	}
	return all[:min(len(all), max(c.height, 0))]
}

// totals returns the lines that stay when the run has ended.
func (b *board) totals(now time.Time, c canvas) []string {
	took := seconds(now.Sub(b.began))
	if !b.started {
		return []string{c.bar("images", b.pulled, b.pulls, took+"  "+b.image)}
	}
	var counts []part
	for i, p := range []struct {
		n            int
		name, colour string
	}{
		{b.verdicts[record.Passed], "passed", green}, {b.verdicts[record.Failed], "failed", red},
		{b.verdicts[record.Error], "error", yellow}, {b.verdicts[record.Pending], "pending", plainText},
		{b.pace.resumed, "recorded before", plainText}, {b.retries, "retried", plainText},
	} {
		text := fmt.Sprint(p.n, " ", p.name)
		switch {
		case p.n > 0:
			counts = append(counts, part{text, p.colour})
		case i < 4: // a verdict
			counts = append(counts, part{text, plainText})
		}
	}
	if b.tokens > 0 {
		counts = append(counts, part{tokens(b.tokens), plainText})
	}
	if left, ok := b.pace.left(now); ok && !b.stopping && !b.ended {
		counts = append(counts, part{fmt.Sprintf("%.1f/min", b.pace.rate(now)), plainText}, part{"ETA " + seconds(left), plainText})
	}
	if b.stopping {
		counts = append(counts, part{"stopping", yellow})
	}
	return append([]string{c.bar("attempts", b.pace.done(), b.pace.attempts, took)}, c.flow(counts)...)
}

// attemptLines shows as many of the running attempts as there is room for.
func (b *board) attemptLines(now time.Time, c canvas, room int) []string {
	var all []string
	for i, r := range b.running {
		if left := len(b.running) - i; len(all) == room-1 && left > 1 {
			return append(all, c.paint(faint, fmt.Sprintf("  and %d more", left)))
		}
		name := r.Task
		if b.pace.attempts > b.tasks {
			name += fmt.Sprintf(" #%d", r.Attempt)
		}
		if r.Tokens > 0 {
			name += "  " + tokens(r.Tokens)
		}
		head := fmt.Sprintf("  %-8s %6s  ", r.phase, seconds(now.Sub(r.Time)))
		all = append(all, c.paint(plainText, head+fitEnd(name, c.width-1-len(head))))
	}
	return all
}

// bar returns a line with a progress bar, if there is room for one.
func (c canvas) bar(name string, done, total int, rest string) string {
	head, tail, bar := fmt.Sprintf("%-9s", name), fmt.Sprintf(" %d/%d  %s", done, total, rest), ""
	if room := min(maxBar, c.width-1-len(head)-min(runewidth.StringWidth(tail), c.width/2)) - len("[]"); room > 2 {
		filled := strings.Repeat("=", min(room, (2*room*done+total)/max(2*total, 1))) // rounded
		if done < total && filled != "" {
			filled = filled[1:] + ">"
		}
		bar = fmt.Sprintf("[%s%s]", filled, strings.Repeat("-", room-len(filled)))
	}
	return c.paint(plainText, head+bar+tail)
}

// part is a part of a line that is never broken.
type part struct{ text, colour string }

// flow puts parts side by side, on as many lines as they need.
func (c canvas) flow(parts []part) []string {
	const between = "  "
	var all []string
	width := c.width
	for _, p := range parts {
		w := len(between) + runewidth.StringWidth(p.text)
		if width+w >= c.width {
			all, width = append(all, ""), 0
		}
		all[len(all)-1] += c.paint(p.colour, between+p.text)
		width += w
	}
	return all
}

// paint makes text harmless and narrower than the canvas, and colours it.
func (c canvas) paint(colour, text string) string {
	text = fit(text, c.width-1)
	if !c.colour || colour == plainText {
		return text
	}
	return "\x1b[" + colour + "m" + text + "\x1b[0m"
}

// harmless replaces characters that a terminal obeys, and those that reorder or break a line or have no width.
func harmless(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp, unicode.Variation_Selector) {
			return '?'
		}
		return r
	}, text)
}

// fit makes text harmless and truncates it to at most the given columns.
func fit(text string, columns int) string {
	if columns < 1 {
		return ""
	}
	return runewidth.Truncate(harmless(text), columns, cutMark)
}

// fitEnd is fit for texts that differ at their ends, such as task ids: it cuts off the beginning.
func fitEnd(text string, columns int) string {
	text = harmless(text)
	if excess := runewidth.StringWidth(text) - columns; excess > 0 && columns > 0 {
		return runewidth.TruncateLeft(text, excess+len(cutMark), cutMark)
	}
	return text
}

func tokens(n int64) string {
	switch {
	case n < 10_000:
		return fmt.Sprintf("%d tokens", n)
	case n < 10_000_000:
		return fmt.Sprintf("%dk tokens", n/1000)
	}
	return fmt.Sprintf("%dM tokens", n/1_000_000)
}

// seconds formats a duration roughly. A negative one counts as zero.
func seconds(d time.Duration) string {
	s := max(int64(d/time.Second), 0)
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm", s/3600, s/60%60)
}
