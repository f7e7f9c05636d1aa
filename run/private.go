package run

import (
	"path"
	"strings"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/verifiers"
)

// maxCheckerEgress bounds the egress entries of a try's checkers, in bytes.
const maxCheckerEgress = 16 << 20

// checkerLog returns the log for the proxy of a try's checker. What a checker's sandbox asks for can
// contain hidden tests, so it is in the private part.
func (l *attemptLog) checkerLog(try int) *proxy.Log {
	log := proxy.NewLog(checkerEgress{l})
	log.Try, log.Redact = try, l.secrets.Text
	return log
}

type checkerEgress struct{ *attemptLog }

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

// keep adds what a verifier printed and left to the private part. step is the name of a task's step, or "".
func (l *attemptLog) keep(v verifiers.Verdict, step string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := &l.private
	p.Stdout += underStep(step, l.secrets.Output(v.Stdout))
	p.Stderr += underStep(step, l.secrets.Output(v.Stderr))
	if v.Score != verifiers.Rounded(v.Score) {
		p.Scores = append(p.Scores, record.PrivateScore{Step: step, Score: v.Score})
	}
	for _, file := range v.Logs {
		p.Logs = append(p.Logs, record.PrivateLog{Name: path.Join(l.step, file.Name), Text: l.secrets.Text(file.Text)})
	}
	if v.Contrast != nil {
		p.Unread = append(p.Unread, v.Contrast.Unread...)
	}
}

// round leaves of a record's rewards the one that counts, and of scores four decimal digits: a checker chooses
// the names of its rewards, and all digits.
func round(rec *record.Record) {
	if all, ok := rec.VerifierMetadata[record.MetadataReward].(map[string]float64); ok {
		rec.VerifierMetadata[record.MetadataReward] = verifiers.Rounded(rewardOf(all))
	}
	if rec.Score != nil {
		rec.Score = new(verifiers.Rounded(*rec.Score))
	}
	for i := range rec.Steps {
		rec.Steps[i].Score = verifiers.Rounded(rec.Steps[i].Score)
	}
}

// writePrivate writes the private part of a record, unless it is empty.
func (l *attemptLog) writePrivate(rec *record.Record) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.private; p.Stdout+p.Stderr+p.Egress == "" && len(p.Logs)+len(p.Unread)+len(p.Scores) == 0 {
		return nil
	}
	return record.WritePrivate(l.out, rec, l.private)
}
