package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

const (
	realKey     = "sk-real-0123456789-abcdefghij"
	placeholder = "sk-placeholder"
)

// A rig is a relay between a test and the test's upstream.
type rig struct {
	t     *testing.T
	relay *relay.Relay
	url   string // where the agent finds the relay, without /v1
	log   *buffer
}

// buffer is a log that a test may read while it is written.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// newRig starts a relay to the upstream. change, unless nil, changes its configuration.
func newRig(t *testing.T, p relay.Provider, upstream string, change func(*relay.Config)) *rig {
	t.Helper()
	base, err := url.Parse(upstream)
	must.Do(t, err)
	if p == relay.OpenAI {
		base = base.JoinPath("/v1")
	}
	log := &buffer{}
	cfg := relay.Config{Provider: p, BaseURL: base, Key: relay.NewKey(realKey), MinSecret: 8, Model: "m", Log: proxy.NewLog(log), Task: "task", Attempt: 2, Limits: relay.DefaultLimits()}
	if change != nil {
		change(&cfg)
	}
	r, err := relay.New(cfg)
	must.Do(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	served := make(chan error, 1)
	go func() { served <- r.Serve(l) }()
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if err := <-served; err != nil && !errors.Is(err, relay.ErrClosed) { // closed before Serve began
			t.Errorf("serve: %v", err)
		}
	})
	return &rig{t: t, relay: r, url: "http://" + l.Addr().String(), log: log}
}

// upstream serves h until the test ends.
func upstream(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s.URL
}

// do sends a request as an agent would, with its placeholder.
func (r *rig) do(method, path, body string, header ...string) *http.Response {
	r.t.Helper()
	req, err := http.NewRequest(method, r.url+path, strings.NewReader(body))
	must.Do(r.t, err)
	req.Header.Set("Authorization", "Bearer "+placeholder)
	req.Header.Set("X-Api-Key", placeholder)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header[header[i]] = []string{header[i+1]}
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	must.Do(r.t, err)
	r.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (r *rig) post(path, body string, header ...string) *http.Response {
	r.t.Helper()
	return r.do(http.MethodPost, path, body, header...)
}

// dial connects to the relay until the test ends.
func (r *rig) dial() *net.TCPConn {
	r.t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	must.Do(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn.(*net.TCPConn)
}

// text reads a whole answer.
func text(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	return string(b)
}

// entries closes the relay and returns the entries of its log.
func (r *rig) entries() []proxy.Entry {
	r.t.Helper()
	must.Do(r.t, r.relay.Close())
	var all []proxy.Entry
	for line := range strings.Lines(r.log.String()) {
		var e proxy.Entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			r.t.Fatalf("log line %q: %v", line, err)
		}
		all = append(all, e)
	}
	return all
}

// answers is an upstream that gives short, good answers and keeps the last request.
type answers struct {
	url  string
	mu   sync.Mutex
	n    int
	last *http.Request
	body []byte
}

func newAnswers(t *testing.T) *answers {
	a := &answers{}
	a.url = upstream(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		a.mu.Lock()
		a.n, a.last, a.body = a.n+1, r, body
		a.mu.Unlock()
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"type":"message","content":[],"usage":{"input_tokens":10,"output_tokens":5,"prompt_tokens":10,"completion_tokens":5}}`)
	})
	return a
}

func (a *answers) seen() (n int, last *http.Request, body string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.n, a.last, string(a.body)
}

// patience is how long a test waits for something that should happen at once.
const patience = time.Minute
