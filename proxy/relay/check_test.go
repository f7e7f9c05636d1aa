package relay_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy/relay"
)

// TestCheck: Check finds a wrong key and a missing provider without a generation, and reports neither
// for any other reason.
func TestCheck(t *testing.T) {
	const good = "sk-good-0123456789abcdef"
	scripted := providertest.New(good, providertest.Step{Say: "hello"})
	answer := func(code int, body string) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
		})
	}
	status := func(code int) http.Handler { return answer(code, "") }
	gone := httptest.NewServer(status(200))
	gone.Close()
	for _, tt := range []struct {
		name    string
		handler http.Handler // nil: nobody listens
		key     string
		want    error
	}{
		{"the right key", scripted, good, nil},
		{"a wrong key", scripted, "sk-wrong-0123456789abcdef", relay.ErrRefused},
		{"nobody listens", nil, good, relay.ErrUnreachable},
		{"a gateway without the list", status(404), good, nil},
		{"a key that may not read the list", status(403), good, nil},
		{"a key that may only generate", answer(401, `{"error": {"message": "Missing scopes: api.model.read", "type": "invalid_request_error", "code": null}}`), good, nil},
		{"a gateway that refuses without a word", status(401), good, nil},
		{"a key that OpenAI does not know", answer(401, `{"error": {"message": "Incorrect API key", "type": "invalid_request_error", "code": "invalid_api_key"}}`), good, relay.ErrRefused},
		{"a key that Anthropic does not know", answer(401, `{"type": "error", "error": {"type": "authentication_error", "message": "invalid x-api-key"}}`), good, relay.ErrRefused},
		{"a key that Google does not know", answer(400, `{"error": {"code": 400, "message": "API key not valid.", "status": "INVALID_ARGUMENT", "details": [{"reason": "API_KEY_INVALID"}]}}`), good, relay.ErrRefused},
		{"a request that is refused", answer(400, `{"error": {"code": 400, "message": "API_KEY_INVALID", "status": "INVALID_ARGUMENT", "details": []}}`), good, nil},
		{"a provider in trouble", status(503), good, nil},
		{"one that leads elsewhere", http.RedirectHandler("http://192.0.2.1/", http.StatusFound), good, nil},
	} {
		for _, provider := range []relay.Provider{relay.Anthropic, relay.OpenAI, relay.Google} {
			t.Run(tt.name+"/"+string(provider), func(t *testing.T) {
				address := gone.URL
				if tt.handler != nil {
					server := httptest.NewServer(tt.handler)
					defer server.Close()
					address = server.URL
				}
				if provider == relay.OpenAI {
					address += "/v1"
				}
				base, err := url.Parse(address)
				must.Do(t, err)
				err = relay.Check(t.Context(), relay.Config{Provider: provider, BaseURL: base, Key: relay.NewKey(tt.key), Model: "m", MinSecret: 6})
				if !errors.Is(err, tt.want) || (err == nil) != (tt.want == nil) {
					t.Errorf("got %v, want %v", err, tt.want)
				}
				if err != nil && strings.Contains(err.Error(), tt.key) {
					t.Errorf("the key is in %v", err)
				}
			})
		}
	}
	for _, r := range scripted.Requests() {
		if r.Method != http.MethodGet {
			t.Errorf("a generation was asked for: %s", r.Path)
		}
	}
}
