package relay_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy/relay"
)

// leaks looks for the key: whole, either half, or its beginning in hexadecimal.
func leaks(s string) bool {
	for _, part := range []string{realKey, realKey[:len(realKey)/2], realKey[len(realKey)/2:], fmt.Sprintf("%x", realKey[:8]), fmt.Sprintf("%X", realKey[:8])} {
		if strings.Contains(s, part) {
			return true
		}
	}
	return false
}

// TestKeyStaysOutside has upstreams that repeat the request in every part of an answer.
func TestKeyStaysOutside(t *testing.T) {
	echo := func(status int, contentType, format string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			h := w.Header()
			h.Set("Content-Type", contentType)
			for _, name := range []string{
				"Authorization", "X-Api-Key", "Set-Cookie", "Server", "Alt-Svc", "Anthropic-Organization-Id", "Openai-Organization",
				"X-Request-Id", "Request-Id", "Retry-After", "Cache-Control", "Location", "Www-Authenticate", "Cf-Ray",
			} {
				h.Set(name, "x "+realKey)
			}
			w.WriteHeader(status)
			key := strings.TrimPrefix(r.Header.Get("Authorization")+r.Header.Get("X-Api-Key"), "Bearer ")
			body := strings.ReplaceAll(format, "KEY", key)
			for _, piece := range []string{body[:len(body)/3], body[len(body)/3 : len(body)/2], body[len(body)/2:]} {
				_, _ = io.WriteString(w, piece)
				_ = http.NewResponseController(w).Flush()
			}
		}
	}
	const sse = "data: {\"k\":\"KEY\"}\n\nevent: KEY\ndata: KEYKEY\n\n"
	for _, c := range []struct {
		name    string
		handler http.HandlerFunc
	}{
		{"JSON", echo(200, "application/json", `{"a":"KEY"}`)},
		{"stream", echo(200, "text/event-stream", sse)},
		{"beginning of the key at the end", echo(200, "text/event-stream", "data: "+realKey[:len(realKey)-1])},
		{"bad request", echo(400, "application/json", `{"error":{"message":"KEY"}}`)},
		{"unauthorized", echo(401, "application/json", `{"error":{"message":"Incorrect API key provided: `+realKey[:15]+`***"}}`)},
		{"payment", echo(402, "application/json", `{"error":"KEY"}`)},
		{"forbidden", echo(403, "text/html", `KEY`)},
		{"proxy's authentication", echo(407, "text/html", `KEY`)},
		{"rate", echo(429, "application/json", `{"error":{"message":"KEY"}}`)},
		{"server", echo(500, "text/html", `<pre>Authorization: Bearer KEY</pre>`)},
		{"redirect", echo(302, "text/html", `KEY`)},
		{"redirect that keeps the method", echo(307, "text/html", `KEY`)},
		{"error in pieces", echo(400, "application/json", strings.Repeat("KEY", 100))},
	} {
		for _, p := range []relay.Provider{relay.Anthropic, relay.OpenAI} {
			for _, stream := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%s/%v", c.name, p, stream), func(t *testing.T) {
					r := newRig(t, p, upstream(t, c.handler), nil)
					path := map[relay.Provider]string{relay.Anthropic: messagesPath, relay.OpenAI: chatPath}[p]
					resp := r.post(path, fmt.Sprintf(`{"model":"m","stream":%v}`, stream))
					body, _ := io.ReadAll(resp.Body)
					var head bytes.Buffer
					_ = resp.Header.Write(&head)
					if bad := resp.StatusCode >= 401 && resp.StatusCode <= 403; bad != (resp.Header.Get("X-Should-Retry") == "false") {
						t.Errorf("status %d, should retry: %q", resp.StatusCode, resp.Header.Get("X-Should-Retry"))
					}
					entries := r.entries()
					if all := head.String() + string(body) + r.log.String(); leaks(all) {
						t.Errorf("the key is in\n%s", all)
					}
					if len(entries) != 1 {
						t.Errorf("%d lines in the log", len(entries))
					}
					for _, name := range []string{"Set-Cookie", "Server", "Alt-Svc", "Location", "Openai-Organization", "Anthropic-Organization-Id", "Www-Authenticate", "Cf-Ray"} {
						if resp.Header.Get(name) != "" {
							t.Errorf("%s reached the agent", name)
						}
					}
				})
			}
		}
	}
}

// TestAccountStaysOutside: the relay redacts identifiers of the operator's account.
func TestAccountStaysOutside(t *testing.T) {
	r := newRig(t, relay.OpenAI, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(429)
		_, _ = io.WriteString(w, `{"error":{"message":"Rate limit reached for m in organization org-AbCdEf123456 in proj_0123456789 on tokens per min"}}`)
	}), nil)
	got := text(t, r.post(responsesPath, `{"model":"m"}`))
	if strings.Contains(got, "AbCdEf") || strings.Contains(got, "0123456789") || !strings.Contains(got, "Rate limit reached") {
		t.Error(got)
	}
}

func TestKeyIsNotPrintable(t *testing.T) {
	cfg := relay.Config{Provider: relay.OpenAI, Key: relay.NewKey(realKey), Model: "m"}
	r, err := relay.New(cfg)
	must.Do(t, err)
	defer func() { _ = r.Close() }()
	hidden := struct{ c relay.Config }{cfg}
	var out bytes.Buffer
	for _, v := range []any{cfg, &cfg, cfg.Key, &cfg.Key, r, hidden, &hidden, []relay.Config{cfg}, map[string]any{"k": cfg}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%t", "%T", "%p"} {
			_, _ = fmt.Fprintf(&out, verb+"\n", v)
		}
		b, err := json.Marshal(v)
		_, _ = fmt.Fprintln(&out, string(b), err)
		for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
			slog.New(h).Info("x", "v", v, slog.Any("w", v))
		}
	}
	if leaks(out.String()) {
		t.Error("the key is printed")
	}
	if !strings.Contains(out.String(), "<redacted>") {
		t.Error("there is no placeholder")
	}
}

// TestConfig: all errors are reported at once, and without secrets.
func TestConfig(t *testing.T) {
	parse := func(s string) *url.URL {
		u, err := url.Parse(s)
		must.Do(t, err)
		return u
	}
	good := func() relay.Config {
		return relay.Config{Provider: relay.OpenAI, Key: relay.NewKey(realKey), Model: "m"}
	}
	for _, c := range []struct {
		name   string
		change func(*relay.Config)
		want   []string // nothing: good
	}{
		{"good", func(*relay.Config) {}, nil},
		{"http is the operator's word", func(c *relay.Config) { c.BaseURL = parse("http://127.0.0.1:1/v1") }, nil},
		{"zero", func(c *relay.Config) { *c = relay.Config{} }, []string{"provider", "key", "model"}},
		{"other provider", func(c *relay.Config) { c.Provider = "OpenAI" }, []string{"provider"}},
		{"key with a line end", func(c *relay.Config) { c.Key = relay.NewKey(realKey + "\r\nX-Evil: 1") }, []string{"key"}},
		{"key with a letter that is none of ASCII", func(c *relay.Config) { c.Key = relay.NewKey(realKey + "é") }, []string{"key"}},
		{"budget", func(c *relay.Config) { c.MaxRequests = -1 }, []string{"budget"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := good()
			c.change(&cfg)
			r, err := relay.New(cfg)
			if err == nil {
				_ = r.Close()
			}
			if (err == nil) != (len(c.want) == 0) {
				t.Fatalf("error %v", err)
			}
			for _, word := range c.want {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is not in: %v", word, err)
				}
			}
			if err != nil && leaks(err.Error()) {
				t.Errorf("the key is in: %v", err)
			}
		})
	}
}

// TestNoGoErrors has upstreams that cannot be reached: an agent must not learn their
// addresses.
func TestNoGoErrors(t *testing.T) {
	for _, base := range []string{"http://127.0.0.1:1", "http://nowhere.invalid:4567", "https://127.0.0.1:1"} {
		r := newRig(t, relay.Anthropic, base, nil)
		resp := r.post(messagesPath, `{"model":"m"}`)
		got := text(t, resp)
		for _, word := range []string{"dial", "127.0.0.1", "refused", "lookup", "invalid:", "nowhere", "4567", "tcp"} {
			if strings.Contains(got, word) {
				t.Errorf("%s: %q is in %s", base, word, got)
			}
		}
		if f := r.relay.Facts(); resp.StatusCode != 502 || f.Failed[relay.Unreachable] != 1 || !f.ProviderFailed() {
			t.Errorf("%s: status %d, facts %+v", base, resp.StatusCode, f)
		}
	}
}

func TestScrub(t *testing.T) {
	const key = "abcabcabd"
	for _, c := range []struct {
		name   string
		pieces []string
		want   string
	}{
		{"nothing", nil, ""},
		{"no key", []string{"hello"}, "hello"},
		{"two keys", []string{key + key[:2], key[2:]}, "<redacted><redacted>"},
		{"begins twice", []string{"abcabcabcabd"}, "abc<redacted>"},
		{"begins twice in pieces", []string{"abcabc", "abcabd"}, "abc<redacted>"},
		{"only begins", []string{"abcabcab", "x"}, "abcabcabx"},
		{"ends begun", []string{"x", "abca"}, "xabca"},
		{"ends nearly whole", []string{"x", "abcabcab"}, "x<redacted>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var pieces [][]byte
			for _, p := range c.pieces {
				pieces = append(pieces, []byte(p))
			}
			var out bytes.Buffer
			if err := relay.Scrub(key, &out, pieces...); err != nil || out.String() != c.want {
				t.Errorf("got %q, %v, want %q", out.String(), err, c.want)
			}
		})
	}
	if err := relay.Scrub(key, failing{}, []byte("x")); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("the writer's error is lost: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }
