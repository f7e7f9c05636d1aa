package relay_test

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy/relay"
)

// TestPace: relays that share a pace do not ask faster together.
func TestPace(t *testing.T) {
	p, url := scripted(t, providertest.Step{Say: "hello"})
	pace := relay.NewPace(600)
	var rigs []*rig
	for range 2 {
		rigs = append(rigs, newRig(t, relay.Anthropic, url, func(c *relay.Config) { c.Pace = pace }))
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
	for i := range 5 { // only the first has a turn
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		if i == 0 {
			ctx = t.Context()
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, hasty.url+messagesPath, strings.NewReader(`{"model":"m","messages":[]}`))
		must.Do(t, err)
		if resp, err := http.DefaultClient.Do(req); err == nil {
			_ = resp.Body.Close()
		}
		cancel()
	}
	if n := len(p.Requests()); n != 7 {
		t.Errorf("%d requests", n)
	}
}

// TestPaceSlowsDown: after a provider refused a request of one relay because of its load, all relays wait as long
// as it asks, and then one request at a time is sent until there are answers. The wait is in the facts.
func TestPaceSlowsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pace := relay.NewPace(0)
		begin := func() time.Duration {
			begun := time.Now()
			if !pace.Begin(t.Context()) {
				t.Error("no turn")
			}
			return time.Since(begun)
		}
		for range 4 {
			if held := begin(); held != 0 {
				t.Errorf("a wait of %s before a refusal", held)
			}
		}
		pace.End(529, 30*time.Second)
		for range 3 {
			pace.End(429, 0)
		}
		if held := begin(); held != 30*time.Second {
			t.Errorf("a wait of %s, not of 30 s", held)
		}
		begin()
		third := make(chan time.Duration)
		go func() { third <- begin() }()
		time.Sleep(time.Minute)
		pace.End(200, 0)
		if held := <-third; held != time.Minute {
			t.Errorf("the third waited %s for one of two to end", held)
		}
		pace.End(200, 0) // two good ones: three at once
		begin()
		if held := begin(); held != 0 {
			t.Errorf("a wait of %s for the third", held)
		}
	})
}

// TestProviderWait: what the provider asks one agent to wait, another waits, too, and both facts say so. The first gets what it
// needs to try again.
func TestProviderWait(t *testing.T) {
	var asked atomic.Int64
	url := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		if asked.Add(1) == 1 {
			w.Header().Set("Retry-After", "1.5")
			w.Header().Set("X-Should-Retry", "true")
			w.WriteHeader(http.StatusTooManyRequests)
		}
		_, _ = io.WriteString(w, `{"error":{"message":"Overloaded"}}`)
	})
	pace := relay.NewPace(0)
	share := func(c *relay.Config) { c.Pace = pace }
	one, two := newRig(t, relay.Anthropic, url, share), newRig(t, relay.Anthropic, url, share)
	resp := one.post(messagesPath, `{"model":"m"}`)
	if got := text(t, resp); resp.StatusCode != http.StatusTooManyRequests || resp.Header.Get("Retry-After") != "1.5" || resp.Header.Get("X-Should-Retry") != "true" || !strings.Contains(got, "Overloaded") {
		t.Errorf("%d, %v, %s", resp.StatusCode, resp.Header, got)
	}
	for _, r := range []*rig{two, one} {
		if resp := r.do(http.MethodGet, "/v1/models", ""); resp.StatusCode != http.StatusOK {
			t.Errorf("%d", resp.StatusCode)
		}
		if f := r.relay.Facts(); f.ProviderWait <= 0 || f.Other != 1 {
			t.Errorf("%+v", f)
		}
	}
}

// TestToken: with a token, the relay serves only requests that have it as their key.
func TestToken(t *testing.T) {
	up := newAnswers(t)
	r := newRig(t, relay.Anthropic, up.url, func(c *relay.Config) { c.Token = "sbench-t" })
	for _, c := range []struct {
		name, value string
		status      int
	}{
		{"Authorization", "Bearer " + placeholder, 401}, {"Authorization", "Bearer ", 401}, {"Authorization", "Bearer sbench-t", 200},
		{"X-Api-Key", "sbench-t", 200}, {"X-Goog-Api-Key", "sbench-t", 200},
	} {
		resp := r.post(messagesPath, `{"model":"m"}`, c.name, c.value)
		if resp.StatusCode != c.status || c.status == 401 && resp.Header.Get("X-Sbench-Relay") != "not_the_agent" {
			t.Errorf("%s: %s: %d", c.name, c.value, resp.StatusCode)
		}
	}
}
