package relay_test

import (
	"crypto/x509"
	"errors"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// TestPublicAddresses sends nothing: the function that would choose the proxy fails.
func TestPublicAddresses(t *testing.T) {
	for _, c := range []struct {
		provider relay.Provider
		path     string
		agent    string
		want     string
	}{
		{relay.Anthropic, messagesPath, "http://127.0.0.1:8099", "https://api.anthropic.com/v1/messages"},
		{relay.OpenAI, responsesPath, "http://127.0.0.1:8099/v1", "https://api.openai.com/v1/responses"},
	} {
		var asked string
		r := newRig(t, c.provider, "", func(cfg *relay.Config) {
			cfg.BaseURL = nil
			cfg.Proxy = func(req *http.Request) (*url.URL, error) {
				asked = req.URL.String()
				return nil, errors.New("no way out of a test")
			}
		})
		if resp := r.post(c.path, `{"model":"m"}`); resp.StatusCode != 502 || asked != c.want {
			t.Errorf("%s: status %d, asked for %q", c.provider, resp.StatusCode, asked)
		}
		if got := c.provider.AgentURL("127.0.0.1:8099"); got != c.agent {
			t.Errorf("%s: the agent is told %s", c.provider, got)
		}
		if e := r.entries()[0]; "https://"+e.Host != c.want[:len(c.want)-len(c.path)] || e.Port != 443 {
			t.Errorf("%s: entry %+v", c.provider, e)
		}
	}
}

// TestTLS: the relay speaks HTTP/2, on one connection, with a provider with a valid certificate, and
// sends nothing to a provider with an invalid certificate.
func TestTLS(t *testing.T) {
	var asked atomic.Int64
	var from sync.Map // addresses
	up := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		from.Store(r.RemoteAddr, true)
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
	if all := maps.Collect(from.Range); len(all) != 1 {
		t.Errorf("asked on %d connections: %v", len(all), all)
	}

	bad := newRig(t, relay.Anthropic, up.URL, func(c *relay.Config) { c.RootCAs = x509.NewCertPool() })
	if resp := bad.post(messagesPath, `{"model":"m"}`); resp.StatusCode != 502 || asked.Load() != 3 {
		t.Errorf("status %d, asked %d times", resp.StatusCode, asked.Load())
	}
	if f := bad.relay.Facts(); f.Failed[relay.Unreachable] != 1 || f.Usage.Total() != 0 {
		t.Errorf("facts %+v", f)
	}
}
