package relay_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/proxy/relay"
)

// TestSlowAgents hold nothing for long.
func TestSlowAgents(t *testing.T) {
	big := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for r.Context().Err() == nil {
			if _, err := w.Write(bytes.Repeat([]byte("data: x\n\n"), 10000)); err != nil {
				return
			}
		}
	})
	for _, c := range []struct{ name, send, reason string }{
		{"head", "POST /v1/mess", "malformed_head"},
		{"body", "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{", "body_unreadable"},
		{"answer", "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"model\":\"m\"}", "agent_left"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, relay.Anthropic, big, func(cfg *relay.Config) {
				cfg.Limits.Head, cfg.Limits.Upload, cfg.Limits.Download = 50*time.Millisecond, 50*time.Millisecond, 100*time.Millisecond
				cfg.Limits.Linger = time.Millisecond
			})
			conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			until(t, c.reason, func() bool { return strings.Contains(r.log.String(), c.reason) })
		})
	}
}

// TestLimitsAtOnce bounds requests and connections.
func TestLimitsAtOnce(t *testing.T) {
	url, _, _ := stuck(t, true)
	r := newRig(t, relay.OpenAI, url, func(c *relay.Config) { c.Limits.InFlight, c.Limits.Conns = 3, 6 })
	for range 3 {
		if resp := r.post(responsesPath, `{"model":"m","stream":true}`); resp.StatusCode != 200 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
	resp := r.post(responsesPath, `{"model":"m","stream":true}`)
	if got := text(t, resp); resp.StatusCode != 429 || resp.Header.Get("Retry-After") == "" || resp.Header.Get("X-Should-Retry") == "false" || !strings.Contains(got, "at once") {
		t.Errorf("status %d, %v, %s", resp.StatusCode, resp.Header, got)
	}
	if f := r.relay.Facts(); f.Sent != 3 || f.Refused != 1 || f.Exceeded != "" || f.ProviderFailed() {
		t.Errorf("facts %+v", f)
	}
	refused := false
	for range 10 {
		conn, err := net.Dial("tcp", strings.TrimPrefix(r.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(200 * time.Millisecond))
		if _, err := conn.Read(make([]byte, 1)); err != nil && !errors.Is(err, context.DeadlineExceeded) && !isTimeout(err) {
			refused = true
			break
		}
	}
	if !refused {
		t.Error("no connection was refused")
	}
}

// TestBodiesAtOnce bounds the memory that requests take.
func TestBodiesAtOnce(t *testing.T) {
	url, _, _ := stuck(t, true)
	r := newRig(t, relay.OpenAI, url, func(c *relay.Config) { c.Limits.Body, c.Limits.Bodies = 10000, 25000 })
	body := `{"model":"m","stream":true,"input":"` + strings.Repeat("a", 9000) + `"}`
	var last *http.Response
	for i, want := range []int{200, 200, 429} {
		if last = r.post(responsesPath, body); last.StatusCode != want {
			t.Errorf("request %d: status %d, want %d", i, last.StatusCode, want)
		}
	}
	if got := text(t, last); !strings.Contains(got, "at once") {
		t.Error(got)
	}
	if resp := r.post(responsesPath, `{"model":"m","stream":true}`); resp.StatusCode != 200 {
		t.Errorf("a small one beside them: status %d", resp.StatusCode)
	}
}

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
