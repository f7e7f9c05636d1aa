package providertest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/providertest"
)

const key = "sk-test-0123456789"

// serve runs a script.
func serve(t *testing.T, script string) (*providertest.Provider, *httptest.Server) {
	t.Helper()
	p, err := providertest.New(key, script)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return p, srv
}

func post(t *testing.T, url, body string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func read(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

const (
	claudeTools = `"tools":[{"name":"Read","input_schema":{"properties":{"file_path":{}}}},{"name":"Bash","input_schema":{"properties":{"command":{"type":"string"},"description":{}}}},{"name":"Write","input_schema":{"properties":{"file_path":{},"content":{}}}}]`
	codexTools  = `"tools":[{"type":"function","name":"exec_command","parameters":{"properties":{"cmd":{"type":"string"}}}},{"type":"namespace","name":"n","tools":[{"type":"function","name":"wait","parameters":{}}]}]`
)

// TestCalls checks the calls that each agent gets for the same steps.
func TestCalls(t *testing.T) {
	const script = "shell echo 'hi'\nwrite /w/a.txt <<E\nit's\nE\nwrite b.txt <<E\nx\nE\nsay done\n"
	asMessages := func(n int) string {
		return fmt.Sprintf(`{"role":"assistant","content":[{"type":"text","text":"t"},{"type":"tool_use","id":"toolu_sbench_%04d"}]},{"role":"user","content":[]}`, n)
	}
	asItems := func(n int) string {
		return fmt.Sprintf(`{"type":"function_call","call_id":"call_sbench_%04d"},{"type":"function_call_output","call_id":"call_sbench_%04d"}`, n, n)
	}
	for _, c := range []struct {
		name, path, tools, field string
		history                  func(n int) string
		want                     []string // in the answers
	}{
		{"claude", "/v1/messages", claudeTools, "messages", asMessages, []string{
			`"name":"Bash","input":{"command":"echo 'hi'","description":"Run the next command"}`, `"name":"Write","input":{"content":"it's\n","file_path":"/w/a.txt"}`,
			`"name":"Bash","input":{"command":"mkdir -p '.' \u0026\u0026 printf %s 'x\n' \u003e'b.txt'"`, `"text":"done"`,
		}},
		{"codex", "/v1/responses", codexTools, "input", asItems, []string{
			`"name":"exec_command","arguments":{"cmd":"echo 'hi'"}`, `"name":"exec_command","arguments":{"cmd":"mkdir -p '/w' \u0026\u0026 printf %s 'it'\\''s\n' \u003e'/w/a.txt'"}`,
			`'b.txt'`, `"text":"done"`,
		}},
		{"code mode", "/v1/responses", `"x":0`, "input", func(n int) string {
			s := `{"type":"additional_tools","tools":[{"type":"namespace","name":"functions","tools":[{"type":"custom","name":"exec","description":"await tools.exec_command({})"}]}]}`
			if n >= 0 {
				s += fmt.Sprintf(`,{"type":"custom_tool_call","call_id":"call_sbench_%04d"}`, n)
			}
			return s
		}, []string{
			`"name":"exec","namespace":"functions","input":const r = await tools.exec_command({cmd: "echo 'hi'"});`, `/w/a.txt`, `b.txt`, `"text":"done"`,
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, srv := serve(t, script)
			for n, want := range c.want {
				var history []string
				if n > 0 || c.name == "code mode" {
					history = []string{c.history(n - 1)}
				}
				body := fmt.Sprintf(`{"model":"m",%s,"%s":[%s]}`, c.tools, c.field, strings.Join(history, ","))
				got := flat(t, read(t, post(t, srv.URL+c.path, body)))
				if !strings.Contains(got, want) {
					t.Errorf("step %d: %q is not in\n%s", n, want, got)
				}
			}
			if reqs := p.Requests(); len(reqs) != len(c.want) || reqs[1].Step != 1 || len(p.Problems()) > 0 {
				t.Errorf("requests %+v, problems %q", reqs, p.Problems())
			}
		})
	}
}

// flat returns the parts of an answer that matter, in a fixed order, and arguments
// without their quotes.
func flat(t *testing.T, answer string) string {
	t.Helper()
	var v struct {
		Content []struct {
			Type, Text, Name string
			Input            json.RawMessage
		}
		Output []struct {
			Type, Name, Namespace, Arguments, Input string
			Content                                 []struct{ Text string }
		}
	}
	if err := json.Unmarshal([]byte(answer), &v); err != nil {
		t.Fatalf("%v: %s", err, answer)
	}
	var b strings.Builder
	for _, c := range v.Content {
		_, _ = fmt.Fprintf(&b, `"text":%q "name":%q,"input":%s`, c.Text, c.Name, c.Input)
	}
	for _, o := range v.Output {
		for _, c := range o.Content {
			_, _ = fmt.Fprintf(&b, `"text":%q `, c.Text)
		}
		switch o.Type {
		case "function_call":
			_, _ = fmt.Fprintf(&b, `"name":%q,"arguments":%s`, o.Name, o.Arguments)
		case "custom_tool_call":
			_, _ = fmt.Fprintf(&b, `"name":%q,"namespace":%q,"input":%s`, o.Name, o.Namespace, o.Input)
		}
	}
	return b.String()
}

// TestStreams: the joined pieces of a stream are the unstreamed answer.
func TestStreams(t *testing.T) {
	const script = "think hm hm\ntokens in=100 cached=40 out=20 reasoning=5\nshell echo 'hé ho'\n"
	for _, c := range []struct {
		path, tools, field string
		want               []string
	}{
		{"/v1/messages", claudeTools, "messages", []string{"event: message_start", `"thinking_delta"`, `"input_json_delta"`, `"stop_reason":"tool_use"`, "event: message_stop", `"cache_read_input_tokens":40`}},
		{"/v1/responses", codexTools, "input", []string{"event: response.created", "response.function_call_arguments.delta", "event: response.output_item.done", "event: response.completed", `"cached_tokens":40`}},
		{"/v1/chat/completions", `"x":0`, "messages", []string{`"finish_reason":"stop"`, `"prompt_tokens":100`, "data: [DONE]"}},
	} {
		t.Run(c.path, func(t *testing.T) {
			_, srv := serve(t, script)
			resp := post(t, srv.URL+c.path, fmt.Sprintf(`{"model":"m",%s,"%s":[],"stream":true,"stream_options":{"include_usage":true}}`, c.tools, c.field))
			got := read(t, resp)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("%q is not in\n%s", want, got)
				}
			}
			for line := range strings.Lines(got) {
				if data, ok := strings.CutPrefix(strings.TrimSpace(line), "data: "); ok && data != "[DONE]" && !json.Valid([]byte(data)) {
					t.Errorf("no JSON: %s", data)
				}
			}
			if resp.Header.Get("Content-Type") != "text/event-stream" {
				t.Errorf("type %q", resp.Header.Get("Content-Type"))
			}
		})
	}
}

// TestFaults: faults come in the order of the script, and then the step's answer.
func TestFaults(t *testing.T) {
	const body = `{"model":"m","input":"x","stream":true}`
	p, srv := serve(t, "fail 429 2 after=3\nfail 500\ncut 2\ngarble\nerror server_error\nsay hello\n")
	url := srv.URL + "/v1/responses"
	for range 2 {
		if resp := post(t, url, body); resp.StatusCode != 429 || resp.Header.Get("Retry-After") != "3" {
			t.Errorf("status %d", resp.StatusCode)
		}
	}
	if resp := post(t, url, body); resp.StatusCode != 500 {
		t.Errorf("status %d", resp.StatusCode)
	}
	if b, err := io.ReadAll(post(t, url, body).Body); !errors.Is(err, io.ErrUnexpectedEOF) || strings.Count(string(b), "data:") != 2 {
		t.Errorf("cut: %q, %v", b, err)
	}
	if got := read(t, post(t, url, body)); strings.Contains(got, "completed") || !strings.Contains(got, "???") {
		t.Errorf("garbled: %s", got)
	}
	if got := read(t, post(t, url, body)); !strings.Contains(got, "response.failed") || !strings.Contains(got, "server_error") {
		t.Errorf("error: %s", got)
	}
	if got := read(t, post(t, url, body)); !strings.Contains(got, "response.completed") {
		t.Errorf("good: %s", got)
	}
	reqs := p.Requests()
	if len(reqs) != 7 || reqs[6].Fault != nil || reqs[3].Fault == nil || reqs[3].Fault.Cut != 2 {
		t.Errorf("requests %+v", reqs)
	}
}

func TestForEver(t *testing.T) {
	_, srv := serve(t, "fail 500 forever\nsay x\n")
	for range 20 {
		if resp := post(t, srv.URL+"/v1/messages", `{"model":"m"}`); resp.StatusCode != 500 {
			t.Fatalf("status %d", resp.StatusCode)
		}
	}
}

// TestBeside: a request beside the conversation does not take a step.
func TestBeside(t *testing.T) {
	p, srv := serve(t, "shell ls\nsay bye\n")
	if got := read(t, post(t, srv.URL+"/v1/messages", `{"model":"m","messages":[{"role":"user","content":"title?"}]}`)); !strings.Contains(got, `"text":"ok"`) {
		t.Error(got)
	}
	if got := read(t, post(t, srv.URL+"/v1/messages/count_tokens", `{"model":"m"}`)); !strings.Contains(got, "input_tokens") {
		t.Error(got)
	}
	if got := read(t, post(t, srv.URL+"/v1/messages", `{"model":"m","tools":[{"name":"Read"}]}`)); !strings.Contains(got, "no tool") {
		t.Error(got)
	}
	req, _ := http.NewRequest(http.MethodPost, srv.URL+"/v1/messages", strings.NewReader(`{}`))
	req.Header.Set("X-Api-Key", "sk-wrong-0123456789")
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if got := read(t, resp); resp.StatusCode != 401 || !strings.Contains(got, "sk-w***6789") {
		t.Errorf("status %d, %s", resp.StatusCode, got)
	}
	for _, r := range p.Requests() {
		if r.Step != -1 {
			t.Errorf("%s took step %d", r.Path, r.Step)
		}
	}
	if len(p.Problems()) != 2 {
		t.Errorf("problems %q", p.Problems())
	}
}
