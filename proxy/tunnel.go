package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const copyBytes = 32 << 10

// A tunnel is two flows in opposite directions. If one fails, both end.
type tunnel struct {
	p        *Proxy
	up, down flow
	begun    time.Time
	active   atomic.Int64 // time of the last byte either way, in nanoseconds after begun
	reason   atomic.Pointer[Reason]
}

// A flow is one direction of a tunnel.
type flow struct {
	t        *tunnel
	from, to *net.TCPConn
	shared   *budget // of the sandbox
	left     int64   // bytes left of the tunnel's own limit
	moved    int64
	full     Reason // when one of the two is used up
}

// tunnel forwards first, then copies both ways until both sides end or a limit is
// reached.
func (p *Proxy) tunnel(a *attempt, c *client, up *upstream, first []byte) {
	t := &tunnel{p: p, begun: time.Now()}
	t.up = flow{t: t, from: c.tcp, to: up.TCPConn, shared: p.up, left: p.limits.TunnelUp, full: ReasonUp}
	t.down = flow{t: t, from: up.TCPConn, to: c.tcp, shared: p.down, left: p.limits.TunnelDown, full: ReasonDown}
	timer := time.AfterFunc(p.limits.Lifetime, func() { t.cut(ReasonLifetime) })
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
		t.cut(ReasonShutdown)
	}
	if reason := t.reason.Load(); reason != nil {
		a.cut(*reason)
	}
	a.end(t.up.moved, t.down.moved)
}

// cut ends both flows. The first reason that is not "" counts.
func (t *tunnel) cut(reason Reason) {
	if reason != "" {
		t.reason.CompareAndSwap(nil, &reason)
	}
	_ = t.up.from.Close()
	_ = t.up.to.Close()
}

// run copies until the flow ends, and then half-closes the other side.
func (f *flow) run() {
	raw, err := f.from.SyscallConn()
	for err == nil {
		err = f.step(raw)
	}
	if !errors.Is(err, io.EOF) || f.to.CloseWrite() != nil {
		f.t.cut("")
	}
}

// step moves what can be read, up to one buffer full. It holds no buffer while it
// waits.
func (f *flow) step(raw syscall.RawConn) error {
	idle := f.t.p.limits.Idle
	if err := f.from.SetReadDeadline(time.Now().Add(idle/4 + time.Millisecond)); err != nil {
		return err
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
			f.t.cut(ReasonIdle)
		}
		return nil
	case err != nil || errno != nil:
		return errors.Join(err, errno)
	case n == 0:
		return io.EOF
	}
	f.t.touch()
	if !f.write(buf[:n]) {
		return net.ErrClosed
	}
	return nil
}

func (t *tunnel) touch() { t.active.Store(int64(time.Since(t.begun))) }

// write sends b. If it cannot, or if the limits allow only a part, which it sends, it
// ends the tunnel and returns false.
func (f *flow) write(b []byte) bool {
	allowed := f.shared.take(min(int64(len(b)), f.left))
	if err := f.to.SetWriteDeadline(time.Now().Add(f.t.p.limits.writeTime())); err != nil {
		f.t.cut("")
		return false
	}
	n, err := f.to.Write(b[:allowed])
	f.moved += int64(n)
	f.left -= int64(n)
	if err == nil && allowed == int64(len(b)) {
		f.t.touch()
		return true
	}
	if err == nil {
		f.t.cut(f.full)
	}
	f.t.cut("")
	return false
}

// A budget is a number of bytes that several flows share.
type budget struct {
	mu          sync.Mutex
	total, left int64
}

func newBudget(total int64) *budget { return &budget{total: total, left: total} }

// take uses up to n bytes and returns how many it used; fewer than n exhaust the budget. A
// negative n gives bytes back.
func (b *budget) take(n int64) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, b.left)
	b.left -= n
	return n
}

func (b *budget) used() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total - b.left
}
