package relay

import (
	"cmp"
	"crypto/subtle"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/securebench/sbench/proxy/relay/request"
)

// A dialect is the format of an answer's token counts.
type dialect int

const (
	noUsage dialect = iota
	messages
	responses
	chat
	generateContent
)

// A route is a kind of request that may be sent to a provider.
type route struct {
	method, path string
	body         *request.Form // nil: a request without a body
	dialect      dialect
	query        []string // parameters to forward
	model        string   // that the path names; "" if the body does
	stream       bool     // the answer is a stream; false if the body says so
}

// generates reports whether the request makes a model write, which costs tokens.
func (r route) generates() bool { return r.dialect != noUsage }

// routes returns everything that an agent may send. The rest of the providers' APIs stores, lists
// or runs files, jobs, agents or connections.
func routes(p Provider, model string) []route {
	const get, post = http.MethodGet, http.MethodPost
	switch p {
	case OpenAI:
		responsesBody, chatBody := request.Responses(), request.Chat()
		return []route{
			{method: post, path: "/v1/responses", body: &responsesBody, dialect: responses},
			{method: post, path: "/v1/responses/compact", body: &responsesBody, dialect: responses},
			{method: post, path: "/v1/chat/completions", body: &chatBody, dialect: chat},
			{method: get, path: "/v1/models", query: []string{"client_version"}},
		}
	case Google:
		at := "/v1beta/models/" + model
		generateBody, countBody := request.Generate(), request.CountTokens()
		return []route{
			{method: post, path: at + ":generateContent", body: &generateBody, dialect: generateContent, model: model},
			{method: post, path: at + ":streamGenerateContent", body: &generateBody, dialect: generateContent, model: model, stream: true, query: []string{"alt"}},
			{method: post, path: at + ":countTokens", body: &countBody, model: model},
			{method: get, path: at, model: model},
			{method: get, path: "/v1beta/models"},
		}
	}
	messagesBody := request.Messages()
	return []route{
		{method: post, path: "/v1/messages", body: &messagesBody, dialect: messages, query: []string{"beta"}},
		{method: post, path: "/v1/messages/count_tokens", body: &messagesBody, query: []string{"beta"}},
		{method: get, path: "/v1/models", query: []string{"beta", "limit", "after_id", "before_id"}},
	}
}

// find compares the bytes of the path as sent, so that the provider cannot decode, clean or
// split the path differently.
func find(all []route, req *http.Request) (route, bool) {
	path, _, _ := strings.Cut(req.RequestURI, "?")
	for _, r := range all {
		if r.method == req.Method && r.path == path && req.URL.RawPath == "" && req.URL.Path == path {
			return r, true
		}
	}
	return route{}, false
}

// target returns the URL at the provider, with the first value of each query parameter
// that the route lists.
func (r route) target(p Provider, base *url.URL, query url.Values) *url.URL {
	u := base.JoinPath(strings.TrimPrefix(r.path, apis()[p].base))
	kept := url.Values{}
	for _, name := range r.query {
		if v := query.Get(name); v != "" && request.CleanName(v) == v {
			kept.Set(name, v)
		}
	}
	u.RawQuery = kept.Encode()
	return u
}

// header returns the header for the provider. It copies only the agent's fields that are listed here,
// and so no credential, organization or project.
func header(p Provider, in http.Header) http.Header {
	out := http.Header{"Accept-Encoding": {"identity"}}
	for name := range in {
		if slices.Contains([]string{"Accept", "User-Agent", "X-App"}, name) || strings.HasPrefix(name, "X-Stainless-") {
			copyField(out, in, name)
		}
	}
	for _, name := range apis()[p].headers {
		copyField(out, in, name)
	}
	// With this field, codex declares that its tools are in the input.
	if p == OpenAI && in.Get(codexLite) == "true" {
		out.Set(codexLite, "true")
	}
	if p != Anthropic {
		return out
	}
	out.Set("Anthropic-Version", cmp.Or(out.Get("Anthropic-Version"), "2023-06-01"))
	if betas := filterBetas(in.Values("Anthropic-Beta")); betas != "" {
		out.Set("Anthropic-Beta", betas)
	}
	return out
}

const codexLite = "X-Openai-Internal-Codex-Responses-Lite"

// copyField copies the first value of a field, unless it is too long.
func copyField(out, in http.Header, name string) {
	if v := in.Get(name); v != "" && len(v) <= 512 {
		out.Set(name, v)
	}
}

// passingBetas returns the beta features, without dates, that neither lead outside nor raise the price.
func passingBetas() []string {
	return []string{
		"advanced-tool-use", "claude-code", "compact", "context-management", "effort", "fine-grained-tool-streaming", "interleaved-thinking",
		"mid-conversation-tool-changes", "model-context-window-exceeded", "output-128k", "pdfs", "prompt-caching", "prompt-caching-scope", "redact-thinking",
		"structured-outputs", "task-budgets", "thinking-display-updates", "thinking-token-count", "token-counting", "token-efficient-tools", "tool-examples",
	}
}

// filterBetas keeps only those names, since the name alone may have an effect.
func filterBetas(values []string) string {
	var kept []string
	for name := range strings.SplitSeq(strings.Join(values, ","), ",") {
		name = strings.TrimSpace(name)
		if undated := strings.TrimRight(name, "-0123456789"); len(kept) < 32 && slices.Contains(passingBetas(), undated) {
			kept = append(kept, name)
		}
	}
	return strings.Join(kept, ",")
}

// admits reports whether a request has the agent's token, in a place where providers' clients put a key.
func (c Config) admits(r *http.Request) bool {
	bearer, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	given := []string{bearer, r.Header.Get("X-Api-Key"), r.Header.Get("X-Goog-Api-Key"), r.Header.Get(cmp.Or(c.KeyHeader, "Api-Key")), r.URL.Query().Get("key")}
	return c.Token == "" || slices.ContainsFunc(given, func(s string) bool { return subtle.ConstantTimeCompare([]byte(s), []byte(c.Token)) == 1 })
}

// authorize adds the real credential.
func (c Config) authorize(h http.Header) {
	api := apis()[c.Provider]
	if c.Bearer && c.Provider == Anthropic {
		api = apis()[OpenAI]
	}
	if c.KeyHeader != "" {
		api.key, api.prefix = c.KeyHeader, ""
	}
	h.Set(api.key, api.prefix+c.Key.value())
}

// modelOf returns the model that a request to Google's API names in its path; "" if
// there is none.
func modelOf(req *http.Request) string {
	rest, ok := strings.CutPrefix(req.URL.Path, "/v1beta/models/")
	model, call, isCall := strings.Cut(rest, ":")
	if !ok || !isCall || req.Method != http.MethodPost || request.CleanName(call) != call {
		return ""
	}
	return request.CleanName(model)
}
