package proxy

import (
	"cmp"
	"encoding/json"
	"io"
	"sync"
	"time"
)

// Kind says how a program in the sandbox tried to reach the network.
type Kind string

// Kinds of [Entry].
const (
	KindConnect     Kind = "connect"     // a CONNECT request to the forward proxy
	KindHTTP        Kind = "http"        // any other request to the forward proxy
	KindTransparent Kind = "transparent" // a redirected connection
	KindDNS         Kind = "dns"         // a question to the name server in the sandbox
	KindMalformed   Kind = "malformed"   // a connection without a valid request
	KindRelay       Kind = "relay"       // a request to the provider relay
)

// Verdict is the result of an access to the network.
type Verdict string

// Verdicts of [Entry]. Error means that the access was allowed but failed.
const (
	Allow Verdict = "allow"
	Deny  Verdict = "deny"
	Error Verdict = "error"
)

// An Entry is one line of egress.jsonl. It never contains headers, bodies or query strings.
type Entry struct {
	Time    time.Time `json:"time"` // when the access began
	Task    string    `json:"task,omitempty"`
	Attempt int       `json:"attempt,omitempty"`
	Try     int       `json:"try,omitempty"` // of the attempt; [Log.Write] sets it

	Kind    Kind    `json:"kind"`
	Host    string  `json:"host,omitempty"` // as requested, normalised where possible
	Port    int     `json:"port,omitempty"`
	Address string  `json:"address,omitempty"` // "IP:port" dialled, or the address refused
	Verdict Verdict `json:"verdict"`
	Rule    string  `json:"rule,omitempty"`   // the rule that allowed or refused the access, as the tester wrote it
	Reason  string  `json:"reason,omitempty"` // see [reason]; the relay has a list of its own

	Up       int64         `json:"up"`   // bytes out of the sandbox
	Down     int64         `json:"down"` // bytes into it
	Duration time.Duration `json:"-"`    // written as duration_ms

	// For relay entries; Status also for plain HTTP.
	Provider string   `json:"provider,omitempty"`
	Method   string   `json:"method,omitempty"`
	Path     string   `json:"path,omitempty"`   // an entry of the relay's list of paths
	Status   int      `json:"status,omitempty"` // HTTP status, for plain HTTP the server's; 0 if none
	Model    string   `json:"model,omitempty"`
	Stream   bool     `json:"stream,omitempty"`
	Stripped []string `json:"stripped,omitempty"` // what the relay removed from the request, or why it refused external tools
	Usage    *Usage   `json:"usage,omitempty"`    // nil if the request used no tokens
	CostUSD  float64  `json:"cost_usd,omitempty"` // of Usage, if the prices are known
}

// Usage counts tokens in the same terms for all providers. The zero Usage means no tokens.
type Usage struct {
	Input     int64 `json:"input"`     // including Cached
	Cached    int64 `json:"cached"`    // of Input, read from a cache
	Output    int64 `json:"output"`    // including Reasoning
	Reasoning int64 `json:"reasoning"` // of Output; 0 if the provider does not report it
	// Estimated says that one of the provider's counts was missing or unusable.
	Estimated bool `json:"estimated,omitempty"`
}

// Total returns the number of tokens that count towards a budget: input and output.
func (u Usage) Total() int64 { return u.Input + u.Output }

// Prices are what a provider asks for a million tokens, in US dollars.
type Prices struct {
	Input, Cached, Output float64
}

// Cost returns the price of u in US dollars.
func (p Prices) Cost(u Usage) float64 {
	return (float64(u.Input-u.Cached)*p.Input + float64(u.Cached)*p.Cached + float64(u.Output)*p.Output) / 1e6
}

// Add returns the sum of u and v.
func (u Usage) Add(v Usage) Usage {
	return Usage{
		Input: u.Input + v.Input, Cached: u.Cached + v.Cached, Output: u.Output + v.Output,
		Reasoning: u.Reasoning + v.Reasoning, Estimated: u.Estimated || v.Estimated,
	}
}

// A Log writes entries as lines of JSON, each with a single Write. Its methods are safe for
// concurrent use.
type Log struct {
	// Write puts Try into every entry. It applies Redact, unless nil, to the texts that a sandbox can
	// influence: names, addresses, rules, paths, models. Set both before the first Write.
	Try    int
	Redact func(string) string

	mu  sync.Mutex
	w   io.Writer
	err error
}

// NewLog returns a log that writes to w. It never closes w.
func NewLog(w io.Writer) *Log { return &Log{w: w} }

// Write appends an entry. [Log.Err] returns the error if that fails.
func (l *Log) Write(e Entry) {
	e.Try = l.Try
	if l.Redact != nil {
		e = e.redacted(l.Redact)
	}
	line, err := json.Marshal(struct {
		Entry
		Milliseconds int64 `json:"duration_ms"`
	}{e, e.Duration.Milliseconds()})
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil {
		_, err = l.w.Write(append(line, '\n'))
	}
	l.err = cmp.Or(l.err, err)
}

func (e Entry) redacted(redact func(string) string) Entry {
	for _, text := range []*string{&e.Host, &e.Address, &e.Rule, &e.Path, &e.Model} {
		*text = redact(*text)
	}
	stripped := make([]string, 0, len(e.Stripped))
	for _, s := range e.Stripped {
		stripped = append(stripped, redact(s))
	}
	e.Stripped = stripped
	return e
}

// Err returns the first error of writing an entry. After an error, the log is incomplete.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}
