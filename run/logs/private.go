package logs

import (
	"fmt"
	"path"
	"strings"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// maxCheckerEgress bounds the egress entries of a try's checkers, in bytes.
const maxCheckerEgress = 16 << 20

// Checker returns the log for the proxy of the try's checker. What a checker's sandbox asks for can
// contain hidden tests, so it is in the private part.
func (l *Attempt) Checker() *proxy.Log { return l.proxyLog(checkerEgress{l}) }

type checkerEgress struct{ *Attempt }

// Write appends an entry. The last entry for which there is room says that more are missing.
func (e checkerEgress) Write(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	const full = "more entries were not kept\n"
	switch egress := &e.private.Egress; {
	case len(*egress)+len(p) <= maxCheckerEgress:
		*egress += string(p)
	case !strings.HasSuffix(*egress, full):
		*egress += full
	}
	return len(p), nil
}

// Keep adds what a verifier printed and left to the private part. step is the name of a task's step, or "".
func (l *Attempt) Keep(v verifiers.Verdict, step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.private
	p.Stdout += UnderStep(step, l.run.secrets.Output(v.Stdout))
	p.Stderr += UnderStep(step, l.run.secrets.Output(v.Stderr))
	if rewards, _ := v.Metadata[verifiers.Reward].(map[string]float64); v.Score != verifiers.Rounded(v.Score) || len(rewards) > 0 {
		p.Scores = append(p.Scores, record.PrivateScore{Step: step, Score: v.Score, Rewards: rewards})
	}
	for _, file := range v.Logs {
		p.Logs = append(p.Logs, record.PrivateLog{Name: path.Join(l.Step, file.Name), Text: l.run.secrets.Text(file.Text)})
	}
	if v.Contrast != nil {
		p.Unasked = append(p.Unasked, v.Contrast.Places...)
	}
}

// WritePrivate writes the private part of a record, unless it is empty.
func (l *Attempt) WritePrivate(rec *record.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.private; p.Stdout+p.Stderr+p.Egress == "" && len(p.Logs)+len(p.Unasked)+len(p.Scores) == 0 {
		return nil
	}
	return record.WritePrivate(l.run.out, rec, l.private)
}

// UnderStep returns an output below a line that names its step. It changes no empty output, and no output of a
// task without steps, where step is "".
func UnderStep(step, text string) string {
	if step == "" || text == "" {
		return text
	}
	return fmt.Sprintf("--- step %s\n%s\n", step, strings.TrimSuffix(text, "\n"))
}
