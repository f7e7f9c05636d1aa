package report

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"math"
	"time"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/workspace/foreign"
	"github.com/securebench/sbench/workspace/foreign/lines"
)

const (
	maxEgress   = 200 // lines of one attempt to show
	egressLines = 160 // approximate bytes of a shown line
)

// An Egress is the egress log of one attempt. Its counts include all entries.
type Egress struct {
	Entries []Entry `json:"entries"`        // the first entries
	More    int     `json:"more,omitempty"` // entries after these
	Allowed int     `json:"allowed"`
	Denied  int     `json:"denied"`
	Errors  int     `json:"errors"`
}

// An Entry has the fields of a line of egress.jsonl that are shown.
type Entry struct {
	At       string       `json:"at"`                // UTC
	Earlier  bool         `json:"earlier,omitempty"` // of an earlier try, which does not count
	Kind     string       `json:"kind"`
	Verdict  string       `json:"verdict"`
	Host     string       `json:"host"`
	Port     int          `json:"port,omitempty"`
	Reason   string       `json:"reason,omitempty"`
	Rule     string       `json:"rule,omitempty"`
	Up       int64        `json:"up"`   // bytes out of the sandbox
	Down     int64        `json:"down"` // bytes into it
	Duration int64        `json:"duration_ms"`
	Method   string       `json:"method,omitempty"`
	Path     string       `json:"path,omitempty"`
	Status   int          `json:"status,omitempty"`
	Model    string       `json:"model,omitempty"`
	Stripped []string     `json:"stripped,omitempty"`
	Usage    *proxy.Usage `json:"usage,omitempty"`
}

// An egressIndex is an egress log without its entries.
type egressIndex struct {
	Egress
	offsets []int64 // of the first maxEgress lines
}

// egressLine is an entry with its attempt.
type egressLine struct {
	Task    string    `json:"task"`
	Attempt int       `json:"attempt"`
	Try     int       `json:"try"`
	Time    time.Time `json:"time"`
	Entry
}

// indexEgress reads egress.jsonl once, and remembers the offsets of each attempt's lines.
func (s *Source) indexEgress(ctx context.Context) error {
	if s.egress != nil {
		return nil
	}
	index := map[record.AttemptKey]*egressIndex{}
	for _, a := range s.Attempts {
		index[record.AttemptKey{Task: a.Task, Number: a.Number}] = nil
	}
	f, err := foreign.Open(s.root, record.EgressFile, math.MaxInt64)
	if errors.Is(err, fs.ErrNotExist) {
		s.egress = index
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	in := lines.NewReader(f, 0, maxEntry)
	for ctx.Err() == nil {
		l, err := in.Next()
		if err == io.EOF {
			s.egress = index
			return nil
		}
		if err != nil && err != lines.ErrLong {
			return err
		}
		var e egressLine
		if err != nil || json.Unmarshal(l.Text, &e) != nil {
			continue
		}
		key := record.AttemptKey{Task: e.Task, Number: max(1, e.Attempt)}
		of, known := index[key]
		if !known {
			continue // of an attempt that was interrupted
		}
		if of == nil {
			of = &egressIndex{}
			index[key] = of
		}
		of.add(e.Verdict, l.Offset)
	}
	return context.Cause(ctx)
}

func (i *egressIndex) add(verdict string, offset int64) {
	switch verdict {
	case "allow":
		i.Allowed++
	case "deny":
		i.Denied++
	default:
		i.Errors++
	}
	if len(i.offsets) < maxEgress {
		i.offsets = append(i.offsets, offset)
	}
}

// egressOf returns the egress of all tries of an attempt up to its last try; nil if nothing was logged.
func (s *Source) egressOf(a Attempt, try int, d *Detail, most int) *Egress {
	index := s.egress[record.AttemptKey{Task: a.Task, Number: a.Number}]
	if index == nil {
		return nil
	}
	e := index.Egress
	e.Entries = []Entry{}
	f, err := foreign.Open(s.root, record.EgressFile, math.MaxInt64)
	if err != nil {
		d.Missing = append(d.Missing, err.Error())
		return &e
	}
	defer func() { _ = f.Close() }()
	for _, offset := range index.offsets[:min(len(index.offsets), max(4, 2*most/egressLines))] {
		l, err := lines.NewReader(io.NewSectionReader(f, offset, maxEntry), offset, maxEntry).Next()
		var entry egressLine
		if err == nil && json.Unmarshal(l.Text, &entry) == nil {
			e.Entries = append(e.Entries, entry.shown(try))
		}
	}
	e.More = e.Allowed + e.Denied + e.Errors - len(e.Entries)
	return &e
}

// shown cuts an entry's texts, which the sandbox may have chosen.
func (l egressLine) shown(try int) Entry {
	e := l.Entry
	e.At, e.Earlier = stamp(l.Time), l.Try < try
	for _, text := range []*string{&e.Kind, &e.Verdict, &e.Host, &e.Reason, &e.Rule, &e.Method, &e.Path, &e.Model} {
		*text = cutText(*text, 200).Head
	}
	e.Stripped = e.Stripped[:min(len(e.Stripped), 10)]
	for i := range e.Stripped {
		e.Stripped[i] = cutText(e.Stripped[i], 60).Head
	}
	return e
}

// stamp formats a time for people. A zero time becomes "".
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format("2006-01-02 15:04:05.000")
}
