package relay_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

const (
	generatePath = "/v1beta/models/m:generateContent"
	streamPath   = "/v1beta/models/m:streamGenerateContent"
)

// TestGoogleTools: the relay removes everything from a request to generateContent that would make the
// provider act outside, in both spellings of names.
func TestGoogleTools(t *testing.T) {
	for _, c := range []struct{ name, body, want, found string }{
		{"text", `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`, "=", ""},
		{"one content", `{"contents":{"parts":{"text":"hi"}},"systemInstruction":{"parts":[{"text":"be kind"}]}}`, "=", ""},
		{"functions", `{"tools":[{"functionDeclarations":[{"name":"f","parametersJsonSchema":{"type":"object"}}]}],"toolConfig":{"functionCallingConfig":{"mode":"AUTO"}}}`, "=", ""},
		{"search", `{"tools":[{"functionDeclarations":[]},{"googleSearch":{}}]}`, `{"tools":[{"functionDeclarations":[]}]}`, "googleSearch"},
		{"search beside functions", `{"tools":[{"functionDeclarations":[],"google_search":{}}]}`, `{"tools":[{"functionDeclarations":[]}]}`, "google_search"},
		{"only hosted tools", `{"tools":[{"codeExecution":{}},{"urlContext":{}},{"url_context":{}}],"contents":[]}`, `{"contents":[]}`, "codeExecution"},
		{"retrieval settings", `{"toolConfig":{"retrievalConfig":{}}}`, `{}`, "retrievalConfig"},
		{"file by address", `{"contents":[{"parts":[{"fileData":{"fileUri":"https://evil.test"}}]}]}`, `{"contents":[{"parts":[{"text":"` + notice + `"}]}]}`, "fileData"},
		{"file by address, the other name", `{"contents":[{"parts":[{"text":"look","file_data":{"file_uri":"https://evil.test"}}]}]}`, `{"contents":[{"parts":[{"text":"look"}]}]}`, "file_data"},
		{"file in the instructions", `{"system_instruction":{"parts":{"fileData":{}}}}`, `{"system_instruction":{"parts":{"text":"` + notice + `"}}}`, "fileData"},
		{"file in a result", `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"fileData":"data"},"parts":[{"fileData":{}}]}}]}]}`, `{"contents":[{"parts":[{"functionResponse":{"name":"f","response":{"fileData":"data"},"parts":[{}]}}]}]}`, "fileData"},
		{"bytes", `{"contents":[{"parts":[{"inlineData":{"mimeType":"image/png","data":"AA=="}}]}]}`, "=", ""},
		{"calls", `{"contents":[{"role":"model","parts":[{"functionCall":{"name":"f","args":{"fileData":1}},"thoughtSignature":"x"},{"text":"hm","thought":true}]}]}`, "=", ""},
		{"kept state", `{"cachedContent":"cachedContents/x"}`, "!", ""},
		{"kept state, the other name", `{"cached_content":"cachedContents/x"}`, "!", ""},
		{"other models", `{"generationConfig":{"temperature":0,"routingConfig":{"manualMode":{"modelName":"other"}}}}`, `{"generationConfig":{"temperature":0}}`, "routingConfig"},
		{"a field that nobody knows", `{"timeTravel":{}}`, `{}`, "timeTravel"},
		{"another model in the body", `{"model":"models/other"}`, "!", ""},
		{"the model in the body", `{"model":"models/m","generationConfig":{"candidateCount":1,"maxOutputTokens":5}}`, "=", ""},
		{"several candidates", `{"generationConfig":{"candidate_count":2}}`, "!", ""},
		{"capitals", `{"Contents":[]}`, "!", ""},
		{"parts in capitals", `{"contents":[{"Parts":[{"fileData":{}}]}]}`, "!", ""},
		{"twice", `{"tools":[],"tools":[{"googleSearch":{}}]}`, "!", ""},
		{"no list", `{"tools":{"googleSearch":{}}}`, "!", ""},
		{"no object", `{"contents":["x"]}`, "!", ""},
		{"null", `{"contents":null,"tools":null,"toolConfig":null,"cachedContent":null,"generationConfig":null,"systemInstruction":null}`, "=", ""},
		{"null inside", `{"contents":[null,{"parts":null},{"parts":[null,{"functionResponse":null}]}],"tools":[null]}`, "=", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, found, err := relay.Inspect(relay.Google, generatePath, []byte(c.body))
			switch {
			case c.want == "!":
				if err == nil {
					t.Errorf("%s was not refused", out)
				}
				return
			case c.want == "=":
				c.want = c.body
			}
			first := append(found.Removed, "")[0]
			if err != nil || string(out) != c.want || first != c.found {
				t.Errorf("%s, %v, %v", out, found.Removed, err)
			}
		})
	}
	count := `{"generateContentRequest":{"model":"models/m","contents":[{"parts":[{"fileData":{}}]}]}}`
	if out, found, err := relay.Inspect(relay.Google, "/v1beta/models/m:countTokens", []byte(count)); err != nil || len(found.Removed) != 1 || strings.Contains(string(out), "fileData") {
		t.Errorf("%s, %v, %v", out, found.Removed, err)
	}
	if _, _, err := relay.Inspect(relay.Google, "/v1beta/models/m:countTokens", []byte(strings.Replace(count, "models/m", "models/other", 1))); err == nil {
		t.Error("another model's tokens were counted")
	}
}

// TestGoogleUsage counts answers of generateContent. The requests have 400 bytes.
func TestGoogleUsage(t *testing.T) {
	const (
		piece = `data: {"candidates":[{"content":{"parts":[{"text":"finishReason"}]}}],"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30}}` + "\n\n"
		last  = `data: {"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":20,"candidatesTokenCount":5,"thoughtsTokenCount":2,"toolUsePromptTokenCount":4}}` + "\n\n"
	)
	for _, c := range []struct {
		name   string
		stream bool
		answer string
		want   proxy.Usage
		whole  bool
		cause  relay.Cause
	}{
		{"whole", false, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":5}}`, proxy.Usage{Input: 30, Output: 5}, true, ""},
		{"stream", true, piece + piece + last, proxy.Usage{Input: 34, Cached: 20, Output: 7, Reasoning: 2}, true, ""},
		{"cut", true, piece + piece, proxy.Usage{Input: 30, Output: int64(2*len(piece)) / 8, Estimated: true}, false, ""},
		{"blocked", true, `data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":30}}` + "\n\n", proxy.Usage{Input: 30, Output: 11, Estimated: true}, true, ""},
		{"overloaded", true, piece + `data: {"error":{"code":503,"status":"UNAVAILABLE","message":"x"}}` + "\n\n", proxy.Usage{Input: 30, Output: 25, Estimated: true}, false, relay.ServerError},
		{"exhausted", false, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, proxy.Usage{}, true, relay.RateLimited},
		{"garbage", false, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":-1,"candidatesTokenCount":"many"}}`, proxy.Usage{Input: 400, Output: 1000, Estimated: true}, true, ""},
		{"usage of another type", false, `{"usageMetadata":"none"}`, proxy.Usage{Input: 400, Output: 1000, Estimated: true}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			path := generatePath
			if c.stream {
				path = streamPath
			}
			u, whole, cause := relay.Meter(path, relay.Google, c.stream, []byte(c.answer))
			if diff := cmp.Diff(c.want, u); diff != "" || whole != c.whole || cause != c.cause {
				t.Errorf("whole %v, cause %q, %s", whole, cause, diff)
			}
		})
	}
}

// TestGooglePaths: only the configured model's methods are served, streams as events, and with
// the operator's key.
func TestGooglePaths(t *testing.T) {
	const body = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	p, url := scripted(t, "tokens in=30 out=5\nsay Hello there.")
	r := newRig(t, relay.Google, url, nil)
	cases := []struct {
		path   string
		status int
		reason string
	}{
		{generatePath, 200, ""},
		{generatePath + "?key=sk-placeholder", 200, ""},
		{streamPath + "?alt=sse", 200, ""},
		{streamPath, 400, "malformed_request"},
		{streamPath + "?alt=json", 400, "malformed_request"},
		{streamPath + "?alt=sse&alt=json", 400, "malformed_request"},
		{"/v1beta/models/m:countTokens", 200, ""},
		{"/v1beta/models/other:generateContent", 400, "model_not_allowed"},
		{"/v1beta/models/m:batchGenerateContent", 404, "path_not_allowed"},
		{"/v1beta/tunedModels/m:generateContent", 404, "path_not_allowed"},
		{"/v1beta/models/m%3AgenerateContent", 404, "path_not_allowed"},
		{"/v1beta/files", 404, "path_not_allowed"},
		{"/v1beta/cachedContents", 404, "path_not_allowed"},
	}
	for _, c := range cases {
		resp := r.post(c.path, body)
		if answer := text(t, resp); resp.StatusCode != c.status {
			t.Errorf("%s: %d %s", c.path, resp.StatusCode, answer)
		}
	}
	for i, e := range r.entries() {
		if c := cases[i]; e.Reason != c.reason {
			t.Errorf("%s: %s, want %s", c.path, e.Reason, c.reason)
		}
	}
	for _, request := range p.Requests() {
		if request.Header.Get("X-Goog-Api-Key") != realKey || request.Header.Get("Authorization") != "" || strings.Contains(request.Query, "key") {
			t.Errorf("%s?%s: %v", request.Path, request.Query, request.Header)
		}
	}
	if f := r.relay.Facts(); f.Succeeded != 3 || f.Usage.Input != 90 || f.Usage.Output != 15 {
		t.Errorf("%+v", f)
	}

	wrong := newRig(t, relay.Google, url, func(c *relay.Config) { c.Key = relay.NewKey("sk-wrong-0123456789abcdef") })
	resp := wrong.post(generatePath, body)
	if answer := text(t, resp); resp.StatusCode != http.StatusBadRequest || strings.Contains(answer, "sk-") || wrong.relay.Facts().LastCause != relay.BadKey {
		t.Errorf("%d %s, %+v", resp.StatusCode, answer, wrong.relay.Facts())
	}
}
