package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"time"
)

const (
	// copyBytes is the size of a flow's buffer.
	copyBytes = 8 << 10
	// spliceAfter is the number of bytes after which the kernel copies a flow. Before, it would cost
	// a small tunnel four descriptors for pipes.
	spliceAfter = 512 << 10
	spliceBytes = 1 << 20
	spliceTime  = 200 * time.Millisecond
)

// A tunnel is two flows in opposite directions. If one flow fails, both end.
type tunnel struct {
	p        *Proxy
	up, down flow
	begun    time.Time
	active   atomic.Int64 // time of the last byte in either direction, in nanoseconds after begun
	reason   atomic.Pointer[reason]
}

// A flow is one direction of a tunnel.
type flow struct {
	t         *tunnel
	from, to  *net.TCPConn
	shared    *budget // of the sandbox
	copied    int64
	exhausted reason // when shared is used up
}

// runTunnel forwards first, then copies in both directions until both sides end or a limit is reached.
func (p *Proxy) runTunnel(a *access, c *client, up *upstream, first []byte) {
	t := &tunnel{p: p, begun: time.Now()}
	t.up = flow{t: t, from: c.tcp, to: up.TCPConn, shared: p.up, exhausted: reasonUp}
	t.down = flow{t: t, from: up.TCPConn, to: c.tcp, shared: p.down, exhausted: reasonDown}
	timer := time.AfterFunc(p.limits.Lifetime, func() { t.cut(reasonLifetime) })
	defer timer.Stop()
	down := make(chan struct{})
	go func() {
		defer close(down)
		t.down.run()
	}()
	if t.up.write(first) {
		t.up.run()
	}
	<-down
	if p.ctx.Err() != nil {
		t.cut(reasonShutdown)
	}
	if why := t.reason.Load(); why != nil {
		a.cut(*why)
	}
	a.end(t.up.copied, t.down.copied)
}

// cut ends both flows. The first reason counts.
func (t *tunnel) cut(why reason) {
	if why.Word != "" {
		t.reason.CompareAndSwap(nil, &why)
	}
	_ = t.up.from.Close()
	_ = t.up.to.Close()
}

// run copies until the flow ends, and then half-closes the other side.
func (f *flow) run() {
	buf := make([]byte, copyBytes)
	var err error
	for err == nil {
		var n int
		if n, err = f.step(buf); err != nil || n < copyBytes || f.copied < spliceAfter {
			continue
		}
		for full := true; full && err == nil; {
			full, err = f.splice()
		}
	}
	if !errors.Is(err, io.EOF) || f.to.CloseWrite() != nil {
		f.t.cut(reason{})
	}
}

// step copies what is there, at most one buffer, or waits for some of the idle time.
func (f *flow) step(buf []byte) (int, error) {
	idle := f.t.p.limits.Idle
	if err := f.from.SetReadDeadline(time.Now().Add(idle/4 + time.Millisecond)); err != nil {
		return 0, err
	}
	n, err := f.from.Read(buf)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		if time.Since(f.t.begun)-time.Duration(f.t.active.Load()) >= idle {
			f.t.cut(reasonIdle)
		}
		return 0, nil
	case err != nil:
		return 0, err
	}
	f.t.touch()
	if !f.write(buf[:n]) {
		return n, net.ErrClosed
	}
	return n, nil
}

func (t *tunnel) touch() { t.active.Store(int64(time.Since(t.begun))) }

// write sends b, or the part of b that the limits allow. If it did not send all of b, it ends the
// tunnel and returns false.
func (f *flow) write(b []byte) bool {
	allowed := f.shared.take(int64(len(b)))
	if err := f.to.SetWriteDeadline(time.Now().Add(f.t.p.limits.writeTime())); err != nil {
		f.t.cut(reason{})
		return false
	}
	n, err := f.to.Write(b[:allowed])
	f.copied += int64(n)
	switch {
	case err != nil:
		f.t.cut(reason{})
	case allowed < int64(len(b)):
		f.t.cut(f.exhausted)
	default:
		f.t.touch()
		return true
	}
	return false
}

// splice lets the kernel copy. full is false if it copied less than it reserved: then it is better to
// wait in step, which reserves nothing.
func (f *flow) splice() (full bool, err error) {
	reserved := f.shared.reserve(spliceBytes)
	n := int64(0)
	defer func() { f.shared.release(reserved, n) }()
	if reserved < 2*copyBytes {
		return false, nil
	}
	now := time.Now()
	if err := errors.Join(f.from.SetReadDeadline(now.Add(spliceTime)), f.to.SetWriteDeadline(now.Add(f.t.p.limits.writeTime()))); err != nil {
		return false, err
	}
	n, err = f.to.ReadFrom(&io.LimitedReader{R: f.from, N: reserved})
	f.copied += n
	if n > 0 {
		f.t.touch()
	}
	var op *net.OpError
	switch {
	case errors.As(err, &op) && op.Timeout() && op.Op != "write" && time.Since(now) < f.t.p.limits.writeTime():
		return false, nil
	case err != nil:
		return false, err
	case n < reserved:
		return false, io.EOF
	}
	return true, nil
}
