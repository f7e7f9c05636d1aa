package relay_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay"
)

// byBytes means an estimated output.
const byBytes = -1

// TestUsage counts answers of each API, each in one piece, in single bytes and with
// other line endings. The requests have 400 bytes, which are 100 estimated tokens.
func TestUsage(t *testing.T) {
	const (
		start    = `data: {"type":"message_start","message":{"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":20,"output_tokens":1}}}` + "\n\n"
		delta    = `data: {"type":"content_block_delta","delta":{"type":"text_delta","text":"hello, \"usage\": what? message_stop"}}` + "\n\n"
		stop     = `data: {"type":"message_stop"}` + "\n\n"
		done     = "data: [DONE]\n\n"
		part     = `data: {"candidates":[{"content":{"parts":[{"text":"finishReason"}]}}],"usageMetadata":{"promptTokenCount":30,"totalTokenCount":30}}` + "\n\n"
		lastPart = `data: {"candidates":[{"content":{"parts":[{"text":"x"}]},"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":20,"candidatesTokenCount":5,"thoughtsTokenCount":2,"toolUsePromptTokenCount":4}}` + "\n\n"
	)
	for _, c := range []struct {
		name, path string
		stream     bool
		answer     string
		want       proxy.Usage
		whole      bool
		cause      relay.Cause
	}{
		{"messages", messagesPath, false,
			`{"type":"message","content":[{"type":"text","text":"\"usage\":{\"input_tokens\":99}"}],"usage":{"input_tokens":10,"cache_creation_input_tokens":4,"cache_read_input_tokens":20,"output_tokens":7,"output_tokens_details":{"thinking_tokens":3}}}`,
			proxy.Usage{Input: 34, Cached: 20, Output: 7, Reasoning: 3}, true, ""},
		{"messages with null counts", messagesPath, false, `{"usage":{"input_tokens":10,"cache_read_input_tokens":null,"output_tokens":7}}`, proxy.Usage{Input: 10, Output: 7}, true, ""},
		{"compaction beside the counts", messagesPath, false,
			`{"usage":{"input_tokens":10,"output_tokens":7,"iterations":[{"type":"compaction","input_tokens":100,"output_tokens":30},{"type":"message","input_tokens":10,"output_tokens":7}]}}`,
			proxy.Usage{Input: 110, Output: 37}, true, ""},
		{"messages without counts", messagesPath, false, `{"content":[]}` + strings.Repeat(" ", 786), proxy.Usage{Input: 100, Output: byBytes, Estimated: true}, true, ""},
		{"messages, negative and absurd", messagesPath, false, `{"usage":{"input_tokens":-5,"output_tokens":9007199254740993000}}`, proxy.Usage{Input: 400, Output: 1000, Estimated: true}, true, ""},
		{"messages, fractions and texts", messagesPath, false, `{"usage":{"input_tokens":10.2,"cache_read_input_tokens":"20","cache_creation_input_tokens":4e0,"output_tokens":"7.5"}}`, proxy.Usage{Input: 35, Cached: 20, Output: 8}, true, ""},
		{"messages, one count of another type", messagesPath, false, `{"usage":{"input_tokens":10,"cache_creation":"x","cache_read_input_tokens":{},"output_tokens":7}}`, proxy.Usage{Input: 400, Output: 7, Estimated: true}, true, ""},
		{"messages, garbage output", messagesPath, false, `{"usage":{"input_tokens":10,"output_tokens":"many"}}`, proxy.Usage{Input: 10, Output: 1000, Estimated: true}, true, ""},
		{"messages, garbage iterations", messagesPath, false, `{"usage":{"input_tokens":10,"output_tokens":7,"iterations":"x"}}`, proxy.Usage{Input: 10, Output: 7}, true, ""},
		{"messages, a garbage iteration", messagesPath, false, `{"usage":{"input_tokens":10,"output_tokens":7,"iterations":[{"output_tokens":[]}]}}`, proxy.Usage{Input: 10, Output: 1000, Estimated: true}, true, ""},
		{"usage of another type", messagesPath, false, `{"usage":"none"}`, proxy.Usage{Input: 400, Output: 1000, Estimated: true}, true, ""},
		{"no output in the usage", messagesPath, false, `{"usage":{"input_tokens":10}}` + strings.Repeat(" ", 771), proxy.Usage{Input: 10, Output: byBytes, Estimated: true}, true, ""},
		{"responses with a fraction", responsesPath, false, `{"usage":{"input_tokens":50.0,"input_tokens_details":7,"output_tokens":11.5,"output_tokens_details":{"reasoning_tokens":"8"}}}`, proxy.Usage{Input: 50, Output: 12, Reasoning: 8}, true, ""},
		{"chat in texts", chatPath, false, `{"usage":{"prompt_tokens":"30","completion_tokens":"6"}}`, proxy.Usage{Input: 30, Output: 6}, true, ""},
		{"messages, no JSON", messagesPath, false, "<html>", proxy.Usage{Input: 100, Output: byBytes, Estimated: true}, false, ""},
		{"stream of messages", messagesPath, true,
			start + delta + `data: {"type":"message_delta","usage":{"output_tokens":5}}` + "\n\n" + `data: {"type":"message_delta","usage":{"input_tokens":10,"output_tokens":9}}` + "\n\n" + stop,
			proxy.Usage{Input: 34, Cached: 20, Output: 9}, true, ""},
		{"stream of messages, cut", messagesPath, true, start + strings.Repeat(delta, 10), proxy.Usage{Input: 34, Cached: 20, Output: byBytes, Estimated: true}, false, ""},
		{"stream of messages, cut at once", messagesPath, true, "", proxy.Usage{Input: 100, Output: byBytes, Estimated: true}, false, ""},
		{"stream of messages, overloaded", messagesPath, true, start + `data: {"type":"error","error":{"type":"overloaded_error"}}` + "\n\n", proxy.Usage{Input: 34, Cached: 20, Output: 1}, false, relay.ServerError},
		{"stream of messages, overloaded at once", messagesPath, true, `data: {"type":"error","error":{"type":"overloaded_error"}}` + "\n\n", proxy.Usage{}, false, relay.ServerError},
		{"stream of messages, not the provider's fault", messagesPath, true, start + `data: {"type":"error","error":{"type":"invalid_request_error"}}` + "\n\n", proxy.Usage{Input: 34, Cached: 20, Output: 1}, false, ""},
		{"counting", messagesPath + "/count_tokens", false, `{"input_tokens":4000}`, proxy.Usage{}, true, ""},
		{"responses", responsesPath, false,
			`{"status":"completed","error":null,"usage":{"input_tokens":50,"input_tokens_details":{"cached_tokens":40},"output_tokens":12,"output_tokens_details":{"reasoning_tokens":8},"total_tokens":62}}`,
			proxy.Usage{Input: 50, Cached: 40, Output: 12, Reasoning: 8}, true, ""},
		{"stream of responses", responsesPath, true,
			`data: {"type":"response.created","response":{"usage":null}}` + "\n\n" + `event: response.completed` + "\n" + `data: {"type":"response.completed","response":{"usage":{"input_tokens":50,"output_tokens":12}}}` + "\n\n",
			proxy.Usage{Input: 50, Output: 12}, true, ""},
		{"incomplete response", responsesPath, true, `data: {"type":"response.incomplete","response":{"usage":{"input_tokens":50,"output_tokens":12}}}` + "\n\n", proxy.Usage{Input: 50, Output: 12}, true, ""},
		{"failed response", responsesPath, true, `data: {"type":"response.failed","response":{"usage":null,"error":{"code":"server_error"}}}` + "\n\n", proxy.Usage{}, true, relay.ServerError},
		{"response over the rate", responsesPath, true, `data: {"type":"response.failed","response":{"error":{"code":"rate_limit_exceeded"}}}` + "\n\n", proxy.Usage{}, true, relay.RateLimited},
		{"response to a bad prompt", responsesPath, true, `data: {"type":"response.failed","response":{"error":{"code":"invalid_prompt"}}}` + "\n\n", proxy.Usage{}, true, ""},
		{"error event", responsesPath, true, `data: {"type":"error","code":"server_error","message":"m"}` + "\n\n", proxy.Usage{}, false, relay.ServerError},
		{"error event that is the agent's", responsesPath, true, `data: {"type":"error","code":"context_length_exceeded","message":"m"}` + "\n\n", proxy.Usage{}, false, ""},
		{"response cut", responsesPath, true, `data: {"type":"response.output_text.delta","delta":"` + strings.Repeat("a", 400) + `"}` + "\n\n", proxy.Usage{Input: 100, Output: byBytes, Estimated: true}, false, ""},
		{"compaction", responsesPath + "/compact", false, `{"output":[],"usage":{"input_tokens":50,"output_tokens":12}}`, proxy.Usage{Input: 50, Output: 12}, true, ""},
		{"chat", chatPath, false,
			`{"choices":[],"usage":{"prompt_tokens":30,"prompt_tokens_details":{"cached_tokens":10},"completion_tokens":6,"completion_tokens_details":{"reasoning_tokens":2}}}`,
			proxy.Usage{Input: 30, Cached: 10, Output: 6, Reasoning: 2}, true, ""},
		{"stream of a chat", chatPath, true,
			`data: {"choices":[{"delta":{"content":"a"}}],"usage":null}` + "\n\n" + `data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":6}}` + "\n\n" + done,
			proxy.Usage{Input: 30, Output: 6}, true, ""},
		{"stream of a chat, cut behind the counts", chatPath, true, `data: {"choices":[],"usage":{"prompt_tokens":30,"completion_tokens":6}}` + "\n\n", proxy.Usage{Input: 30, Output: byBytes, Estimated: true}, false, ""},
		{"stream of a chat without counts", chatPath, true, `data: {"choices":[{"delta":{"content":"` + strings.Repeat("a", 400) + `"}}]}` + "\n\n" + done, proxy.Usage{Input: 100, Output: byBytes, Estimated: true}, true, ""},
		{"stream of a chat with an error of a number", chatPath, true, `data: {"error":{"code":503,"type":"server_error"}}` + "\n\n", proxy.Usage{}, false, relay.ServerError},
		{"nonsense", messagesPath, true, "event: ???\ndata: {\"type\": \"usage\ndata\n: \x00}\n\n", proxy.Usage{Input: 100, Output: byBytes, Estimated: true}, false, ""},
		{"Google, whole", generatePath, false, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":30,"candidatesTokenCount":5}}`, proxy.Usage{Input: 30, Output: 5}, true, ""},
		{"Google, stream", streamPath, true, part + part + lastPart, proxy.Usage{Input: 34, Cached: 20, Output: 7, Reasoning: 2}, true, ""},
		{"Google, cut", streamPath, true, part + part, proxy.Usage{Input: 30, Output: byBytes, Estimated: true}, false, ""},
		{"Google, blocked", streamPath, true, `data: {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":30}}` + "\n\n", proxy.Usage{Input: 30, Output: byBytes, Estimated: true}, true, ""},
		{"Google, overloaded", streamPath, true, part + `data: {"error":{"code":503,"status":"UNAVAILABLE","message":"x"}}` + "\n\n", proxy.Usage{Input: 30, Output: byBytes, Estimated: true}, false, relay.ServerError},
		{"Google, exhausted", generatePath, false, `{"error":{"code":429,"status":"RESOURCE_EXHAUSTED"}}`, proxy.Usage{}, true, relay.RateLimited},
		{"Google, garbage", generatePath, false, `{"candidates":[{"finishReason":"STOP"}],"usageMetadata":{"promptTokenCount":-1,"candidatesTokenCount":"many"}}`, proxy.Usage{Input: 400, Output: 1000, Estimated: true}, true, ""},
		{"Google, usage of another type", generatePath, false, `{"usageMetadata":"none"}`, proxy.Usage{Input: 400, Output: 1000, Estimated: true}, true, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := relay.OpenAI
			switch {
			case strings.HasPrefix(c.path, messagesPath):
				p = relay.Anthropic
			case strings.HasPrefix(c.path, "/v1beta/"):
				p = relay.Google
			}
			for name, pieces := range split(c.answer, c.stream) {
				u, whole, cause := relay.Meter(c.path, p, c.stream, pieces...)
				want := c.want
				if want.Output == byBytes {
					want.Output = max(int64(len(bytes.Join(pieces, nil)))/8, 1)
				}
				if diff := cmp.Diff(want, u); diff != "" || whole != c.whole || cause != c.cause {
					t.Errorf("%s: whole %v, cause %q, usage (-want +got):\n%s", name, whole, cause, diff)
				}
			}
		})
	}
}

// split returns an answer in several forms, which must all give the same counts.
func split(answer string, stream bool) map[string][][]byte {
	all := map[string][][]byte{"whole": {[]byte(answer)}, "bytes": nil}
	for i := range len(answer) {
		all["bytes"] = append(all["bytes"], []byte{answer[i]})
	}
	if stream {
		all["CRLF"] = [][]byte{[]byte(strings.ReplaceAll(answer, "\n", "\r\n"))}
		all["CR"] = [][]byte{[]byte(strings.ReplaceAll(answer, "\n", "\r"))}
	}
	return all
}

func TestEvents(t *testing.T) {
	for _, c := range []struct {
		name, stream string
		want         []string
	}{
		{"nothing", "", nil},
		{"one", "data: a\n\n", []string{"a"}},
		{"no space", "data:a\n\n", []string{"a"}},
		{"two spaces", "data:  a\n\n", []string{" a"}},
		{"two lines", "data: a\ndata: b\n\n", []string{"a\nb"}},
		{"empty data", "data\n\n", []string{""}},
		{"empty lines", "\n\n\ndata: a\n\n\n\n", []string{"a"}},
		{"other fields", ": hi\nevent: x\nid: 1\nretry: 2\ndatabase: y\ndata: a\n\n", []string{"a"}},
		{"line ends mixed", "data: a\r\n\r\ndata: b\r\rdata: c\n\n", []string{"a", "b", "c"}},
		{"no end", "data: a", []string{"a"}},
		{"only fields", "event: x\n\n", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, pieces := range split(c.stream, false) {
				if diff := cmp.Diff(c.want, relay.Events(pieces...)); diff != "" {
					t.Errorf("%s (-want +got):\n%s", name, diff)
				}
			}
		})
	}
}

// TestLargeEvents: an eventReader skips events that are too large, and reads the events after them.
func TestLargeEvents(t *testing.T) {
	line := bytes.Repeat([]byte("a"), 1<<20)
	pieces := [][]byte{[]byte("data: first\n\ndata: ")}
	for range 20 {
		pieces = append(pieces, line)
	}
	pieces = append(pieces, []byte("\n\ndata: second\n\n"))
	for range 20 {
		pieces = append(pieces, []byte("data: "), line, []byte("\n"))
	}
	pieces = append(pieces, []byte("\ndata: third\n\n"))
	must.Equal(t, []string{"first", "second", "third"}, relay.Events(pieces...))
}

// TestHide: everything passes except the chunk that only counts tokens.
func TestHide(t *testing.T) {
	const (
		text  = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n"
		count = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1}}\n\n"
		done  = "data: [DONE]\n\n"
	)
	long := `data: {"choices":[],"usage":{"x":"` + strings.Repeat("a", 100<<10) + "\"}}\n\n"
	for _, c := range []struct{ name, in, want string }{
		{"chat", text + text + count + done, text + text + done},
		{"CRLF", strings.ReplaceAll(text+count+done, "\n", "\r\n"), strings.ReplaceAll(text+done, "\n", "\r\n")},
		{"behind another field", text + ": hi\n" + count + done, text + ": hi\n" + done},
		{"choices and counts in one", "data: {\"choices\":[{}],\"usage\":{}}\n\n" + done, "data: {\"choices\":[{}],\"usage\":{}}\n\n" + done},
		{"only told of in a text", "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}]}\n\n", "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}]}\n\n"},
		{"cut", text + "data: {\"cho", text + "data: {\"cho"},
		{"too long to hide", text + long + count + done, text + long + done},
		{"comments", ": hi\n\n" + count, ": hi\n\n"},
		{"no stream", "hello", "hello"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for name, pieces := range split(c.in, false) {
				var out bytes.Buffer
				if err := relay.Hide(&out, pieces...); err != nil || out.String() != c.want {
					t.Errorf("%s: %v, got %s", name, err, short(out.String()))
				}
			}
		})
	}
}

func short(s string) string {
	if len(s) > 500 {
		return fmt.Sprintf("%q and %d bytes more", s[:500], len(s)-500)
	}
	return fmt.Sprintf("%q", s)
}
