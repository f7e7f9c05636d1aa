package relay_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy/relay"
)

const (
	generatePath = "/v1beta/models/m:generateContent"
	streamPath   = "/v1beta/models/m:streamGenerateContent"
)

// TestGooglePaths: only the configured model's methods are served, streams as events, and with
// the operator's key.
func TestGooglePaths(t *testing.T) {
	const body = `{"contents":[{"role":"user","parts":[{"text":"hi"}]}]}`
	p, url := scripted(t, providertest.Step{Say: "Hello there.", Usage: providertest.Usage{Input: 30, Output: 5}})
	r := newRig(t, relay.Google, url, nil)
	cases := []struct {
		path   string
		status int
		reason string
	}{
		{generatePath, 200, ""},
		{generatePath + "?key=sk-placeholder", 200, ""},
		{streamPath + "?alt=sse", 200, ""},
		{streamPath + "?alt=sse&key=sk-placeholder", 200, ""},
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
	if f := r.relay.Facts(); f.Succeeded != 4 || f.Usage.Input != 120 || f.Usage.Output != 20 {
		t.Errorf("%+v", f)
	}

	wrong := newRig(t, relay.Google, url, func(c *relay.Config) { c.Key = relay.NewKey("sk-wrong-0123456789abcdef") })
	resp := wrong.post(generatePath, body)
	if answer := text(t, resp); resp.StatusCode != http.StatusBadRequest || strings.Contains(answer, "sk-") || wrong.relay.Facts().LastCause != relay.BadKey {
		t.Errorf("%d %s, %+v", resp.StatusCode, answer, wrong.relay.Facts())
	}
}
