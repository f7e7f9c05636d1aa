package providertest

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// A turn is what a request asks for.
type turn struct {
	model  string
	stream bool
	count  bool // a chat's stream is to count tokens
	offers []offer
	next   int // index of the step to answer with
}

// A reply is an answer before it is written in a dialect.
type reply struct {
	n           int
	model       string
	think, text string
	call        *toolCall
	usage       Usage
}

// An sseEvent is one event of a stream. Data that is a string is written as it is.
type sseEvent struct {
	name string
	data any
}

// A dialect is one of the APIs.
type dialect interface {
	offers(t tool) []offer
	idPrefix() string // of calls
	answer(r reply) any
	events(t turn, r reply) []sseEvent
	failure(kind, message string) any
	// streamFailure is the event of an error in a stream that began well.
	streamFailure(r reply, kind string) sseEvent
}

func dialectOf(path string) dialect {
	if _, call, ok := strings.Cut(path, "/v1beta/models"); ok {
		return google{stream: strings.HasSuffix(call, ":streamGenerateContent")}
	}
	for end, d := range map[string]dialect{
		"/messages": anthropic{}, "/messages/count_tokens": anthropic{}, "/responses": responses{}, "/responses/compact": responses{}, "/chat/completions": chat{},
	} {
		if strings.HasSuffix(path, end) {
			return d
		}
	}
	return nil
}

// fail answers with an error.
func fail(d dialect, status int, message string) func(http.ResponseWriter) {
	if d == nil {
		d = chat{}
	}
	kind := "invalid_request_error"
	switch {
	case status == http.StatusTooManyRequests:
		kind = "rate_limit_error"
	case status == http.StatusUnauthorized:
		kind = "authentication_error"
	case status >= 500:
		kind = "api_error"
	}
	return whole(status, d.failure(kind, message))
}

// send answers with a reply, spoiled by f unless it is nil.
func (p *Provider) send(ctx context.Context, d dialect, t turn, r reply, delay time.Duration, f *Fault) func(http.ResponseWriter) {
	switch {
	case f != nil && f.Status != 0:
		answer := fail(d, f.Status, "scripted failure")
		return func(w http.ResponseWriter) {
			if f.RetryAfter > 0 {
				w.Header().Set("Retry-After", strconv.Itoa(f.RetryAfter))
			}
			answer(w)
		}
	case !t.stream:
		return func(w http.ResponseWriter) { sendWhole(ctx, w, d.answer(r), delay, f) }
	}
	events := d.events(t, r)
	if f != nil && f.Error != "" {
		events = append(events[:1], d.streamFailure(r, f.Error))
	}
	return func(w http.ResponseWriter) { sendStream(ctx, w, events, delay, f) }
}

func sendWhole(ctx context.Context, w http.ResponseWriter, answer any, delay time.Duration, f *Fault) {
	wait(ctx, delay)
	body, _ := json.Marshal(answer) // cannot fail: the maps are made here
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	switch {
	case f == nil:
	case f.Cut > 0:
		_, _ = w.Write(body[:min(f.Cut, len(body)-1)])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	default:
		body = []byte(strings.Repeat("?", len(body)))
	}
	_, _ = w.Write(body)
}

func sendStream(ctx context.Context, w http.ResponseWriter, events []sseEvent, delay time.Duration, f *Fault) {
	w.Header().Set("Content-Type", "text/event-stream")
	ctl := http.NewResponseController(w)
	_ = ctl.Flush()
	for i, e := range events {
		if f != nil && f.Cut > 0 && i >= f.Cut {
			panic(http.ErrAbortHandler)
		}
		wait(ctx, delay)
		if ctx.Err() != nil {
			return
		}
		text := e.bytes()
		if f != nil && f.Garble {
			text = []byte("event: ???\ndata: {\"type\": \ndata\n: \x00}\n\n")
		}
		if _, err := w.Write(text); err != nil {
			return
		}
		_ = ctl.Flush()
	}
}

func (e sseEvent) bytes() []byte {
	data, ok := e.data.(string)
	if !ok {
		b, _ := json.Marshal(e.data) // cannot fail: the maps are made here
		data = string(b)
	}
	if e.name != "" {
		return []byte("event: " + e.name + "\ndata: " + data + "\n\n")
	}
	return []byte("data: " + data + "\n\n")
}

func wait(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// pieces cuts a text in three, so that clients of streams have to join it.
func pieces(s string) []string {
	r := []rune(s)
	if len(r) < 3 {
		return []string{s}
	}
	a, b := len(r)/3, 2*len(r)/3
	return []string{string(r[:a]), string(r[a:b]), string(r[b:])}
}
