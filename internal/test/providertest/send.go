package providertest

import (
	"bytes"
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
	answer(r reply) any
	events(t turn, r reply) []sseEvent
	failure(kind, message string) any
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

// A response is an answer in the form to write: events if there are any, otherwise a body.
type response struct {
	status     int
	retryAfter int // the header, in seconds; 0: none
	body       any
	events     []sseEvent
	delay      time.Duration // before the body or each event
	fault      Fault         // zero: none
}

// failure is the response with the API's error for a status.
func failure(d dialect, status int, message string) response {
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
	return response{status: status, body: d.failure(kind, message)}
}

// responseTo is the response with a reply, made bad by f unless f is zero.
func responseTo(d dialect, t turn, r reply, delay time.Duration, f Fault) response {
	a := response{status: http.StatusOK, delay: delay, fault: f}
	switch {
	case f.Status != 0:
		a = failure(d, f.Status, "scripted failure")
		a.retryAfter = f.RetryAfter
	case !t.stream:
		a.body = d.answer(r)
	default:
		a.events = d.events(t, r)
	}
	return a
}

func (a response) write(ctx context.Context, w http.ResponseWriter) {
	if a.events != nil {
		a.stream(ctx, w)
		return
	}
	wait(ctx, a.delay)
	body, _ := json.Marshal(a.body) // cannot fail: the maps are made here
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	if a.retryAfter > 0 {
		w.Header().Set("Retry-After", strconv.Itoa(a.retryAfter))
	}
	w.WriteHeader(a.status)
	switch {
	case a.fault.Cut > 0:
		_, _ = w.Write(body[:min(a.fault.Cut, len(body)-1)])
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	case a.fault.Garble:
		body = bytes.Repeat([]byte("?"), len(body))
	}
	_, _ = w.Write(body)
}

func (a response) stream(ctx context.Context, w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	ctl := http.NewResponseController(w)
	_ = ctl.Flush()
	for i, e := range a.events {
		if a.fault.Cut > 0 && i >= a.fault.Cut {
			panic(http.ErrAbortHandler)
		}
		wait(ctx, a.delay)
		if ctx.Err() != nil {
			return
		}
		text := e.bytes()
		if a.fault.Garble {
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
