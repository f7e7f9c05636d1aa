package relay

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"time"

	"github.com/securebench/sbench/proxy"
)

// streamBytes is how much of an answer net/http keeps until it is read.
const streamBytes = 256 << 10

// newUpstream returns the transport to the provider. The end of ctx, the relay's context, closes all
// connections, even idle ones.
func newUpstream(ctx context.Context, cfg Config) *http.Transport {
	inFlight := cfg.Limits.InFlight
	dialer := net.Dialer{Timeout: 15 * time.Second, Control: proxy.BoundHostBuffers}
	return &http.Transport{
		Proxy: cfg.Proxy,
		DialContext: func(dialing context.Context, network, address string) (net.Conn, error) {
			conn, err := dialer.DialContext(dialing, network, address)
			if err != nil {
				return nil, err
			}
			return ending{conn, context.AfterFunc(ctx, func() { _ = conn.Close() })}, nil
		},
		TLSClientConfig:        &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    15 * time.Second,
		MaxConnsPerHost:        inFlight, // connecting goes on when the agent has given its request up
		MaxIdleConnsPerHost:    -1,       // for HTTP/1 only, where a connection is for one request
		IdleConnTimeout:        90 * time.Second,
		ResponseHeaderTimeout:  cfg.Limits.Silence,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true, // off by default with a DialContext
		HTTP2: &http.HTTP2Config{
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second, MaxReceiveBufferPerStream: streamBytes,
			MaxReceiveBufferPerConnection: inFlight * streamBytes,
		},
	}
}

// An ending is a connection that is closed when a context ends.
type ending struct {
	net.Conn
	forget func() bool // keeps the end of the context from closing the connection
}

func (e ending) Close() error {
	e.forget()
	return e.Conn.Close()
}
