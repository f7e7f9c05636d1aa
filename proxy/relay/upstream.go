package relay

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/securebench/sbench/proxy"
)

// An upstream is the way to the provider. Its connections are its own, so that
// they end with the relay.
type upstream struct {
	transport *http.Transport
	mu        sync.Mutex
	conns     map[net.Conn]struct{}
	closed    bool
}

func newUpstream(cfg Config) *upstream {
	u := &upstream{conns: map[net.Conn]struct{}{}}
	u.transport = &http.Transport{
		Proxy:                  cfg.Proxy,
		DialContext:            u.dial,
		TLSClientConfig:        &tls.Config{RootCAs: cfg.RootCAs, MinVersion: tls.VersionTLS12},
		TLSHandshakeTimeout:    15 * time.Second,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        90 * time.Second,
		ResponseHeaderTimeout:  cfg.Limits.Silence,
		MaxResponseHeaderBytes: 256 << 10,
		DisableCompression:     true,
		ForceAttemptHTTP2:      true, // not by itself with a dialer of one's own
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
	return u
}

func (u *upstream) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: 15 * time.Second}
	conn, err := d.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		_ = conn.Close()
		return nil, ErrClosed
	}
	tracked := &trackedConn{Conn: proxy.SpeakFirst(conn), up: u}
	u.conns[tracked] = struct{}{}
	return tracked, nil
}

// close ends all connections, idle or not.
func (u *upstream) close() {
	u.mu.Lock()
	u.closed = true
	conns := u.conns
	u.conns = map[net.Conn]struct{}{}
	u.mu.Unlock()
	for c := range conns {
		_ = c.Close()
	}
	u.transport.CloseIdleConnections()
}

type trackedConn struct {
	net.Conn
	up *upstream
}

func (c *trackedConn) Close() error {
	c.up.mu.Lock()
	delete(c.up.conns, c)
	c.up.mu.Unlock()
	return c.Conn.Close()
}
