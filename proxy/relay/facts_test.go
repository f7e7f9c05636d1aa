package relay_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// TestFacts plays a provider's answers one after the other, and compares the facts.
func TestFacts(t *testing.T) {
	const good = 200
	for _, c := range []struct {
		name    string
		answers []int // 1: gzip, 2: redirect, 3: hang up, 4: error in a stream, 5: cut stream, 6: another protocol, 7: the agent's error in a stream
		want    relay.Facts
	}{
		{"never asked", nil, relay.Facts{}},
		{"good", []int{good, good}, relay.Facts{Sent: 2, Succeeded: 2, Statuses: []int{200, 200}}},
		{"rate, then good", []int{429, good}, relay.Facts{Sent: 2, Succeeded: 1, Failed: map[relay.Cause]int64{relay.RateLimited: 1}, Statuses: []int{429, 200}, LastCause: relay.RateLimited}},
		{"rate to the end", []int{good, 429, 429}, relay.Facts{Sent: 3, Succeeded: 1, Failed: map[relay.Cause]int64{relay.RateLimited: 2}, Statuses: []int{200, 429, 429}, Outage: 2, LastCause: relay.RateLimited}},
		{"server to the end", []int{500, 529, 503}, relay.Facts{Sent: 3, Failed: map[relay.Cause]int64{relay.ServerError: 3}, Statuses: []int{500, 529, 503}, Outage: 3, LastCause: relay.ServerError}},
		{"errors in streams that are the agent's", []int{500, 7}, relay.Facts{Sent: 2, Failed: map[relay.Cause]int64{relay.ServerError: 1}, Statuses: []int{500, 200}, LastCause: relay.ServerError}},
		{"bad key", []int{401, 403, 402}, relay.Facts{Sent: 3, Failed: map[relay.Cause]int64{relay.BadKey: 3}, Statuses: []int{401, 403, 402}, Outage: 3, LastCause: relay.BadKey}},
		{"asked badly", []int{500, 400, 404, 413}, relay.Facts{Sent: 4, Failed: map[relay.Cause]int64{relay.ServerError: 1}, Statuses: []int{500, 400, 404, 413}, LastCause: relay.ServerError}},
		{"compressed", []int{1}, relay.Facts{Sent: 1, Failed: map[relay.Cause]int64{relay.BrokenAnswer: 1}, Statuses: []int{200}, Outage: 1, LastCause: relay.BrokenAnswer}},
		{"redirect", []int{2}, relay.Facts{Sent: 1, Failed: map[relay.Cause]int64{relay.BrokenAnswer: 1}, Statuses: []int{307}, Outage: 1, LastCause: relay.BrokenAnswer}},
		{"hung up", []int{3, good, 3}, relay.Facts{Sent: 3, Succeeded: 1, Failed: map[relay.Cause]int64{relay.Unreachable: 2}, Statuses: []int{0, 200, 0}, Outage: 1, LastCause: relay.Unreachable}},
		{"error in a stream", []int{4}, relay.Facts{Sent: 1, Failed: map[relay.Cause]int64{relay.ServerError: 1}, Statuses: []int{200}, Outage: 1, LastCause: relay.ServerError}},
		{"stream without an end", []int{5, good}, relay.Facts{Sent: 2, Succeeded: 1, Failed: map[relay.Cause]int64{relay.AnswerCut: 1}, Statuses: []int{200, 200}, LastCause: relay.AnswerCut}},
		{"another protocol", []int{6}, relay.Facts{Sent: 1, Failed: map[relay.Cause]int64{relay.BrokenAnswer: 1}, Statuses: []int{101}, Outage: 1, LastCause: relay.BrokenAnswer}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var n atomic.Int64
			r := newRig(t, relay.Anthropic, upstream(t, func(w http.ResponseWriter, req *http.Request) {
				_, _ = io.Copy(io.Discard, req.Body)
				play(w, c.answers[n.Add(1)-1])
			}), nil)
			var last *http.Response
			for range c.answers {
				last = r.post(messagesPath, `{"model":"m","stream":true}`)
				_, _ = io.ReadAll(last.Body) // also of a cut one
			}
			if c.want.Outage > 0 && (c.want.LastCause == relay.Unreachable || c.want.LastCause == relay.BrokenAnswer) && last.StatusCode != 502 {
				t.Errorf("status %d", last.StatusCode)
			}
			_ = r.relay.Close()
			got := r.relay.Facts()
			got.Usage, got.Seen = proxy.Usage{}, 0
			if c.want.Failed == nil {
				c.want.Failed = map[relay.Cause]int64{}
			}
			c.want.Stripped, c.want.External = map[string]int64{}, map[string]int64{}
			must.Equal(t, c.want, got)
			if want := c.want.Outage > 0; got.ProviderFailed() != want {
				t.Errorf("provider failed: %v", !want)
			}
		})
	}
}

func play(w http.ResponseWriter, what int) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	switch what {
	case 1:
		h.Set("Content-Encoding", "gzip")
	case 2:
		h.Set("Location", "http://evil.test/")
		w.WriteHeader(307)
	case 3:
		panic(http.ErrAbortHandler)
	case 4, 5, 7:
		h.Set("Content-Type", "text/event-stream")
		if what == 4 {
			_, _ = io.WriteString(w, `data: {"type":"error","error":{"type":"overloaded_error"}}`+"\n\n")
		}
		if what == 7 {
			_, _ = io.WriteString(w, `data: {"type":"error","error":{"type":"invalid_request_error"}}`+"\n\n")
		}
		return
	case 6:
		h.Set("Upgrade", "websocket")
		h.Set("Connection", "Upgrade")
		w.WriteHeader(101)
		return
	default:
		w.WriteHeader(what)
	}
	_, _ = io.WriteString(w, `{"usage":{"input_tokens":1,"output_tokens":1}}`)
}

// TestBudgets: an exhausted budget yields an error that both clients understand. Lists of models use up the budget of
// requests.
func TestBudgets(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*relay.Config)
		good   int // requests, of 15 tokens each
		want   relay.Budget
	}{
		{"requests", func(c *relay.Config) { c.MaxRequests = 3 }, 3, relay.RequestBudget},
		{"lists", func(c *relay.Config) { c.MaxRequests = 2 }, 0, relay.RequestBudget},
		{"tokens", func(c *relay.Config) { c.MaxTotalTokens = 31 }, 3, relay.TokenBudget},
		{"tokens to the last", func(c *relay.Config) { c.MaxTotalTokens = 30 }, 2, relay.TokenBudget},
		{"both", func(c *relay.Config) { c.MaxTotalTokens, c.MaxRequests = 1, 3 }, 1, relay.TokenBudget},
		{"cost", func(c *relay.Config) { c.MaxCostUSD, c.Prices = 25e-6, &proxy.Prices{Input: 1, Output: 2} }, 2, relay.CostBudget}, // of 20e-6 each
		{"one token", func(c *relay.Config) { c.MaxTotalTokens = 1 }, 1, relay.TokenBudget},
	} {
		for _, p := range []relay.Provider{relay.Anthropic, relay.OpenAI} {
			t.Run(c.name+"/"+string(p), func(t *testing.T) {
				path := map[relay.Provider]string{relay.Anthropic: messagesPath, relay.OpenAI: chatPath}[p]
				up := newAnswers(t)
				r := newRig(t, p, up.url, c.change)
				lists := 0
				for c.good == 0 && lists < 2 {
					text(t, r.do(http.MethodGet, "/v1/models", ""))
					lists++
				}
				for i := range c.good {
					resp := r.post(path, `{"model":"m"}`)
					if got := text(t, resp); resp.StatusCode != 200 {
						t.Fatalf("request %d: status %d, %s", i, resp.StatusCode, got)
					}
				}
				for range 2 {
					resp := r.post(path, `{"model":"m"}`)
					checkBudgetError(t, resp, c.want)
				}
				n, _, _ := up.seen()
				f := r.relay.Facts()
				if n != c.good+lists || f.Exceeded != c.want || f.Refused != 2 || f.Sent != int64(c.good) || f.ProviderFailed() {
					t.Errorf("asked %d times, facts %+v", n, f)
				}
				if resp := r.do(http.MethodGet, "/v1/models", ""); resp.StatusCode != 429 {
					t.Errorf("models behind the budget: %d", resp.StatusCode)
				}
				e := r.entries()
				if last := e[len(e)-1]; last.Reason != "budget_exceeded" || last.Verdict != proxy.Deny || last.Status != 429 {
					t.Errorf("entry %+v", last)
				}
			})
		}
	}
}

func checkBudgetError(t *testing.T, resp *http.Response, want relay.Budget) {
	t.Helper()
	var body struct {
		Type  string
		Error struct{ Type, Code, Message string }
	}
	raw := text(t, resp)
	if err := json.Unmarshal([]byte(raw), &body); err != nil {
		t.Fatalf("%v: %s", err, raw)
	}
	if resp.StatusCode != 429 || resp.Header.Get("X-Should-Retry") != "false" || resp.Header.Get("Content-Type") != "application/json" ||
		body.Type != "error" || body.Error.Type != "rate_limit_error" || body.Error.Code != "budget_exceeded" || !strings.Contains(body.Error.Message, string(want)) {
		t.Errorf("status %d, %v, %s", resp.StatusCode, resp.Header, raw)
	}
}

// TestBudgetsAtOnce sends many requests before any has been counted.
func TestBudgetsAtOnce(t *testing.T) {
	var asked atomic.Int64
	release := make(chan struct{})
	url := upstream(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		asked.Add(1)
		<-release
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"usage":{"input_tokens":1000,"output_tokens":1000}}`)
	})
	for _, c := range []struct {
		name   string
		change func(*relay.Config)
		most   int64
	}{
		{"requests", func(c *relay.Config) { c.MaxRequests = 4 }, 4},
		// A request has 4,000 bytes and reserves 1,000 tokens, which exhausts the budget before the
		// third request.
		{"tokens", func(c *relay.Config) { c.MaxTotalTokens = 1900 }, 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			asked.Store(0)
			release = make(chan struct{})
			r := newRig(t, relay.Anthropic, url, func(cfg *relay.Config) { cfg.Limits.InFlight = 100; c.change(cfg) })
			var wg sync.WaitGroup
			var refused atomic.Int64
			for range 30 {
				wg.Go(func() {
					resp, err := http.Post(r.url+messagesPath, "application/json", strings.NewReader(`{"model":"m","system":"`+strings.Repeat("a", 4000)+`"}`))
					if err != nil {
						t.Error(err)
						return
					}
					defer func() { _ = resp.Body.Close() }()
					if resp.StatusCode == 429 {
						refused.Add(1)
					}
				})
			}
			must.Await(t, "the last answer", func() bool { return asked.Load()+refused.Load() == 30 })
			close(release)
			wg.Wait()
			if asked.Load() != c.most || refused.Load() != 30-c.most {
				t.Errorf("asked %d times, refused %d", asked.Load(), refused.Load())
			}
		})
	}
}

// TestPlus: the facts about two relays have the sums of all their numbers. An outage goes on unless it ends.
func TestPlus(t *testing.T) {
	var f relay.Facts
	numbers := map[string]reflect.Value{}
	for field, v := range reflect.ValueOf(&f).Elem().Fields() {
		if v.CanInt() && field.Name != "Outage" && field.Type.Kind() == reflect.Int64 {
			v.SetInt(1)
			numbers[field.Name] = v
		}
		if v.CanFloat() {
			v.SetFloat(1)
			numbers[field.Name] = v
		}
	}
	sum := f.Plus(f)
	for name := range numbers {
		if got := fmt.Sprint(reflect.ValueOf(sum).FieldByName(name)); got != "2" {
			t.Errorf("%s: %s", name, got)
		}
	}
	down := relay.Facts{Sent: 3, Succeeded: 1, Outage: 2}
	for want, then := range map[int64]relay.Facts{0: {Sent: 1, Succeeded: 1}, 1: {Sent: 2, Outage: 1}, 2: {Sent: 1, Left: 1}, 3: {Sent: 2, Left: 1, Outage: 1}} {
		if got := down.Plus(then).Outage; got != want {
			t.Errorf("an outage, and then %+v: %d, want %d", then, got, want)
		}
	}
}

// TestManyAnswers: a request for several answers is refused if the answers beyond the first may exceed the budget.
func TestManyAnswers(t *testing.T) {
	up := newAnswers(t)
	r := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.MaxTotalTokens = 10_000 })
	for body, want := range map[string]int{
		`{"model":"m","max_tokens":9000}`: 200, `{"model":"m","max_tokens":100,"n":3}`: 200, `{"model":"m","max_tokens":9000,"n":3}`: 429, `{"model":"m","n":"1024"}`: 429,
	} {
		if resp := r.post("/v1/chat/completions", body); resp.StatusCode != want {
			t.Errorf("%s: status %d, want %d", body, resp.StatusCode, want)
		}
	}
}

// TestFactsAreBounded: only the last statuses are kept, and facts that were returned do not change.
func TestFactsAreBounded(t *testing.T) {
	up := newAnswers(t)
	r := newRig(t, relay.OpenAI, up.url, nil)
	const hosted = `{"model":"m","tools":[{"type":"mcp"}]}`
	text(t, r.post(responsesPath, hosted))
	before := r.relay.Facts()
	want := fmt.Sprintf("%+v", before)
	for range 40 {
		text(t, r.post(responsesPath, hosted))
	}
	if f := r.relay.Facts(); len(f.Statuses) != 16 || f.Sent != 41 {
		t.Errorf("facts %+v", f)
	}
	if got := fmt.Sprintf("%+v", before); got != want {
		t.Errorf("facts changed: %s", got)
	}
}

// TestUnserved: a provider served nothing if no request succeeded, and it failed, answered 404, or did
// not answer. An error for a bad request also counts as served.
func TestUnserved(t *testing.T) {
	for _, c := range []struct {
		name string
		of   relay.Facts
		want bool
	}{
		{"nothing was sent", relay.Facts{}, false},
		{"an answer", relay.Facts{Sent: 3, Succeeded: 1, Outage: 2, Statuses: []int{200, 500, 500}}, false},
		{"never an answer", relay.Facts{Sent: 1, Outage: 1, Statuses: []int{500}}, true},
		{"a bad request at the end", relay.Facts{Sent: 2, Statuses: []int{500, 400}}, false},
		{"404 alone", relay.Facts{Sent: 2, Statuses: []int{404, 404}}, true},
		{"another answer to a bad request", relay.Facts{Sent: 2, Statuses: []int{400, 404}}, false},
		{"404 after an answer that is no longer listed", relay.Facts{Sent: 20, Succeeded: 1, Statuses: []int{404, 404}}, false},
		{"all were left", relay.Facts{Sent: 2, Left: 2, Statuses: []int{0, 0}}, true},
		{"404 and an answer that the agent did not wait for", relay.Facts{Sent: 2, Left: 1, Statuses: []int{0, 404}}, false},
	} {
		if got := c.of.Unserved(); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// TestProbe: a closed relay's probe goes to the API that the agent used, has no budget, and is
// logged.
func TestProbe(t *testing.T) {
	for _, path := range []string{responsesPath, chatPath} {
		up := newAnswers(t)
		r := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.MaxRequests = 1 })
		text(t, r.post(path, `{"model":"m"}`))
		_ = r.relay.Close()
		facts := r.relay.Probe(t.Context())
		_, last, body := up.seen()
		if again := r.relay.Repeat(t.Context()); again.Sent != 0 {
			t.Errorf("%s: a request that succeeded is repeated: %+v", path, again)
		}
		if facts.Sent != 1 || facts.Succeeded != 1 || last.URL.Path != path || !strings.Contains(body, "OK") || len(r.entries()) != 2 {
			t.Errorf("%s: %+v, %s %s", path, facts, last.URL, body)
		}
	}
}

// TestRepeat: Repeat sends the first request again as the agent sent it, unless a request succeeded.
func TestRepeat(t *testing.T) {
	var n atomic.Int64
	var bodies, betas []string
	r := newRig(t, relay.Anthropic, upstream(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		bodies, betas = append(bodies, string(body)), append(betas, req.URL.RawQuery+" "+req.Header.Get("Anthropic-Beta"))
		w.Header().Set("Content-Type", "application/json")
		if n.Add(1) < 3 {
			w.WriteHeader(500)
		}
		_, _ = io.WriteString(w, `{"content":[],"usage":{"input_tokens":1,"output_tokens":1}}`)
	}), nil)
	if again := r.relay.Repeat(t.Context()); again.Sent != 0 {
		t.Errorf("nothing was asked, and is repeated: %+v", again)
	}
	text(t, r.post(messagesPath+"?beta=true", `{"model":"m","max_tokens":1,"system":"first"}`, "Anthropic-Beta", "interleaved-thinking-2025-05-14"))
	text(t, r.post(messagesPath, `{"model":"m","max_tokens":1,"system":"second"}`))
	_ = r.relay.Close()
	if again := r.relay.Repeat(t.Context()); again.Succeeded != 1 || len(bodies) != 3 || bodies[2] != bodies[0] || betas[2] != betas[0] || !strings.HasPrefix(betas[0], "beta=true i") {
		t.Errorf("%+v, %q, %q", again, bodies, betas)
	}
	if f := r.relay.Facts(); !f.AllFailed() || f.Sent != 2 {
		t.Errorf("%+v", f)
	}
}
