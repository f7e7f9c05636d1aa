package relay_test

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// TestAsk: a prompt of sbench's own gets its answer from each API, even if the provider is in
// trouble at first, with the real key, and is logged.
func TestAsk(t *testing.T) {
	for _, provider := range []relay.Provider{relay.Anthropic, relay.OpenAI, relay.Google} {
		t.Run(string(provider), func(t *testing.T) {
			t.Parallel()
			p, address := scripted(t, providertest.Step{Say: "It passes.", Think: "Hm.", Faults: []providertest.Fault{{Status: 429, RetryAfter: 1}, {Status: 503}}})
			if provider == relay.OpenAI {
				address += "/v1"
			}
			base, err := url.Parse(address)
			must.Do(t, err)
			var log bytes.Buffer
			half := 0.5
			text, err := relay.Ask(t.Context(), relay.Config{
				Provider: provider, BaseURL: base, Key: relay.NewKey(realKey), MinSecret: 8, Model: "m", Log: proxy.NewLog(&log),
			}, relay.Prompt{System: "Judge.", User: "this answer", Temperature: &half})
			if err != nil || text != "It passes." {
				t.Errorf("%q, %v", text, err)
			}
			if n := strings.Count(log.String(), "\n"); n != 3 || strings.Contains(log.String(), realKey) {
				t.Errorf("%d lines: %s", n, &log)
			}
			last := p.Requests()[2]
			for _, want := range []string{"Judge.", "this answer", "0.5"} {
				if !bytes.Contains(last.Body, []byte(want)) {
					t.Errorf("the request lacks %q: %s", want, last.Body)
				}
			}
		})
	}
}

// TestAskFails: Ask does not try again if this is useless.
func TestAskFails(t *testing.T) {
	for status, refused := range map[int]bool{http.StatusBadRequest: true, http.StatusUnauthorized: false, http.StatusNotFound: false} {
		asked := 0
		up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.WriteHeader(status)
		}))
		defer up.Close()
		base, err := url.Parse(up.URL)
		must.Do(t, err)
		_, err = relay.Ask(t.Context(), relay.Config{Provider: relay.Anthropic, BaseURL: base, Key: relay.NewKey(realKey), MinSecret: 8, Model: "m"}, relay.Prompt{User: "x"})
		if err == nil || errors.Is(err, relay.ErrPrompt) != refused || asked != 1 {
			t.Errorf("%d: %v, asked %d times", status, err, asked)
		}
	}
}
