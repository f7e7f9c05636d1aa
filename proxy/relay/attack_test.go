package relay_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
	"github.com/securebench/sbench/proxy/relay/request"
)

// TestLeftIsCounted: if the agent closes the connection before or during the answer, the counts at the
// answer's end are charged.
func TestLeftIsCounted(t *testing.T) {
	for _, stream := range []bool{false, true} {
		began, release := make(chan struct{}), make(chan struct{})
		r := newRig(t, relay.OpenAI, upstream(t, func(w http.ResponseWriter, req *http.Request) {
			_, _ = io.Copy(io.Discard, req.Body)
			usage := `{"usage":{"input_tokens":9000,"output_tokens":5000}}`
			if stream {
				w.Header().Set("Content-Type", "text/event-stream")
				_ = http.NewResponseController(w).Flush()
				usage = `data: {"type":"response.completed","response":` + usage + "}\n\n"
			} else {
				w.Header().Set("Content-Type", "application/json")
			}
			close(began)
			<-release
			_, _ = io.WriteString(w, usage)
		}), nil)
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, r.url+responsesPath, strings.NewReader(fmt.Sprintf(`{"model":"m","stream":%v}`, stream)))
		go func() {
			if resp, err := http.DefaultTransport.RoundTrip(req); err == nil {
				_, _ = io.ReadAll(resp.Body)
				_ = resp.Body.Close()
			}
		}()
		await(t, "the request at the provider", began)
		cancel()
		close(release)
		must.Await(t, "the count", func() bool { return len(r.relay.Facts().Statuses) == 1 })
		if u := r.relay.Facts().Usage; u != (proxy.Usage{Input: 9000, Output: 5000}) {
			t.Errorf("stream %v: usage %+v", stream, u)
		}
	}
}

// TestBounds tests the bound of an answer's output, which is charged if the answer is
// not read to its end.
func TestBounds(t *testing.T) {
	for _, c := range []struct {
		provider   relay.Provider
		path, body string
		want       int64
	}{
		{relay.Anthropic, messagesPath, `{"model":"m","max_tokens":7000}`, 7000},
		{relay.OpenAI, responsesPath, `{"model":"m"}`, 128 << 10},
		{relay.OpenAI, responsesPath, `{"model":"m","max_output_tokens":"x"}`, 128 << 10},
		{relay.OpenAI, responsesPath, `{"model":"m","max_output_tokens":6999.5}`, 7000},
		{relay.OpenAI, chatPath, `{"model":"m","max_tokens":1,"max_completion_tokens":7000,"n":3}`, 21000},
		{relay.OpenAI, chatPath, `{"model":"m","max_tokens":1e300,"n":null}`, 128 << 10},
		{relay.OpenAI, chatPath, `{"model":"m","max_tokens":7,"n":1e300}`, 7 << 10},
		{relay.OpenAI, chatPath, `{"model":"m","max_tokens":7,"n":" 3 "}`, 7 << 10},
	} {
		if _, found, err := relay.Inspect(c.provider, c.path, []byte(c.body)); err != nil || found.Output != c.want {
			t.Errorf("%s: %d, %v, want %d", c.body, found.Output, err, c.want)
		}
	}
}

// TestItemsByID: an item with an id and no content refers to state at the provider. The relay removes
// the id of reasoning, since codex sends such items, and refuses any other item.
func TestItemsByID(t *testing.T) {
	for _, c := range []struct {
		name, path, item string
		refused          bool
	}{
		{"reasoning", responsesPath, `{"type":"reasoning","id":"rs_gone"}`, false},
		{"reasoning with a summary", responsesPath, `{"type":"reasoning","id":"rs_gone","summary":[{"type":"summary_text","text":"x"}],"encrypted_content":null,"content":[ ]}`, false},
		{"reasoning that is there", responsesPath, `{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"}`, false},
		{"reasoning of no name", responsesPath, `{"type":"reasoning","summary":[]}`, false},
		{"message", responsesPath, `{"type":"message","id":"msg_1","role":"assistant"}`, true},
		{"message without a type", responsesPath, `{"id":"msg_1","role":"assistant","content":[]}`, true},
		{"empty message", responsesPath, `{"type":"message","id":"msg_1","role":"assistant","content":""}`, true},
		{"message that is there", responsesPath, `{"type":"message","id":"msg_1","role":"assistant","content":[{"type":"output_text","text":"x"}]}`, false},
		{"compaction", responsesPath, `{"type":"compaction","id":"cmp_1"}`, true},
		{"call", responsesPath, `{"type":"function_call","id":"fc_1","call_id":"c"}`, true},
		{"call that is there", responsesPath, `{"type":"function_call","id":"fc_1","call_id":"c","name":"f","arguments":"{}"}`, false},
		{"output", responsesPath, `{"type":"function_call_output","id":"fo_1","call_id":"c"}`, true},
		{"empty output", responsesPath, `{"type":"function_call_output","id":"fo_1","call_id":"c","output":""}`, false},
		{"audio of before", chatPath, `{"role":"assistant","audio":{"id":"audio_1"}}`, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			form, field := request.Responses(), "input"
			if c.path == chatPath {
				form, field = request.Chat(), "messages"
			}
			found, err := form.Check(fmt.Appendf(nil, `{"model":"m",%q:[%s]}`, field, c.item), request.Options{Model: "m", Allow: true})
			if bad, refused := errors.AsType[*request.Error](err); refused != c.refused || refused && bad.Reason != request.State {
				t.Errorf("%v", err)
			}
			if sent := string(found.Body); strings.Contains(sent, "gone") || strings.Contains(c.item, "rs_1") && !strings.Contains(sent, "rs_1") {
				t.Errorf("sent %s", sent)
			}
		})
	}
}

// TestValuesAreCounted: a body of many small values costs more time than its size suggests. The
// allowance pays for each value, even if the relay refuses the request.
func TestValuesAreCounted(t *testing.T) {
	const values = 100_000
	zeros := strings.TrimSuffix(strings.Repeat("0,", values), ",")
	for _, body := range []string{`{"model":"m","metadata":[` + zeros + `]}`, `{"metadata":[` + zeros + `],"model":"m","model":"m"}`} {
		if _, found, err := relay.Inspect(relay.OpenAI, responsesPath, []byte(body)); found.Work < 100*values {
			t.Errorf("%d bytes are counted for %d values: %v", found.Work, values, err)
		}
	}
}

// TestWorkIsLinear: each of many parts that are replaced asks for its message's role, which is behind many fields.
func TestWorkIsLinear(t *testing.T) {
	var body strings.Builder
	body.WriteString(`{"model":"m","input":[{`)
	for i := range 60_000 {
		fmt.Fprintf(&body, `"x%d":0,`, i)
	}
	fmt.Fprintf(&body, `"content":[%s{"type":"x"}],"role":"assistant"}]}`, strings.Repeat(`{"type":"x"},`, 30_000))
	var before, after unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &before)
	_, found, err := relay.Inspect(relay.OpenAI, responsesPath, []byte(body.String()))
	_ = unix.Getrusage(unix.RUSAGE_SELF, &after)
	if len(found.Removed) > 32 {
		t.Errorf("%d names would be in a line of the log", len(found.Removed))
	}
	if took := time.Duration(after.Utime.Nano() - before.Utime.Nano()); took > 2*time.Second || err != nil || found.Work < 120_000*100 {
		t.Errorf("%s of processor time, %d, %v", took, found.Work, err)
	}
}

// TestLogIsBounded: beyond the limit of requests, nothing is sent, and one line is
// logged.
func TestLogIsBounded(t *testing.T) {
	up := newAnswers(t)
	r := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.Limits.Requests = 3 })
	for range 2 {
		text(t, r.post(responsesPath, `{"model":"m"}`))
	}
	conn := r.dial()
	_, _ = io.WriteString(conn, "no request\r\n\r\n")
	_, _ = io.ReadAll(conn)
	_ = conn.Close()
	must.Await(t, "the third line", func() bool { return strings.Count(r.log.String(), "\n") == 3 })
	for range 10 {
		resp := r.post(responsesPath, `{"model":"m"}`)
		if got := text(t, resp); resp.StatusCode != 429 || resp.Header.Get("X-Sbench-Relay") != "request_limit" || resp.Header.Get("X-Should-Retry") != "false" {
			t.Errorf("status %d, %s", resp.StatusCode, got)
		}
	}
	entries := r.entries()
	if n, _, _ := up.seen(); n != 2 || len(entries) != 4 || entries[3].Reason != "request_limit" {
		t.Errorf("asked %d times, %d lines, the last %+v", n, len(entries), entries[len(entries)-1])
	}
	if f := r.relay.Facts(); f.Seen != 13 || f.Refused != 11 || f.Unlogged != 9 {
		t.Errorf("facts %+v", f)
	}
}

// TestLogFails: once an entry could not be written, nothing is sent.
func TestLogFails(t *testing.T) {
	up := newAnswers(t)
	r := newRig(t, relay.OpenAI, up.url, func(c *relay.Config) { c.Log = proxy.NewLog(failing{}) })
	for range 2 { // on one connection: the relay writes the first entry before it reads the second request
		text(t, r.post(responsesPath, `{"model":"m"}`))
	}
	asked, _, _ := up.seen()
	resp := r.post(responsesPath, `{"model":"m"}`)
	if n, _, _ := up.seen(); resp.StatusCode != 503 || resp.Header.Get("X-Sbench-Relay") != "log_failed" || n != asked {
		t.Errorf("status %d, asked %d times", resp.StatusCode, n-asked)
	}
}

// spellings returns ways in which a provider, or a proxy before it, may repeat the key.
func spellings() map[string]string {
	escape := func(format string) string {
		var b strings.Builder
		for _, c := range []byte(realKey) {
			fmt.Fprintf(&b, format, c)
		}
		return b.String()
	}
	all := map[string]string{
		"plain": realKey, "JSON": escape(`\u%04x`), "JSON in capitals": escape(`\u%04X`), "JSON in JSON": escape(`\\u%04x`), "URL": escape("%%%02X"), "URL twice": escape("%%25%02x"),
		"hexadecimal": hex.EncodeToString([]byte(realKey)), "some escapes": strings.NewReplacer("-", "%2D", "e", `\u0065`).Replace(realKey), "URL's own": url.QueryEscape(realKey),
		"base64 of base64's end": base64.StdEncoding.EncodeToString([]byte(realKey)),
	}
	for before := range 4 {
		for name, e := range map[string]*base64.Encoding{"base64": base64.StdEncoding, "URL's base64": base64.RawURLEncoding} {
			for _, after := range []string{"", "?", "\xff\xfe"} {
				all[fmt.Sprintf("%s behind %d, %q", name, before, after)] = e.EncodeToString([]byte("Bearer"[:before] + realKey + after))
			}
		}
	}
	return all
}

// TestSpellings: a scrubber redacts all spellings of the key, in whatever pieces they arrive.
func TestSpellings(t *testing.T) {
	for name, s := range spellings() {
		for _, size := range []int{1, 2, 7, 1000} {
			var pieces [][]byte
			for rest := "data: <" + s + ">\n\n"; rest != ""; {
				n := min(size, len(rest))
				pieces, rest = append(pieces, []byte(rest[:n])), rest[n:]
			}
			var out bytes.Buffer
			must.Do(t, relay.Scrub(realKey, &out, pieces...))
			got := out.String()
			if !strings.Contains(got, "<redacted>") || len(got) > len("data: <<redacted>>\n\n")+10 || !strings.HasPrefix(got, "data: <") || !strings.HasSuffix(got, ">\n\n") {
				t.Errorf("%s in pieces of %d: %q of %q", name, size, got, s)
			}
		}
	}
}

// TestScrubberDelaysLittle: a scrubber never delays more than one spelling of the key, and nothing at
// an event's end.
func TestScrubberDelaysLittle(t *testing.T) {
	for _, s := range []string{strings.Repeat("%", 10000), strings.Repeat(`\`, 10000), strings.Repeat(realKey[:20], 1000), strings.Repeat(`\u0073`, 1000), strings.Repeat("data: sk-\\n%\n\n", 100)} {
		if most, last := relay.Held(realKey, s+"\n\n"); most > 9*2*len(realKey) || last != 0 {
			t.Errorf("%.20q: %d bytes are held, and %d at an event's end", s, most, last)
		}
	}
}
