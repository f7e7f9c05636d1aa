package relay_test

import (
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/relay"
)

// TestNoGoroutineOutlives: no goroutine outlives a relay that had requests in every
// state when it was closed.
func TestNoGoroutineOutlives(t *testing.T) {
	http.DefaultTransport.(*http.Transport).CloseIdleConnections()
	before := runtime.NumGoroutine()
	for range 5 {
		useAndClose(t, false)
		useAndClose(t, true)
	}
	must.Await(t, "the end of the last goroutine", func() bool { return runtime.NumGoroutine() <= before })
	if stacks := allStacks(); strings.Contains(stacks, "proxy/relay.(*") {
		t.Errorf("there are goroutines left:\n%s", stacks)
	}
}

func allStacks() string {
	buf := make([]byte, 1<<20)
	return string(buf[:runtime.Stack(buf, true)])
}

func useAndClose(t *testing.T, h2 bool) {
	hang := make(chan struct{})
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: {}\n\n")
		_ = http.NewResponseController(w).Flush()
		if strings.Contains(string(body), "hang") {
			hang <- struct{}{}
			<-r.Context().Done()
		}
	}))
	var open atomic.Int64
	up.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	if h2 {
		up.EnableHTTP2 = true
		up.StartTLS()
	} else {
		up.Start()
	}
	defer up.Close()
	pool := x509.NewCertPool()
	if h2 {
		pool.AddCert(up.Certificate())
	}
	r := newRig(t, relay.OpenAI, up.URL, func(c *relay.Config) { c.RootCAs = pool })
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			body := fmt.Sprintf(`{"model":"m","stream":true,"user":"%s"}`, []string{"hang", "end"}[i%2])
			req, _ := http.NewRequest(http.MethodPost, r.url+responsesPath, strings.NewReader(body))
			resp, err := tr.RoundTrip(req)
			if err != nil {
				return // the relay was closed first
			}
			_, _ = io.ReadAll(resp.Body) // a stuck answer ends with the relay
			_ = resp.Body.Close()
		})
	}
	idle, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
	must.Do(t, err)
	defer func() { _ = idle.Close() }()
	for range 4 {
		<-hang
	}
	if err := r.relay.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
	wg.Wait()
	must.Await(t, "the end of the last connection to the provider", func() bool { return open.Load() == 0 })
}
