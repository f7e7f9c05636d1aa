package providertest

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
)

// maxBody bounds the body of a request, in bytes.
const maxBody = 64 << 20

// A Request is a request that the provider received.
type Request struct {
	Method, Path, Query string
	Host                string
	Header              http.Header
	Body                []byte
	Step                int    // index of the requested step, perhaps beyond the last; -1: none
	Fault               *Fault // the answer instead of the step; nil: none
}

// A Provider answers as its script says. It is an [http.Handler] and safe for concurrent
// use.
type Provider struct {
	key   string
	steps []Step

	mu       sync.Mutex
	requests []Request
	problems []string
	faults   map[int]int // number of faults so far, by step
}

// New returns a provider that answers as a script says ([ParseText]). It accepts only the
// given key, as a bearer token or as Anthropic's x-api-key or Google's x-goog-api-key. If key
// is "" it accepts any key. It fails for an invalid script.
func New(key, script string) (*Provider, error) {
	steps, err := ParseText(script)
	return &Provider{key: key, steps: steps, faults: map[int]int{}}, err
}

// Requests returns the requests received so far, in order.
func (p *Provider) Requests() []Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.requests)
}

// Problems returns a description of each request that the script could not answer.
func (p *Provider) Problems() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.problems)
}

func (p *Provider) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// ServeHTTP answers one request. The path may have any prefix, as behind a gateway.
func (p *Provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	rec := Request{
		Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Host: r.Host, Header: maps.Clone(r.Header), Body: body, Step: -1,
	}
	a := p.answer(r, body, err, &rec)
	p.mu.Lock()
	p.requests = append(p.requests, rec)
	p.mu.Unlock()
	a.write(r.Context(), w)
}

func (p *Provider) answer(r *http.Request, body []byte, err error, rec *Request) response {
	d := dialectOf(r.URL.Path)
	switch {
	case err != nil:
		return failure(d, http.StatusBadRequest, "the body did not come to its end")
	case !p.authorized(r.Header):
		p.problem("%s %s: a wrong credential", r.Method, r.URL.Path)
		if g, ok := d.(google); ok {
			return response{status: http.StatusBadRequest, body: g.failure("authentication_error", "API key not valid: "+masked(r.Header))}
		}
		return failure(d, http.StatusUnauthorized, "Incorrect API key provided: "+masked(r.Header))
	case r.Method == http.MethodGet && strings.HasSuffix(r.URL.Path, "/models"):
		return response{status: http.StatusOK, body: m{"object": "list", "data": []any{}, "has_more": false}}
	case r.Method != http.MethodPost || d == nil:
		return failure(d, http.StatusNotFound, "no such path")
	}
	turn, err := parse(body)
	if g, ok := d.(google); ok {
		turn.stream = g.stream
	}
	if err != nil {
		p.problem("%s: %v", r.URL.Path, err)
		return failure(d, http.StatusBadRequest, err.Error())
	}
	if strings.HasSuffix(r.URL.Path, "/count_tokens") || strings.HasSuffix(r.URL.Path, ":countTokens") {
		return response{status: http.StatusOK, body: m{"input_tokens": len(body) / 4, "totalTokens": len(body) / 4}}
	}
	return p.turn(d, turn, rec)
}

// turn answers with the next step, or with a fault.
func (p *Provider) turn(d dialect, t turn, rec *Request) response {
	s := p.step(t.next)
	r := reply{n: t.next, model: t.model, text: s.Say, think: s.Think, usage: *cmp.Or(s.Usage, &Usage{Input: 10, Output: 5})}
	if s.Say == "" {
		if len(t.offers) == 0 { // a side request, such as for the conversation's title: it gets only lasting faults
			r.text = "ok"
			if i := slices.IndexFunc(s.Faults, func(f *Fault) bool { return f.Times < 0 }); i >= 0 {
				rec.Fault = s.Faults[i]
			}
			return responseTo(d, t, r, 0, rec.Fault)
		}
		var err error
		if r.call, err = callFor(s, t.offers, fmt.Sprintf("call_sbench_%04d", t.next)); err != nil {
			p.problem("step %d: %v", t.next, err)
			return failure(d, http.StatusBadRequest, err.Error())
		}
	}
	rec.Step, rec.Fault = t.next, p.fault(t.next, s)
	return responseTo(d, t, r, s.Delay, rec.Fault)
}

func (p *Provider) step(n int) Step {
	if n < len(p.steps) {
		return p.steps[n]
	}
	return Step{Say: "done"}
}

// fault returns the fault that is due for a step, or nil.
func (p *Provider) fault(n int, s Step) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	before := 0
	for _, f := range s.Faults {
		times := max(f.Times, 1)
		if f.Times < 0 || p.faults[n] < before+times {
			p.faults[n]++
			return f
		}
		before += times
	}
	return nil
}

func (p *Provider) authorized(h http.Header) bool {
	return p.key == "" || h.Get("X-Api-Key") == p.key || h.Get("X-Goog-Api-Key") == p.key || h.Get("Authorization") == "Bearer "+p.key
}

// masked repeats a part of the credential, as a real provider does.
func masked(h http.Header) string {
	key := strings.TrimPrefix(h.Get("Authorization")+h.Get("X-Api-Key")+h.Get("X-Goog-Api-Key"), "Bearer ")
	if len(key) < 8 {
		return "***"
	}
	return key[:4] + "***" + key[len(key)-4:]
}
