package relay_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/internal/test/providertest"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// scripted serves a script to clients with the real key.
func scripted(t *testing.T, steps ...providertest.Step) (*providertest.Provider, string) {
	t.Helper()
	p := providertest.New(realKey, steps...)
	srv := httptest.NewServer(p)
	t.Cleanup(srv.Close)
	return p, srv.URL
}

// apis returns the APIs with their paths. It leaves out Google's API, which has the model and the choice
// of a stream in the path.
func apis() []struct {
	provider relay.Provider
	path     string
	prompt   string
} {
	return []struct {
		provider relay.Provider
		path     string
		prompt   string
	}{
		{relay.Anthropic, messagesPath, `"messages":[{"role":"user","content":"hi"}]`},
		{relay.OpenAI, responsesPath, `"input":"hi"`},
		{relay.OpenAI, chatPath, `"messages":[{"role":"user","content":"hi"}]`},
	}
}

// TestAnswersPass: the relay forwards the provider's answers byte for byte, and counts them.
func TestAnswersPass(t *testing.T) {
	for _, api := range apis() {
		for _, stream := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%v", api.path, stream), func(t *testing.T) {
				_, url := scripted(t, providertest.Step{Say: "hello \U0001F600 world", Think: "hm", Usage: providertest.Usage{Input: 100, Cached: 40, Output: 20, Reasoning: 5}})
				body := fmt.Sprintf(`{"model":"m",%s,"stream":%v}`, api.prompt, stream)
				req, _ := http.NewRequest(http.MethodPost, url+api.path, strings.NewReader(body))
				req.Header.Set("X-Api-Key", realKey)
				direct, err := http.DefaultTransport.RoundTrip(req)
				must.Do(t, err)
				want := text(t, direct)
				_ = direct.Body.Close()

				r := newRig(t, api.provider, url, nil)
				resp := r.post(api.path, body)
				if diff := cmp.Diff(want, text(t, resp)); diff != "" && api.path != chatPath {
					t.Errorf("the answer changed (-want +got):\n%s", diff)
				}
				if got, want := resp.Header.Get("Content-Type"), direct.Header.Get("Content-Type"); got != want {
					t.Errorf("type %q, want %q", got, want)
				}
				usage := proxy.Usage{Input: 100, Cached: 40, Output: 20, Reasoning: 5}
				e := r.entries()[0]
				must.Equal(t, &usage, e.Usage)
				if e.Up != int64(len(body)) && api.path != chatPath || e.Down < 100 || e.Task != "task" || e.Attempt != 2 || e.Model != "m" || e.Stream != stream ||
					e.Status != 200 || e.Kind != proxy.KindRelay || e.Provider != string(api.provider) || e.Host != "127.0.0.1" || e.Address == "" || e.Time.IsZero() {
					t.Errorf("entry %+v", e)
				}
				if f := r.relay.Facts(); f.Usage != usage || f.Sent != 1 || f.Succeeded != 1 || f.ProviderFailed() {
					t.Errorf("facts %+v", f)
				}
			})
		}
	}
}

// TestChatCountIsHidden: the relay always asks for the counts, but only an agent that
// asked for them sees them.
func TestChatCountIsHidden(t *testing.T) {
	for _, asks := range []bool{false, true} {
		_, url := scripted(t, providertest.Step{Say: "hello", Usage: providertest.Usage{Input: 100, Output: 20}})
		r := newRig(t, relay.OpenAI, url, nil)
		got := text(t, r.post(chatPath, fmt.Sprintf(`{"model":"m","messages":[],"stream":true,"stream_options":{"include_usage":%v}}`, asks)))
		if strings.Contains(got, `"choices":[]`) != asks || !strings.Contains(got, "[DONE]") || !strings.Contains(got, `"el"`) {
			t.Errorf("asked %v: %s", asks, got)
		}
		if u := r.relay.Facts().Usage; u != (proxy.Usage{Input: 100, Output: 20}) {
			t.Errorf("asked %v: usage %+v", asks, u)
		}
	}
}

// TestEventsPassAtOnce has an upstream that writes an event only after the agent has
// read the previous one.
func TestEventsPassAtOnce(t *testing.T) {
	for _, hide := range []bool{false, true} {
		read := make(chan struct{})
		r := newRig(t, relay.OpenAI, upstream(t, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			_ = http.NewResponseController(w).Flush()
			for i := range 20 {
				select {
				case <-read:
				case <-req.Context().Done():
					return
				}
				_, _ = fmt.Fprintf(w, "data: {\"choices\":[{\"index\":%d}]}\n\n", i)
				_ = http.NewResponseController(w).Flush()
			}
			_, _ = io.WriteString(w, "data: [DONE]\n\n")
		}), nil)
		watch := time.AfterFunc(patience, func() { _ = r.relay.Close() })
		body := `{"model":"m","stream":true,"stream_options":{"include_usage":true}}`
		if hide {
			body = `{"model":"m","stream":true}`
		}
		resp := r.post(chatPath, body)
		in := bufio.NewReader(resp.Body)
		for i := range 20 {
			read <- struct{}{}
			line, err := in.ReadString('\n')
			if _, _ = in.ReadString('\n'); err != nil || !strings.Contains(line, fmt.Sprintf(":%d}", i)) {
				t.Fatalf("hide %v: event %d: %q, %v", hide, i, line, err)
			}
		}
		watch.Stop()
	}
}

// stuck is an upstream that sends a part of a stream and then nothing. The channels say
// when each request began and ended.
func stuck(t *testing.T, head bool) (url string, began, ended chan struct{}) {
	began, ended = make(chan struct{}, 100), make(chan struct{}, 100)
	return upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if head {
			w.Header().Set("Content-Type", "text/event-stream")
			_, _ = io.WriteString(w, `data: {"type":"message_start","message":{"usage":{"input_tokens":10,"output_tokens":1}}}`+"\n\n")
			_ = http.NewResponseController(w).Flush()
		}
		began <- struct{}{}
		<-r.Context().Done()
		ended <- struct{}{}
	}), began, ended
}

func await(t *testing.T, what string, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-time.After(patience):
		t.Fatalf("%s did not happen", what)
	}
}

// TestAgentLeaves has the agent close the connection during a stream, or before the answer begins. If
// the provider does not send a count in time, the relay charges the count's bound.
func TestAgentLeaves(t *testing.T) {
	for _, head := range []bool{false, true} {
		url, began, ended := stuck(t, head)
		r := newRig(t, relay.Anthropic, url, func(c *relay.Config) { c.Limits.Linger = time.Millisecond })
		ctx, cancel := context.WithCancel(t.Context())
		body := `{"model":"m","stream":true,"max_tokens":7000,"system":"` + strings.Repeat("a", 4000) + `"}`
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+messagesPath, strings.NewReader(body))
		if head {
			resp, err := http.DefaultTransport.RoundTrip(req)
			must.Do(t, err)
			defer func() { _ = resp.Body.Close() }()
			if _, err := resp.Body.Read(make([]byte, 10)); err != nil {
				t.Fatal(err)
			}
		} else {
			go func() {
				resp, err := http.DefaultTransport.RoundTrip(req)
				if err == nil {
					_ = resp.Body.Close()
				}
			}()
			await(t, "the request at the provider", began)
		}
		cancel()
		await(t, "the end of the request at the provider", ended)
		e := r.entries()
		f := r.relay.Facts()
		if len(e) != 1 || e[0].Verdict != proxy.Error || e[0].Reason != "agent_left" {
			t.Errorf("head %v: log %+v", head, e)
		}
		if f.Left != 1 || f.ProviderFailed() || f.Succeeded != 0 {
			t.Errorf("head %v: facts %+v", head, f)
		}
		if !head && f.Usage != (proxy.Usage{Input: int64(len(body)), Output: 7000, Estimated: true}) {
			t.Errorf("usage %+v", f.Usage)
		}
		if head && f.Usage != (proxy.Usage{Input: 10, Output: 7000, Estimated: true}) {
			t.Errorf("usage %+v", f.Usage)
		}
	}
}

// TestCut: an agent can tell a cut answer from a whole one.
func TestCut(t *testing.T) {
	for _, api := range apis() {
		for _, stream := range []bool{false, true} {
			_, url := scripted(t, providertest.Step{Say: "hello", Faults: []providertest.Fault{{Cut: 3, Forever: true}}})
			r := newRig(t, api.provider, url, nil)
			resp := r.post(api.path, fmt.Sprintf(`{"model":"m",%s,"stream":%v}`, api.prompt, stream))
			if got, err := io.ReadAll(resp.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s, stream %v: read %q, %v", api.path, stream, got, err)
			}
			must.Await(t, "the cut", func() bool { return r.relay.Facts().Failed[relay.AnswerCut] == 1 })
			f := r.relay.Facts()
			if !f.ProviderFailed() || f.LastCause != relay.AnswerCut || f.Usage.Total() == 0 || !f.Usage.Estimated {
				t.Errorf("%s, stream %v: facts %+v", api.path, stream, f)
			}
		}
	}
}

// TestSilence: a provider that sends nothing is cut off. The relay charges the bounds, since the provider
// may still be working.
func TestSilence(t *testing.T) {
	for _, head := range []bool{false, true} {
		url, _, ended := stuck(t, head)
		r := newRig(t, relay.Anthropic, url, func(c *relay.Config) { c.Limits.Silence = 500 * time.Millisecond })
		body := `{"model":"m","stream":true,"max_tokens":5000}`
		resp := r.post(messagesPath, body)
		_, err := io.ReadAll(resp.Body)
		await(t, "the end of the request at the provider", ended)
		f := r.relay.Facts()
		if head && (err == nil || f.Failed[relay.AnswerCut] != 1) || !head && (err != nil || resp.StatusCode != 502 || f.Failed[relay.Unreachable] != 1) {
			t.Errorf("head %v: status %d, %v, facts %+v", head, resp.StatusCode, err, f)
		}
		want := proxy.Usage{Input: int64(len(body)), Output: 5000, Estimated: true}
		if head {
			want.Input = 10 // as the answer began
		}
		if f.Usage != want {
			t.Errorf("head %v: what was sent costs %+v", head, f.Usage)
		}
	}
}

// TestSilentErrors: a provider that begins an error and then sends nothing is cut off, and
// the agent gets an error with the provider's status, which costs nothing.
func TestSilentErrors(t *testing.T) {
	body := `{"model":"m","max_tokens":5000}`
	for _, code := range []int{400, 401, 429, 500} {
		ended := make(chan struct{}, 1)
		url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(code)
			_, _ = io.WriteString(w, `{"error":`)
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			ended <- struct{}{}
		})
		r := newRig(t, relay.Anthropic, url, func(c *relay.Config) { c.Limits.Silence = 500 * time.Millisecond })
		watch := time.AfterFunc(patience, func() { _ = r.relay.Close() })
		resp := r.post(messagesPath, body)
		if got := text(t, resp); resp.StatusCode != code || !strings.Contains(got, "sbench: the provider") {
			t.Errorf("%d: status %d, %s", code, resp.StatusCode, got)
		}
		watch.Stop()
		await(t, "the end of the request at the provider", ended)
		if r.entries(); r.relay.Facts().Usage != (proxy.Usage{}) {
			t.Errorf("%d: costs %+v", code, r.relay.Facts().Usage)
		}
	}
}
