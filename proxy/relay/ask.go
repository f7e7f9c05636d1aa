package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/securebench/sbench/proxy"
)

// A Prompt is one question to a model.
type Prompt struct {
	System, User string
	Temperature  *float64 // nil: the model's own
}

// askTokens bounds an answer if the API requires a bound.
const askTokens = 4096

// Bounds of the waits between tries of [Ask].
const (
	askTries = 4
	askPause = time.Second // doubled for each try, unless the provider says how long
	maxPause = time.Minute
)

// ErrPrompt means that the provider refuses a prompt that the relay let pass. It is useless to try
// again.
var ErrPrompt = errors.New("the provider refuses the prompt")

// Ask sends a prompt of sbench's own through a relay, and returns the model's text. The relay adds the
// key, and logs and limits the request as for an agent. Ask tries again after errors on the
// provider's side.
func Ask(ctx context.Context, cfg Config, p Prompt) (string, error) {
	r, err := New(cfg)
	if err != nil {
		return "", err
	}
	path, body := p.request(cfg)
	return r.ask(ctx, question{uri: path, body: body})
}

// A question is a request for a generation.
type question struct {
	uri    string
	header http.Header
	body   []byte
}

// Probe asks the provider for one word, by the API that the agent used last, and returns the Facts of
// this request. It uses a fresh relay without budgets and pace. r may be closed.
func (r *Relay) Probe(ctx context.Context) Facts {
	const prompt = "Reply with the word OK."
	path, body := Prompt{System: "Be brief.", User: prompt}.request(r.cfg)
	if last, _ := r.ledger.asked(); strings.HasPrefix(last, "/v1/responses") {
		path, body = "/v1/responses", fmt.Appendf(nil, `{"model": %q, "input": %q}`, r.cfg.Model, prompt)
	}
	return r.askFresh(ctx, question{uri: path, body: body})
}

// Repeat sends the agent's first generation again, as Probe does. The Facts are zero if the agent asked
// for no generation, or if a generation has succeeded.
func (r *Relay) Repeat(ctx context.Context) Facts {
	if _, first := r.ledger.asked(); first != nil {
		return r.askFresh(ctx, *first)
	}
	return Facts{}
}

func (r *Relay) askFresh(ctx context.Context, q question) Facts {
	cfg := r.cfg
	cfg.MaxTotalTokens, cfg.MaxRequests, cfg.MaxCostUSD, cfg.Pace, cfg.Token = 0, 0, 0, nil, ""
	fresh, err := New(cfg)
	if err != nil { // impossible: New accepted the configuration for r
		return Facts{}
	}
	_, _ = fresh.ask(ctx, q) // the facts say how it ended
	return fresh.Facts()
}

// ask sends a request from this process and closes the relay.
func (r *Relay) ask(ctx context.Context, q question) (string, error) {
	defer func() { _ = r.Close() }()
	dial := func(context.Context, string, string) (net.Conn, error) { // without a listener, no other program can use the key
		ours, theirs := net.Pipe()
		go func() { _ = r.Serve(proxy.OneConn(theirs)) }()
		return ours, nil
	}
	client := &http.Client{Transport: &http.Transport{DialContext: dial, DisableKeepAlives: true}}
	for try := 1; ; try++ {
		text, wait, err := ask(ctx, client, r.cfg.Provider, q)
		if err == nil || wait < 0 || try == askTries || ctx.Err() != nil {
			return text, err
		}
		if wait == 0 {
			wait = askPause << (try - 1)
		}
		select {
		case <-time.After(min(wait, maxPause)):
		case <-ctx.Done():
			return "", context.Cause(ctx)
		}
	}
}

// ask makes one try. wait is the time until the next try, 0 if the provider does not say, or negative if
// it is useless to try again.
func ask(ctx context.Context, client *http.Client, provider Provider, q question) (text string, wait time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://relay"+q.uri, bytes.NewReader(q.body))
	if err != nil {
		return "", -1, err
	}
	maps.Copy(req.Header, q.header)
	req.Header.Set("Content-Type", "application/json")
	resp, err := client.Do(req)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	refusal := resp.Header.Get("X-Sbench-Relay") // set if the relay refused, and the provider got nothing
	switch status := resp.StatusCode; {
	case err != nil:
		return "", 0, err
	case status == http.StatusTooManyRequests, status >= 500:
		return "", retryAfter(resp.Header), fmt.Errorf("the provider answered %s", resp.Status)
	case status == http.StatusBadRequest && (refusal == "" || refusal == "provider_error"), status == http.StatusRequestEntityTooLarge:
		return "", -1, fmt.Errorf("%w (%s)", ErrPrompt, resp.Status)
	case status != http.StatusOK:
		return "", -1, fmt.Errorf("the provider answered %s", resp.Status)
	}
	return textOf(provider, answer), -1, nil
}

// request returns the path and the body of a prompt.
func (p Prompt) request(cfg Config) (string, []byte) {
	var path string
	var body map[string]any
	turn := func(role, text string) map[string]string { return map[string]string{"role": role, "content": text} }
	parts := func(text string) map[string]any { return map[string]any{"parts": []map[string]string{{"text": text}}} }
	switch cfg.Provider {
	case Anthropic:
		path = "/v1/messages"
		body = map[string]any{"model": cfg.Model, "max_tokens": askTokens, "system": p.System, "messages": []any{turn("user", p.User)}}
	case Google:
		path = "/v1beta/models/" + cfg.Model + ":generateContent"
		content := parts(p.User)
		content["role"] = "user"
		body = map[string]any{"systemInstruction": parts(p.System), "contents": []any{content}}
	default:
		path = "/v1/chat/completions"
		body = map[string]any{"model": cfg.Model, "messages": []any{turn("system", p.System), turn("user", p.User)}}
	}
	switch {
	case p.Temperature == nil:
	case cfg.Provider == Google:
		body["generationConfig"] = map[string]any{"temperature": *p.Temperature}
	default:
		body["temperature"] = *p.Temperature
	}
	text, _ := json.Marshal(body) // cannot fail: strings and numbers
	return path, text
}

// textOf returns the text of an answer; "" for an answer without text.
func textOf(p Provider, body []byte) string {
	var a struct {
		Content    []struct{ Type, Text string }
		Choices    []struct{ Message struct{ Content string } }
		Candidates []struct {
			Content struct {
				Parts []struct {
					Text    string
					Thought bool
				}
			}
		}
	}
	_ = json.Unmarshal(body, &a) // anything but an answer has no text
	var b strings.Builder
	switch {
	case p == Anthropic:
		for _, c := range a.Content {
			if c.Type == "text" {
				b.WriteString(c.Text)
			}
		}
	case p == Google && len(a.Candidates) > 0:
		for _, part := range a.Candidates[0].Content.Parts {
			if !part.Thought {
				b.WriteString(part.Text)
			}
		}
	case p == OpenAI && len(a.Choices) > 0:
		b.WriteString(a.Choices[0].Message.Content)
	}
	return b.String()
}
