package proxy

import (
	"context"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"github.com/elazarl/goproxy"
)

// forwarder is the part of a proxy that reads and sends plain HTTP.
type forwarder struct {
	*Proxy
	server     *http.Server
	transport  *http.Transport
	dispatcher *goproxy.ProxyHttpServer // dispatches; all decisions are made here
}

func newForwarder(p *Proxy) *forwarder {
	f := &forwarder{Proxy: p}
	f.server, f.transport = f.newServer(), f.newTransport()
	f.dispatcher = f.newDispatcher()
	return f
}

func (f *forwarder) newServer() *http.Server {
	return &http.Server{
		Handler:                      http.HandlerFunc(f.handle),
		DisableGeneralOptionsHandler: true,
		ReadHeaderTimeout:            f.limits.HeaderTime,
		IdleTimeout:                  min(f.limits.Idle, time.Minute),
		MaxHeaderBytes:               f.limits.HeaderBytes,
		ErrorLog:                     log.New(io.Discard, "", 0),
		ConnState:                    f.connState,
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(ctx, clientKey{}, c)
		},
	}
}

// newDispatcher returns the dispatcher of plain HTTP, without its own ways of logging, answering errors, and asking
// the environment for a proxy. It gets no CONNECT.
func (f *forwarder) newDispatcher() *goproxy.ProxyHttpServer {
	lib := goproxy.NewProxyHttpServer()
	lib.Logger = log.New(io.Discard, "", 0)
	lib.Tr, lib.ConnectDial = f.transport, nil
	lib.KeepAcceptEncoding = true
	lib.NonproxyHandler = http.HandlerFunc(f.notProxy)
	lib.OnRequest().HandleConnect(goproxy.AlwaysReject)
	lib.OnRequest().DoFunc(f.handleRequest)
	lib.OnResponse().DoFunc(f.handleResponse)
	return lib
}

// newTransport returns a transport that connects to allowed hosts only. A connection is for one
// request: otherwise net/http would retry a request that the proxy counts once.
func (f *forwarder) newTransport() *http.Transport {
	return &http.Transport{
		DialContext: f.dialHTTP, DisableCompression: true, DisableKeepAlives: true,
		MaxResponseHeaderBytes: int64(f.limits.HeaderBytes), // the transfer limits times
		DialTLSContext:         func(context.Context, string, string) (net.Conn, error) { return nil, ErrClosed },
	}
}

// serve serves the requests of a connection until the connection is closed.
func (f *forwarder) serve(c *client) {
	_ = f.server.Serve(OneConn(c)) // returns while the server serves c on another goroutine
	<-c.closed
	c.logUnfinished()
}

// handle is the server's handler.
func (f *forwarder) handle(w http.ResponseWriter, r *http.Request) {
	c := r.Context().Value(clientKey{}).(*client)
	c.handled.Store(true)
	if r.Method == http.MethodConnect && c.redirectedTo == nil {
		f.handleConnect(w, r, c)
		return
	}
	f.forward(w, r, c)
}

// connState prepares a connection for its next request.
func (f *forwarder) connState(conn net.Conn, state http.ConnState) {
	if c := conn.(*client); state == http.StateIdle {
		c.handled.Store(false)
		c.unparsed.Store(false)
	}
}
