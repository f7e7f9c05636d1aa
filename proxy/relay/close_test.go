package relay_test

import (
	"crypto/x509"
	"errors"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/relay"
)

// TestClose: Close ends requests in any state, over either protocol. No agent takes this for the end of its answer, and no
// goroutine and no connection outlives the relay.
func TestClose(t *testing.T) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 5 {
		useAndClose(t, false)
		useAndClose(t, true)
	}
	must.Await(t, "the end of the last goroutine", func() bool { return runtime.NumGoroutine() <= before })
	buf := make([]byte, 1<<20)
	if stacks := string(buf[:runtime.Stack(buf, true)]); strings.Contains(stacks, "proxy/relay.(*") {
		t.Errorf("there are goroutines left:\n%s", stacks)
	}
}

// useAndClose closes a relay with a request before its answer, one within, one behind, and a connection without any.
func useAndClose(t *testing.T, h2 bool) {
	hangs := make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		if !strings.Contains(string(body), "before") {
			_, _ = io.WriteString(w, "data: {}\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		if !strings.Contains(string(body), "end") {
			hangs <- struct{}{}
			<-r.Context().Done()
		}
	}))
	var open atomic.Int64
	up.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		open.Add(map[http.ConnState]int64{http.StateNew: 1, http.StateClosed: -1}[state])
	}
	pool := x509.NewCertPool()
	if up.EnableHTTP2 = h2; h2 {
		up.StartTLS()
		pool.AddCert(up.Certificate())
	} else {
		up.Start()
	}
	defer up.Close()
	r := newRig(t, relay.OpenAI, up.URL, func(c *relay.Config) { c.RootCAs = pool })
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	ended := map[string]chan error{"before": make(chan error), "within": make(chan error), "end": make(chan error)}
	for user, end := range ended {
		go func() {
			req, _ := http.NewRequest(http.MethodPost, r.url+responsesPath, strings.NewReader(`{"model":"m","stream":true,"user":"`+user+`"}`))
			resp, err := tr.RoundTrip(req)
			if err == nil {
				_, err = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
			end <- err
		}()
	}
	r.dial() // and sends nothing
	must.Do(t, <-ended["end"])
	<-hangs
	<-hangs
	reasons := map[string]int{}
	for _, e := range r.entries() { // closes
		reasons[e.Reason]++
	}
	if f := r.relay.Facts(); !maps.Equal(reasons, map[string]int{"relay_closed": 2, string(relay.AnswerCut): 1}) || f.Left != 2 || f.LastCause != relay.AnswerCut {
		t.Errorf("%v, facts %+v", reasons, f)
	}
	for _, user := range []string{"before", "within"} {
		if <-ended[user] == nil {
			t.Errorf("%s: an agent took the end of the relay for the end of the answer", user)
		}
	}
	must.Await(t, "the end of the last connection to the provider", func() bool { return open.Load() == 0 })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must.Do(t, err)
	if err := r.relay.Serve(l); !errors.Is(err, relay.ErrClosed) {
		t.Errorf("serve on a closed relay: %v", err)
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener was left open: %v", err)
	}
}
