package relay_test

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// TestPaths: an agent can send only a few requests to a provider, below the path of the base URL.
func TestPaths(t *testing.T) {
	const ok = `{"model":"m"}`
	for _, c := range []struct {
		provider           relay.Provider
		method, path, body string
		want               string // the path at the upstream; empty: refused
	}{
		{relay.Anthropic, "POST", "/v1/messages", ok, "POST /v1/messages"},
		{relay.Anthropic, "POST", "/v1/messages?beta=true", ok, "POST /v1/messages?beta=true"},
		{relay.Anthropic, "POST", "/v1/messages?beta=true&key=evil&org=x", ok, "POST /v1/messages?beta=true"},
		{relay.Anthropic, "POST", "/v1/messages?beta=a%26key%3Devil", ok, "POST /v1/messages"},
		{relay.Anthropic, "POST", "/v1/messages/count_tokens", ok, "POST /v1/messages/count_tokens"},
		{relay.Anthropic, "GET", "/v1/models?limit=20", "", "GET /v1/models?limit=20"},
		{relay.Anthropic, "GET", "/v1/messages", "", ""},
		{relay.Anthropic, "PUT", "/v1/messages", ok, ""},
		{relay.Anthropic, "post", "/v1/messages", ok, ""},
		{relay.Anthropic, "POST", "/v1/messages/", ok, ""},
		{relay.Anthropic, "POST", "//v1/messages", ok, ""},
		{relay.Anthropic, "POST", "/v1/./messages", ok, ""},
		{relay.Anthropic, "POST", "/v1/x/../messages", ok, ""},
		{relay.Anthropic, "POST", "/v1/%6dessages", ok, ""},
		{relay.Anthropic, "POST", "/v1/messages%2fbatches", ok, ""},
		{relay.Anthropic, "POST", "/V1/messages", ok, ""},
		{relay.Anthropic, "POST", "/v1/messages;x", ok, ""},
		{relay.Anthropic, "POST", "/v1/messages/batches", ok, ""},
		{relay.Anthropic, "POST", "/v1/files", ok, ""},
		{relay.Anthropic, "POST", "/v1/skills", ok, ""},
		{relay.Anthropic, "POST", "/v1/responses", ok, ""},
		{relay.Anthropic, "GET", "/v1/organizations/me", "", ""},
		{relay.Anthropic, "HEAD", "/", "", ""},
		{relay.Anthropic, "OPTIONS", "/v1/messages", "", ""},
		{relay.OpenAI, "POST", "/v1/responses", ok, "POST /v1/responses"},
		{relay.OpenAI, "POST", "/v1/responses/compact", ok, "POST /v1/responses/compact"},
		{relay.OpenAI, "POST", "/v1/chat/completions", ok, "POST /v1/chat/completions"},
		{relay.OpenAI, "GET", "/v1/models?client_version=0.169.0", "", "GET /v1/models?client_version=0.169.0"},
		{relay.OpenAI, "GET", "/v1/responses/resp_1", "", ""},
		{relay.OpenAI, "POST", "/v1/responses/resp_1/cancel", ok, ""},
		{relay.OpenAI, "POST", "/v1/files", ok, ""},
		{relay.OpenAI, "POST", "/v1/containers", ok, ""},
		{relay.OpenAI, "POST", "/v1/vector_stores", ok, ""},
		{relay.OpenAI, "POST", "/v1/conversations", ok, ""},
		{relay.OpenAI, "POST", "/v1/realtime/sessions", ok, ""},
		{relay.OpenAI, "POST", "/v1/embeddings", ok, ""},
		{relay.OpenAI, "POST", "/v1/messages", ok, ""},
		{relay.OpenAI, "POST", "/responses", ok, ""},
		{relay.OpenAI, "GET", "/v1/responses", "", ""},
	} {
		t.Run(string(c.provider)+" "+c.method+" "+c.path, func(t *testing.T) {
			up := newAnswers(t)
			r := newRig(t, c.provider, up.url+"/gateway/", nil)
			resp := r.do(c.method, c.path, c.body)
			answer := text(t, resp)
			n, last, _ := up.seen()
			entry := r.entries()[0]
			if c.want == "" {
				if n != 0 || resp.StatusCode != 404 || entry.Reason != "path_not_allowed" || entry.Verdict != proxy.Deny || entry.Path != "" {
					t.Errorf("asked %d times, status %d, entry %+v, answer %s", n, resp.StatusCode, entry, answer)
				}
				return
			}
			if n != 1 || last.Method+" "+strings.TrimPrefix(last.RequestURI, "/gateway") != c.want || !strings.HasPrefix(last.RequestURI, "/gateway") {
				t.Errorf("asked %d times for %v: %s", n, last, answer)
			}
			if entry.Path == "" || strings.Contains(entry.Path, "?") || entry.Verdict != proxy.Allow {
				t.Errorf("entry %+v", entry)
			}
		})
	}
}

// TestHeaders sends every kind of header that might carry a credential or select an
// account, and compares all that arrives.
func TestHeaders(t *testing.T) {
	send := []string{
		"Cookie", "s=1", "Proxy-Authorization", "Basic eDp5", "Api-Key", "forged", "X-Goog-Api-Key", "forged",
		"Openai-Organization", "org-evil", "Openai-Project", "proj_evil", "Anthropic-Organization-Id", "evil",
		"X-Http-Method-Override", "DELETE", "Forwarded", "for=1.2.3.4", "X-Forwarded-For", "1.2.3.4", "X-Original-Url", "/v1/files",
		"X-Auth-Token", "forged", "Idempotency-Key", "k", "Te", "trailers", "Accept-Encoding", "gzip", "X-Unknown", "x",
		"Session-Id", "s", "Originator", "codex_exec", "Traceparent", "00-1-1-01",
		"Accept", "text/event-stream", "User-Agent", "agent/1", "X-App", "cli", "X-Stainless-Lang", "js", "X-Stainless-Os", "Linux",
		"Anthropic-Version", "2099-01-01", "Anthropic-Beta", "claude-code-20250219, mcp-client-2025-11-20,code-execution-2025-08-25 ,interleaved-thinking-2025-05-14,bad beta",
		"Openai-Beta", "responses=v1", "X-Openai-Internal-Codex-Responses-Lite", "true",
	}
	common := http.Header{
		"Accept": {"text/event-stream"}, "Accept-Encoding": {"identity"}, "Content-Type": {"application/json"}, "Content-Length": {"13"},
		"User-Agent": {"agent/1"}, "X-App": {"cli"}, "X-Stainless-Lang": {"js"}, "X-Stainless-Os": {"Linux"},
	}
	with := func(kv ...string) http.Header {
		h := common.Clone()
		for i := 0; i < len(kv); i += 2 {
			h.Set(kv[i], kv[i+1])
		}
		return h
	}
	for _, c := range []struct {
		name     string
		provider relay.Provider
		path     string
		change   func(*relay.Config)
		want     http.Header
	}{
		{"anthropic", relay.Anthropic, messagesPath, nil, with("X-Api-Key", realKey, "Anthropic-Version", "2099-01-01", "Anthropic-Beta", "claude-code-20250219,interleaved-thinking-2025-05-14")},
		{"anthropic by bearer", relay.Anthropic, messagesPath, func(c *relay.Config) { c.Bearer = true }, with("Authorization", "Bearer "+realKey, "Anthropic-Version", "2099-01-01", "Anthropic-Beta", "claude-code-20250219,interleaved-thinking-2025-05-14")},
		{"openai", relay.OpenAI, responsesPath, nil, with("Authorization", "Bearer "+realKey, "X-Openai-Internal-Codex-Responses-Lite", "true")},
		{"openai by another header", relay.OpenAI, responsesPath, func(c *relay.Config) { c.KeyHeader = "api-KEY" }, with("Api-Key", realKey, "X-Openai-Internal-Codex-Responses-Lite", "true")},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newAnswers(t)
			r := newRig(t, c.provider, up.url, c.change)
			text(t, r.post(c.path, `{"model":"m"}`, send...))
			_, last, _ := up.seen()
			must.Equal(t, c.want, last.Header)
			if "http://"+last.Host != up.url {
				t.Errorf("Host is %s", last.Host)
			}
		})
	}
}

func TestBodies(t *testing.T) {
	deep := func(n int) string { return `{"model":"m","x":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}` }
	var keys []string
	for i := range 100 {
		keys = append(keys, fmt.Sprintf(`"k%d":%d`, i, i))
	}
	many := strings.Join(keys, ",")
	for _, c := range []struct {
		name, body string
		header     []string
		reason     string // empty: passes
	}{
		{"good", `{"model":"m"}`, nil, ""},
		{"white space around", " \r\n\t{ \"model\" : \"m\" } \n", nil, ""},
		{"model in escapes", `{"model":"\u006d"}`, nil, ""},
		{"charset", `{"model":"m"}`, []string{"Content-Type", "application/json; charset=utf-8"}, ""},
		{"lone surrogate in a text", `{"model":"m","system":"\ud83d"}`, nil, ""},
		{"many keys", `{"model":"m","tools":[{"name":"a","input_schema":{` + many + `}}]}`, nil, ""},
		{"deep", deep(200), nil, ""},
		{"identity", `{"model":"m"}`, []string{"Content-Encoding", "identity"}, ""},
		{"empty", " ", nil, "malformed_json"},
		{"key twice", `{"model":"m","model":"m"}`, nil, "malformed_json"},
		{"key twice by an escape", `{"model":"m","tools":[],"\u0074ools":[{"type":"web_search_20250305"}]}`, nil, "malformed_json"},
		{"key twice far below", `{"model":"m","tools":[{"name":"a","input_schema":{"a":{"b":1,"b":2}}}]}`, nil, "malformed_json"},
		{"key twice among many", `{"model":"m","tools":[{"name":"a","input_schema":{` + many + `,"k7":1}}]}`, nil, "malformed_json"},
		{"half a pair in a key", `{"model":"m","\ud83d":1}`, nil, "malformed_json"},
		{"invalid UTF-8", "{\"model\":\"m\",\"system\":\"\xff\"}", nil, "malformed_json"},
		{"overlong UTF-8", "{\"model\":\"m\",\"system\":\"\xc1\xb4\"}", nil, "malformed_json"},
		{"byte order mark", "\uFEFF{\"model\":\"m\"}", nil, "malformed_json"},
		{"two values", `{"model":"m"}{"model":"other"}`, nil, "malformed_json"},
		{"trailing NUL", "{\"model\":\"m\"}\x00", nil, "malformed_json"},
		{"trailing comma", `{"model":"m",}`, nil, "malformed_json"},
		{"comment", `{"model":"m"/**/}`, nil, "malformed_json"},
		{"single quotes", `{'model':'m'}`, nil, "malformed_json"},
		{"NaN", `{"model":"m","temperature":NaN}`, nil, "malformed_json"},
		{"octal", `{"model":"m","max_tokens":010}`, nil, "malformed_json"},
		{"plus", `{"model":"m","max_tokens":+1}`, nil, "malformed_json"},
		{"raw line end in a text", "{\"model\":\"m\",\"system\":\"a\nb\"}", nil, "malformed_json"},
		{"bad escape", `{"model":"m","system":"\x41"}`, nil, "malformed_json"},
		{"cut", `{"model":"m"`, nil, "malformed_json"},
		{"cut escape", `{"model":"m","system":"\u00`, nil, "malformed_json"},
		{"too deep", deep(300), nil, "malformed_json"},
		{"no object", `["model"]`, nil, "malformed_request"},
		{"no model", `{"messages":[]}`, nil, "malformed_request"},
		{"null model", `{"model":null}`, nil, "malformed_request"},
		{"stream is a text", `{"model":"m","stream":"true"}`, nil, "malformed_request"},
		{"other model", `{"model":"n"}`, nil, "model_not_allowed"},
		{"longer model", `{"model":"m-search-preview"}`, nil, "model_not_allowed"},
		{"model in capitals", `{"model":"M"}`, nil, "model_not_allowed"},
		{"model with a NUL", `{"model":"m\u0000"}`, nil, "model_not_allowed"},
		{"gzip", `{"model":"m"}`, []string{"Content-Encoding", "gzip"}, "encoding_not_allowed"},
		{"zstd", `{"model":"m"}`, []string{"Content-Encoding", "zstd"}, "encoding_not_allowed"},
		{"form", `model=m`, []string{"Content-Type", "application/x-www-form-urlencoded"}, "encoding_not_allowed"},
		{"multipart", `{"model":"m"}`, []string{"Content-Type", "multipart/form-data; boundary=x"}, "encoding_not_allowed"},
		{"strange type", `{"model":"m"}`, []string{"Content-Type", ";;"}, "encoding_not_allowed"},
		{"upgrade", `{"model":"m"}`, []string{"Connection", "Upgrade", "Upgrade", "websocket"}, "header_not_allowed"},
		{"too large", `{"model":"m","system":"` + strings.Repeat("a", 100<<10) + `"}`, nil, "body_too_large"},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newAnswers(t)
			r := newRig(t, relay.Anthropic, up.url, func(cfg *relay.Config) { cfg.Limits.Body = 64 << 10 })
			resp := r.post(messagesPath, c.body, c.header...)
			answer := text(t, resp)
			n, _, got := up.seen()
			entry := r.entries()[0]
			if c.reason == "" {
				if n != 1 || resp.StatusCode != 200 || got != c.body && c.name != "deep" {
					t.Errorf("status %d, sent on %q: %s", resp.StatusCode, got, answer)
				}
				return
			}
			if n != 0 || resp.StatusCode < 400 || resp.Header.Get("X-Sbench-Relay") != c.reason || resp.Header.Get("X-Should-Retry") != "false" {
				t.Errorf("asked %d times, status %d: %s", n, resp.StatusCode, answer)
			}
			if entry.Reason != c.reason || entry.Verdict != proxy.Deny || entry.Usage != nil {
				t.Errorf("entry %+v", entry)
			}
			if f := r.relay.Facts(); f.Sent != 0 || f.Refused != 1 || f.Seen != 1 {
				t.Errorf("facts %+v", f)
			}
		})
	}
}

// TestRawHeads sends heads that net/http's client would not.
func TestRawHeads(t *testing.T) {
	const head = "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
	for _, c := range []struct {
		name, send, reason string
		status             int
	}{
		{"chunked body", head + "Transfer-Encoding: chunked\r\n\r\nd\r\n{\"model\":\"m\"}\r\n0\r\n\r\n", "encoding_not_allowed", 411},
		{"a length and chunks", head + "Content-Length: 13\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{\"model\":\"m\"}\r\n0\r\n\r\n", "encoding_not_allowed", 411},
		{"chunks and a length", head + "Transfer-Encoding: chunked\r\nContent-Length: 13\r\n\r\nd\r\n{\"model\":\"m\"}\r\n0\r\n\r\n", "encoding_not_allowed", 411},
		{"good", head + "Content-Length: 13\r\n\r\n{\"model\":\"m\"}", "", 200},
		{"two lengths", head + "Content-Length: 13\r\nContent-Length: 14\r\n\r\n{\"model\":\"m\"}", "malformed_head", 400},
		{"no HTTP", "hello\r\n\r\n", "malformed_head", 400},
		{"h2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "path_not_allowed", 404},
		{"options of the server", "OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "path_not_allowed", 404},
		{"absolute form", "POST http://evil.test/v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{\"model\":\"m\"}", "path_not_allowed", 404},
		{"connect", "CONNECT evil.test:443 HTTP/1.1\r\nHost: x\r\n\r\n", "path_not_allowed", 404},
		{"body of a GET", "GET /v1/models HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", "malformed_request", 400},
		{"short body", head + "Content-Length: 99\r\n\r\n{\"model\":\"m\"}", "body_unreadable", 400},
	} {
		t.Run(c.name, func(t *testing.T) {
			up := newAnswers(t)
			r := newRig(t, relay.Anthropic, up.url, nil)
			conn := r.dial()
			if _, err := io.WriteString(conn, c.send); err != nil {
				t.Fatal(err)
			}
			if c.name == "short body" {
				_ = conn.CloseWrite()
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil && c.name != "short body" { // net/http closes the connection of a short body
				t.Fatal(err)
			} else if err == nil && resp.StatusCode != c.status {
				t.Errorf("status %d, want %d", resp.StatusCode, c.status)
			}
			_ = conn.Close()
			entries := r.entries()
			if i := slices.IndexFunc(entries, func(e proxy.Entry) bool { return e.Reason == c.reason }); c.status != 200 && i < 0 || len(entries) != 1 {
				t.Errorf("log %+v", entries)
			}
			if n, _, _ := up.seen(); c.status != 200 && n != 0 {
				t.Error("something was sent on")
			}
		})
	}
}
