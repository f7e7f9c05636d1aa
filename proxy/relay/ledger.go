package relay

import (
	"cmp"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/proxy"
)

const (
	maxStatuses = 16
	// maxQuestion bounds the first generation in memory, in bytes. A larger one cannot be repeated.
	maxQuestion = 4 << 20
)

// A ledger counts the facts and the budgets of one relay.
type ledger struct {
	cfg    Config
	prices proxy.Prices

	mu       sync.Mutex
	facts    Facts
	inFlight int
	held     int64       // bytes of bodies and answers in memory
	reserved proxy.Usage // for the requests in progress
	waits    waits
	path     string    // of the last generation; "" before the first
	first    *question // the first generation; nil before it, and after any generation has succeeded
}

func newLedger(cfg Config) *ledger {
	return &ledger{
		cfg: cfg, prices: *cmp.Or(cfg.Prices, &proxy.Prices{}),
		facts: Facts{Failed: map[Cause]int64{}, Stripped: map[string]int64{}, External: map[string]int64{}},
	}
}

// enter counts a request. It returns the number of requests so far, and whether too many are
// in progress. The caller must call leave.
func (l *ledger) enter() (n int64, crowded bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.facts.Seen++
	l.inFlight++
	return l.facts.Seen, l.inFlight > l.cfg.Limits.InFlight
}

// leave ends what enter began and releases its memory. It records what the relay removed from
// the request, or why it refused the request.
func (l *ledger) leave(x *exchange) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.inFlight--
	l.held -= x.held.Load()
	into := l.facts.Stripped
	if x.entry.Verdict == proxy.Deny {
		l.facts.Refused++
		into = l.facts.External
	}
	if x.unlogged {
		l.facts.Unlogged++
	}
	for _, name := range x.entry.Stripped {
		if _, ok := into[name]; ok || len(into) < 256 {
			into[name]++
		}
	}
}

// takeMemory reserves memory for a body or an answer. It returns false if there is not enough.
func (l *ledger) takeMemory(bytes int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.held+bytes > l.cfg.Limits.Bodies {
		return false
	}
	l.held += bytes
	return true
}

// waits is the time in which the provider made the agent wait. Waits at the same time count once.
type waits struct {
	total time.Duration
	until time.Time // the end of the last wait, which may be in the future
	since time.Time // since when a request has been waiting for the provider; zero if none is
}

// add counts a wait that begins after all earlier ones, or with the request that is waiting.
func (w *waits) add(from, to time.Time) {
	if !w.since.IsZero() {
		from = w.since
	}
	if from.Before(w.until) {
		from = w.until
	}
	if to.After(from) {
		w.total, w.until = w.total+to.Sub(from), to
	}
}

// length returns the time until now.
func (w waits) length() time.Duration {
	now := time.Now()
	w.add(now, now)
	return w.total - max(w.until.Sub(now), 0)
}

// waiting begins a wait for the provider, which waited ends.
func (l *ledger) waiting(since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waits.since = since
}

// waited counts a wait for the provider. It may end in the future.
func (l *ledger) waited(from, to time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	over := from.Equal(l.waits.since)
	if l.waits.add(from, to); over {
		l.waits.since = time.Time{}
	}
}

// admit counts a request towards the budgets, or refuses it. The tokens of a generation are known only at its
// end. So admit also counts what is reserved for the requests in progress: their estimated input, and the
// output of all answers but the first, since a single request can ask for a thousand answers.
func (l *ledger) admit(reserve proxy.Usage, asked question, generates bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	spent := l.facts.Usage.Add(l.reserved).Add(proxy.Usage{Output: reserve.Output})
	switch cfg := l.cfg; {
	case cfg.MaxRequests > 0 && l.facts.Sent+l.facts.Other >= cfg.MaxRequests:
		return l.exceeded(RequestBudget)
	case cfg.MaxTotalTokens > 0 && spent.Total() >= cfg.MaxTotalTokens:
		return l.exceeded(TokenBudget)
	case cfg.MaxCostUSD > 0 && l.prices.Cost(spent) >= cfg.MaxCostUSD:
		return l.exceeded(CostBudget)
	}
	if !generates {
		l.facts.Other++
		return nil
	}
	l.facts.Sent++
	l.reserved = l.reserved.Add(reserve)
	l.path, _, _ = strings.Cut(asked.uri, "?")
	if l.facts.Sent == 1 && len(asked.body) <= maxQuestion {
		l.first = &asked
	}
	return nil
}

func (l *ledger) exceeded(b Budget) error {
	l.facts.Exceeded = cmp.Or(l.facts.Exceeded, b)
	return &refusal{http.StatusTooManyRequests, overBudget, "the budget of this attempt is used up (" + string(b) + ")"}
}

// An outcome is how one generation ended.
type outcome struct {
	status int   // 0: no answer
	cause  Cause // empty unless failed on the provider's side
	left   bool  // the agent gave up, or the relay was closed
	good   bool  // answered with 2xx and to the end
	usage  proxy.Usage
}

// complete ends a generation that admit counted with the same reservation.
func (l *ledger) complete(reserve proxy.Usage, o outcome) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved.Input -= reserve.Input
	l.reserved.Output -= reserve.Output
	f := &l.facts
	f.Usage = f.Usage.Add(o.usage)
	f.CostUSD = l.prices.Cost(f.Usage)
	if f.Statuses = append(f.Statuses, o.status); len(f.Statuses) > maxStatuses {
		f.Statuses = slices.Delete(f.Statuses, 0, 1)
	}
	switch {
	case o.left:
		f.Left++
	case o.cause != "":
		f.Failed[o.cause]++
		f.Outage++
		f.LastCause = o.cause
	default:
		f.Outage = 0
		if o.good {
			f.Succeeded++
			l.first = nil
		}
	}
}

// asked returns the path of the last generation, and the first generation if none has succeeded.
func (l *ledger) asked() (lastPath string, first *question) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.path, l.first
}

func (l *ledger) snapshot() Facts {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := l.facts
	f.ProviderWait = l.waits.length().Seconds()
	f.Statuses = slices.Clone(f.Statuses)
	f.Failed, f.Stripped, f.External = maps.Clone(f.Failed), maps.Clone(f.Stripped), maps.Clone(f.External)
	return f
}
