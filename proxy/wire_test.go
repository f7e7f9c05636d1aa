package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"log"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/securebench/sbench/proxy"
)

// wire makes crude.allowed.test a server that reads until end, sends what it read to
// the channel, and answers.
func (w *world) wire(end, answer string) <-chan string {
	const address = "93.184.216.37"
	l := listenLocal(w.t)
	w.lead("crude.allowed.test", address)
	w.stand(address+":80", l)
	came := make(chan string, 10)
	w.each(l, func(c net.Conn) {
		var got bytes.Buffer
		for b := make([]byte, 4096); !strings.HasSuffix(got.String(), end); {
			n, err := c.Read(b)
			if got.Write(b[:n]); err != nil {
				break
			}
		}
		came <- got.String()
		_, _ = io.WriteString(c, answer)
	})
	return came
}

// TestWireIsCounted: every byte that leaves is counted, including the framing of
// chunks, and trailers do not leave.
func TestWireIsCounted(t *testing.T) {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	var chunks strings.Builder
	for range 500 {
		chunks.WriteString("1\r\nx\r\n")
	}
	for _, tt := range []struct{ name, send, end string }{
		{"no body", request("GET", "/", "", ""), "\r\n\r\n"},
		{"a length", request("POST", "/", "Content-Length: 5\r\n", "hello"), "hello"},
		{"chunks of a byte", request("POST", "/", "Transfer-Encoding: chunked\r\n", chunks.String()+"0\r\n\r\n"), "0\r\n\r\n"},
		{"a trailer", request("POST", "/", "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n", "5\r\nhello\r\n0\r\nX-A: "+strings.Repeat("y", 3000)+"\r\n\r\n"), "0\r\n\r\n"},
		{"a trailer not announced", request("POST", "/", "Transfer-Encoding: chunked\r\n", "5\r\nhello\r\n0\r\nX-B: "+strings.Repeat("y", 3000)+"\r\n\r\n"), "0\r\n\r\n"},
		{"a trailer that frames", request("POST", "/", "Transfer-Encoding: chunked\r\nTrailer: X-A\r\n", "5\r\nhello\r\n0\r\nX-A: yyy\r\nHost: yyy\r\nContent-Length: 7\r\nTransfer-Encoding: yyy\r\n\r\n"), "0\r\n\r\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			came := w.wire(tt.end, ok)
			p, book := w.startProxy(proxy.Config{Limits: proxy.EgressLimits{Idle: 2 * time.Second}})
			converse(t, serveLocal(t, p), tt.send)
			e, got := book.next(t), <-came
			if int64(len(got)) > e.Up {
				t.Errorf("%d bytes left, %d counted: %.200q", len(got), e.Up, got)
			}
			if strings.Contains(got, "yyy") || strings.Contains(strings.ToLower(got), "trailer") {
				t.Errorf("the trailer left: %.300q", got)
			}
		})
	}
}

// TestAnswerTrailers are not passed on.
func TestAnswerTrailers(t *testing.T) {
	for _, announced := range []string{"", "Trailer: X-A\r\n"} {
		w := newWorld(t)
		w.wire("\r\n\r\n", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"+announced+"\r\n5\r\nhello\r\n0\r\nX-A: yyy\r\nConnection: yyy\r\n\r\n")
		p, book := w.startProxy(proxy.Config{})
		got := converse(t, serveLocal(t, p), request("GET", "/", "", ""))
		if book.next(t); strings.Contains(got, "yyy") || strings.Contains(got, "Trailer") || !strings.Contains(got, "hello") {
			t.Errorf("got %q", got)
		}
	}
}

// TestNothingIsPrinted: data that a server sends before a request or after an answer does not reach the
// standard logger.
func TestNothingIsPrinted(t *testing.T) {
	var printed bytes.Buffer
	was := log.Writer()
	log.SetOutput(&printed)
	defer log.SetOutput(was)
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
	w := newWorld(t)
	l := listenLocal(t)
	w.lead("crude.allowed.test", "93.184.216.37")
	w.stand("93.184.216.37:80", l)
	ended := make(chan struct{}, 100)
	w.each(l, func(c net.Conn) {
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nunasked")
		readHead(t, c)
		_, _ = io.WriteString(c, ok+ok)
		silent(c)
		ended <- struct{}{}
	})
	p, book := w.startProxy(proxy.Config{})
	address := serveLocal(t, p)
	for range 20 {
		converse(t, address, request("GET", "/", "", ""))
		book.next(t)
		<-ended
	}
	report(t, p.Close())
	if printed.Len() > 0 {
		t.Errorf("printed: %s", &printed)
	}
}

// TestTwoLengths: the proxy refuses a request with both a length and chunks, whether it is the first on its
// connection or not.
func TestTwoLengths(t *testing.T) {
	both := "POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
	w := newWorld(t)
	p, book := w.startProxy(proxy.Config{})
	address := serveLocal(t, p)
	for before := range 3 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		for range before {
			_, _ = io.WriteString(c, "POST http://allowed.test/ HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")
			b := make([]byte, 4096)
			if n, err := c.Read(b); err != nil || !strings.Contains(string(b[:n]), "200 OK") {
				t.Fatalf("%v, %q", err, b[:n])
			}
			if e := book.next(t); words(e) != "http allow" {
				t.Errorf("%+v", e)
			}
		}
		_, _ = io.WriteString(c, both)
		got, err := io.ReadAll(c)
		if err != nil || !strings.Contains(string(got), "400 Bad Request") {
			t.Errorf("%v, %q", err, got)
		}
		if e := book.next(t); words(e) != "malformed deny malformed_request" {
			t.Errorf("%+v", e)
		}
		_ = c.Close()
	}
	if _, names := w.takeReached(); fmt.Sprint(names) != "[allowed.test]" {
		t.Errorf("asked for %v", names)
	}
}
