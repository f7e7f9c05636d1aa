package relay_test

import (
	"crypto/x509"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// TestTLS speaks HTTP/2 with a provider whose certificate is good, and sends
// nothing to one whose is not.
func TestTLS(t *testing.T) {
	var asked atomic.Int64
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		if r.ProtoMajor != 2 {
			t.Errorf("%s", r.Proto)
		}
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":10}}}`+"\n\n"+
			`data: {"type":"message_delta","usage":{"output_tokens":5}}`+"\n\n"+`data: {"type":"message_stop"}`+"\n\n")
	}))
	up.EnableHTTP2 = true
	up.Config.ErrorLog = log.New(io.Discard, "", 0)
	up.StartTLS()
	t.Cleanup(up.Close)

	pool := x509.NewCertPool()
	pool.AddCert(up.Certificate())
	good := newRig(t, relay.Anthropic, up.URL, func(c *relay.Config) { c.RootCAs = pool })
	for range 3 {
		text(t, good.post(messagesPath, `{"model":"m","stream":true}`))
	}
	if f := good.relay.Facts(); asked.Load() != 3 || f.Succeeded != 3 || f.Usage != (proxy.Usage{Input: 30, Output: 15}) {
		t.Errorf("facts %+v", f)
	}

	bad := newRig(t, relay.Anthropic, up.URL, func(c *relay.Config) { c.RootCAs = x509.NewCertPool() })
	if resp := bad.post(messagesPath, `{"model":"m"}`); resp.StatusCode != 502 || asked.Load() != 3 {
		t.Errorf("status %d, asked %d times", resp.StatusCode, asked.Load())
	}
	if f := bad.relay.Facts(); f.Failed[relay.Unreachable] != 1 || f.Usage.Total() != 0 {
		t.Errorf("facts %+v", f)
	}
}
