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
	Header              http.Header
	Body                []byte
}

// A Provider answers as its script says. It is an [http.Handler] and safe for concurrent
// use.
type Provider struct {
	key   string
	steps []Step

	mu       sync.Mutex
	requests []Request
	problems []string
	faults   map[int]int // how many of a step's faults are over
}

// New returns a provider that answers with steps, and with "done" after them. It accepts only
// the given key, as a bearer token or as Anthropic's x-api-key or Google's x-goog-api-key.
func New(key string, steps ...Step) *Provider {
	return &Provider{key: key, steps: steps, faults: map[int]int{}}
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
	p.mu.Lock()
	p.requests = append(p.requests, Request{Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery, Header: maps.Clone(r.Header), Body: body})
	p.mu.Unlock()
	p.answer(r, body, err).write(r.Context(), w)
}

func (p *Provider) answer(r *http.Request, body []byte, err error) response {
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
	return p.turn(d, turn)
}

// turn answers with the next step, or with a fault.
func (p *Provider) turn(d dialect, t turn) response {
	s := p.step(t.next)
	r := reply{n: t.next, model: t.model, text: s.Say, think: s.Think, usage: cmp.Or(s.Usage, Usage{Input: 10, Output: 5})}
	if s.Say == "" {
		if len(t.offers) == 0 { // a side request, such as for the conversation's title: it gets only lasting faults
			r.text = "ok"
			var lasting Fault
			if i := slices.IndexFunc(s.Faults, func(f Fault) bool { return f.Forever }); i >= 0 {
				lasting = s.Faults[i]
			}
			return responseTo(d, t, r, 0, lasting)
		}
		var err error
		if r.call, err = callFor(s, t.offers, fmt.Sprintf("call_sbench_%04d", t.next)); err != nil {
			p.problem("step %d: %v", t.next, err)
			return failure(d, http.StatusBadRequest, err.Error())
		}
	}
	return responseTo(d, t, r, s.Delay, p.fault(t.next, s))
}

func (p *Provider) step(n int) Step {
	if n < len(p.steps) {
		return p.steps[n]
	}
	return Step{Say: "done"}
}

// fault returns the fault that is due for a step; zero: none.
func (p *Provider) fault(n int, s Step) Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	over := p.faults[n]
	if over == len(s.Faults) {
		return Fault{}
	}
	if !s.Faults[over].Forever {
		p.faults[n]++
	}
	return s.Faults[over]
}

func (p *Provider) authorized(h http.Header) bool {
	return h.Get("X-Api-Key") == p.key || h.Get("X-Goog-Api-Key") == p.key || h.Get("Authorization") == "Bearer "+p.key
}

// masked repeats a part of the credential, as a real provider does.
func masked(h http.Header) string {
	key := strings.TrimPrefix(h.Get("Authorization")+h.Get("X-Api-Key")+h.Get("X-Goog-Api-Key"), "Bearer ")
	if len(key) < 8 {
		return "***"
	}
	return key[:4] + "***" + key[len(key)-4:]
}
