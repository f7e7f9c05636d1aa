package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	copyBytes = 32 << 10
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
	remaining int64   // bytes of the limit for one tunnel
	copied    int64
	exhausted reason // when shared or remaining is used up
}

// runTunnel forwards first, then copies in both directions until both sides end or a limit is reached.
func (p *Proxy) runTunnel(a *access, c *client, up *upstream, first []byte) {
	t := &tunnel{p: p, begun: time.Now()}
	t.up = flow{t: t, from: c.tcp, to: up.TCPConn, shared: p.up, remaining: p.limits.TunnelUp, exhausted: reasonUp}
	t.down = flow{t: t, from: up.TCPConn, to: c.tcp, shared: p.down, remaining: p.limits.TunnelDown, exhausted: reasonDown}
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

// cut ends both flows. The first reason other than "" counts.
func (t *tunnel) cut(why reason) {
	if why != "" {
		t.reason.CompareAndSwap(nil, &why)
	}
	_ = t.up.from.Close()
	_ = t.up.to.Close()
}

// run copies until the flow ends, and then half-closes the other side.
func (f *flow) run() {
	raw, err := f.from.SyscallConn()
	for err == nil {
		var n int
		if n, err = f.step(raw); err != nil || n < copyBytes || f.copied < spliceAfter {
			continue
		}
		for full := true; full && err == nil; {
			full, err = f.splice()
		}
	}
	if !errors.Is(err, io.EOF) || f.to.CloseWrite() != nil {
		f.t.cut("")
	}
}

// step copies available bytes, at most one buffer. It has no buffer while it waits.
func (f *flow) step(raw syscall.RawConn) (int, error) {
	idle := f.t.p.limits.Idle
	if err := f.from.SetReadDeadline(time.Now().Add(idle/4 + time.Millisecond)); err != nil {
		return 0, err
	}
	var buf *[copyBytes]byte
	var n int
	var errno error
	err := raw.Read(func(fd uintptr) bool {
		buf = f.t.p.buffers.Get().(*[copyBytes]byte)
		for {
			if n, errno = unix.Read(int(fd), buf[:]); errno != unix.EINTR {
				break
			}
		}
		if errno == unix.EAGAIN {
			f.t.p.buffers.Put(buf)
			buf = nil
			return false
		}
		return true
	})
	if buf != nil {
		defer f.t.p.buffers.Put(buf)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		if time.Since(f.t.begun)-time.Duration(f.t.active.Load()) >= idle {
			f.t.cut(reasonIdle)
		}
		return 0, nil
	case err != nil || errno != nil:
		return 0, errors.Join(err, errno)
	case n == 0:
		return 0, io.EOF
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
	allowed := f.shared.take(min(int64(len(b)), f.remaining))
	if err := f.to.SetWriteDeadline(time.Now().Add(f.t.p.limits.writeTime())); err != nil {
		f.t.cut("")
		return false
	}
	n, err := f.to.Write(b[:allowed])
	f.copied += int64(n)
	f.remaining -= int64(n)
	switch {
	case err != nil:
		f.t.cut("")
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
	reserved := f.shared.reserve(min(spliceBytes, f.remaining))
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
	f.remaining -= n
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
