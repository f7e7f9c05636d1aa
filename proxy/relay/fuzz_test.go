package relay_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/proxy/relay"
)

// FuzzInspect: an inspected body passes a second inspection unchanged, and has no hosted tools.
func FuzzInspect(f *testing.F) {
	for _, api := range toolAPIs() {
		for _, c := range api.cases {
			f.Add([]byte(whole(api.path, c.body)))
		}
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, api := range apis() {
			out, _, err := relay.Inspect(api.provider, api.path, body)
			if err != nil {
				continue
			}
			if !json.Valid(out) {
				t.Fatalf("%s: %q became %q", api.path, body, out)
			}
			again, found, err := relay.Inspect(api.provider, api.path, out)
			if err != nil || len(found.Removed) > 0 || !bytes.Equal(out, again) {
				t.Fatalf("%s: %q became %q, and that %q, %q, %v", api.path, body, out, again, found.Removed, err)
			}
			checkNoHosted(t, api.path, out)
		}
	})
}

// checkNoHosted reads the body as leniently as encoding/json does, and fails if it has a
// hosted tool.
func checkNoHosted(t *testing.T, path string, out []byte) {
	t.Helper()
	type tool struct {
		Type  string
		Tools []json.RawMessage
	}
	var req struct {
		Tools      []json.RawMessage
		MCPServers json.RawMessage `json:"mcp_servers"`
		Container  json.RawMessage
		Messages   []struct{ Content json.RawMessage }
		Input      json.RawMessage
	}
	if json.Unmarshal(out, &req) != nil {
		return // with other types than the APIs accept
	}
	var check func(raw json.RawMessage)
	check = func(raw json.RawMessage) {
		var one tool
		_ = json.Unmarshal(raw, &one)
		for _, bad := range []string{"mcp", "web_", "code_", "file_search", "image_gen", "computer", "advisor"} {
			if strings.HasPrefix(one.Type, bad) {
				t.Fatalf("%s: a tool is left in %q", path, out)
			}
		}
		if path == responsesPath { // only this API has tools in tools
			for _, inner := range one.Tools {
				check(inner)
			}
		}
	}
	for _, raw := range req.Tools {
		check(raw)
	}
	var items []tool
	_ = json.Unmarshal(req.Input, &items)
	for _, item := range items {
		for _, raw := range item.Tools {
			check(raw)
		}
	}
	if s := string(req.MCPServers); path == messagesPath && s != "" && s != "null" && strings.Trim(s, "[] \t\r\n") != "" {
		t.Fatalf("%s: servers are left in %q", path, out)
	}
}

// FuzzEvents: an event stream has the same events in one piece and in pieces cut anywhere, and no
// count is negative or missing.
func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":1}}}\r\n\r\ndata: [DONE]\n\n"), uint(7), true)
	f.Add([]byte("event: x\ndata: a\ndata: b\n\n: c\rdata\r\r"), uint(3), true)
	f.Add([]byte(`{"usage":{"input_tokens":-1,"output_tokens":1e3}}`), uint(5), false)
	f.Add([]byte("data: {\"choices\":[],\"usage\":{}}\n\n"), uint(20), true)
	f.Fuzz(func(t *testing.T, stream []byte, at uint, sse bool) {
		cut := int(at % uint(len(stream)+1))
		if diff := cmp.Diff(relay.Events(stream), relay.Events(stream[:cut], stream[cut:])); diff != "" {
			t.Fatalf("cut at %d (-whole +cut):\n%s", cut, diff)
		}
		for _, api := range apis() {
			u, whole, cause := relay.Meter(api.path, api.provider, sse, stream)
			u2, whole2, cause2 := relay.Meter(api.path, api.provider, sse, stream[:cut], stream[cut:])
			if u != u2 || whole != whole2 || cause != cause2 {
				t.Fatalf("%s: cut at %d: %+v and %+v", api.path, cut, u, u2)
			}
			if u.Input < 0 || u.Output < 0 || u.Cached < 0 || u.Cached > u.Input || u.Reasoning < 0 || u.Reasoning > u.Output {
				t.Fatalf("%s: usage %+v", api.path, u)
			}
			if u.Total() == 0 && !whole && cause == "" && !bytes.Contains(stream, []byte("error")) {
				t.Fatalf("%s: a cut answer costs nothing: %q", api.path, stream)
			}
		}
	})
}

// FuzzFilters: the filters between the provider and the agent change only the key and the chunk to
// hide, wherever the pieces are cut.
func FuzzFilters(f *testing.F) {
	f.Add([]byte("data: {\"choices\":[],\"usage\":{}}\n\ndata: secretkey\n\n"), uint(9))
	f.Add([]byte("secretkeysecretke"), uint(3))
	f.Fuzz(func(t *testing.T, stream []byte, at uint) {
		cut := int(at % uint(len(stream)+1))
		const key = "secretkey"
		var a, b, c, d bytes.Buffer
		for _, step := range []error{
			relay.Scrub(key, &a, stream), relay.Scrub(key, &b, stream[:cut], stream[cut:]),
			relay.Hide(&c, stream), relay.Hide(&d, stream[:cut], stream[cut:]),
		} {
			if step != nil {
				t.Fatal(step)
			}
		}
		if a.String() != b.String() || c.String() != d.String() {
			t.Fatalf("cut at %d: %q and %q; %q and %q", cut, &a, &b, &c, &d)
		}
		if strings.Contains(a.String(), key) {
			t.Fatalf("the key is in %q", &a)
		}
		if !bytes.Contains(stream, []byte(`"usage"`)) && !bytes.Equal(c.Bytes(), stream) {
			t.Fatalf("%q became %q", stream, &c)
		}
	})
}
