// Package interrupt turns the signals with which a user interrupts a command into the end of a context.
package interrupt

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"
)

// lastGrace is how long a command may take to end after a second signal has canceled its context.
const lastGrace = 10 * time.Second

// An Interruption cancels a context when a signal comes; after Graceful, the first signal closes a channel
// instead. A signal after the cancellation ends the process at once, as does the end of lastGrace.
type Interruption struct {
	ctx    context.Context
	cancel context.CancelFunc
	code   int // with which the process ends at once

	mu   sync.Mutex
	say  io.Writer
	soft chan struct{} // nil before Graceful, and after the first signal
	n    int           // signals so far
}

// Watch begins to handle signals. If the process ends at once, it ends with the exit code. The caller calls Close at the end.
func Watch(code int) *Interruption {
	i := &Interruption{code: code, say: os.Stderr}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for range signals {
			i.interrupt()
		}
	}()
	return i
}

func (i *Interruption) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	switch {
	case i.soft != nil:
		close(i.soft)
		i.soft = nil
		i.printLine("verifications in progress are completed; a second Ctrl-C ends sbench within 10 seconds")
	case i.ctx.Err() != nil:
		i.printLine("ended at once: sbench gc removes what is left")
		os.Exit(i.code)
	default:
		i.cancel()
		if i.n > 1 {
			time.AfterFunc(lastGrace, i.interrupt)
			return
		}
		i.printLine("ending; a second Ctrl-C ends sbench at once, and leaves the rest to sbench gc")
	}
}

// printLine prints a line. It waits at most a second for a reader.
func (i *Interruption) printLine(line string) {
	written := make(chan struct{})
	go func() {
		_, _ = fmt.Fprintln(i.say, "sbench:", line)
		close(written)
	}()
	select {
	case <-written:
	case <-time.After(time.Second):
	}
}

// SetOutput sends messages to w from now on. w must be safe for concurrent use.
func (i *Interruption) SetOutput(w io.Writer) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.say = w
}

// Graceful returns a channel that the first signal closes instead of canceling the context. It is closed already if
// the signal has come.
func (i *Interruption) Graceful() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	soft := make(chan struct{})
	if i.n > 0 {
		close(soft)
		return soft
	}
	i.soft = soft
	return soft
}

// Context returns the context, which ends with an interruption, or with Close.
func (i *Interruption) Context() context.Context { return i.ctx }

// Close ends the context.
func (i *Interruption) Close() { i.cancel() }
