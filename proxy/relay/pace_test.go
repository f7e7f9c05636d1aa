package relay_test

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/securebench/sbench/proxy/relay"
)

// TestPace: relays that share a pace do not ask faster together, and counting is free.
func TestPace(t *testing.T) {
	p, url := scripted(t, "say hello")
	pace := relay.NewPace(600)
	var rigs []*rig
	for range 2 {
		rigs = append(rigs, newRig(t, relay.Anthropic, url, func(c *relay.Config) { c.Pace, c.KeyHeader = pace, "x-api-KEY" }))
	}
	begun := time.Now()
	var wg sync.WaitGroup
	for i := range 6 {
		wg.Go(func() {
			resp := rigs[i%2].post(messagesPath, `{"model":"m","messages":[]}`)
			_ = resp.Body.Close()
		})
	}
	wg.Wait()
	if took := time.Since(begun); took < 500*time.Millisecond {
		t.Errorf("six at 600 a minute took %s", took)
	}
	slow := relay.NewPace(1)
	hasty := newRig(t, relay.Anthropic, url, func(c *relay.Config) { c.Pace = slow })
	for range 5 { // only the first has a turn
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, hasty.url+messagesPath, strings.NewReader(`{"model":"m","messages":[]}`))
		if err != nil {
			t.Fatal(err)
		}
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
		cancel()
	}
	if n := len(p.Requests()); n != 7 {
		t.Errorf("%d requests", n)
	}
	if relay.NewPace(0) != nil {
		t.Error("none is no bound")
	}
}

// TestKeyHeader: the key is in the header that the operator names, and in no other.
func TestKeyHeader(t *testing.T) {
	p, url := scripted(t, "say hello")
	r := newRig(t, relay.OpenAI, url, func(c *relay.Config) { c.KeyHeader = "api-key" })
	resp := r.post(chatPath, `{"model":"m","messages":[]}`)
	_ = resp.Body.Close()
	if h := p.Requests()[0].Header; h.Get("Api-Key") != realKey || h.Get("Authorization") != "" {
		t.Errorf("%v", h)
	}
	for _, name := range []string{"Authorization", "Host", "Content-Length", "a b key", "key\n"} {
		if relay.IsKeyHeader(name) {
			t.Errorf("%q may carry a key", name)
		}
	}
}
