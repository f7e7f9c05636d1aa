package main

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

// lastGrace is how long a command may take to end after its context has.
const lastGrace = 10 * time.Second

// interruption turns signals into the end of a context. For a command that asked
// for it, the first closes a channel instead, and the second ends the context. The
// next signal ends the process, and so does lastGrace if the context was ended by
// the second, whatever hangs.
type interruption struct {
	ctx    context.Context
	cancel context.CancelFunc
	exit   func(code int)

	mu   sync.Mutex
	say  io.Writer
	soft chan struct{} // nil unless asked for, and after the first signal
	n    int           // signals
}

// watchSignals is undone by close.
func watchSignals() *interruption {
	i := &interruption{exit: os.Exit, say: os.Stderr}
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

func (i *interruption) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.n++
	switch {
	case i.soft != nil:
		close(i.soft)
		i.soft = nil
		i.tell("what is being verified comes to its end; a second Ctrl-C ends sbench within 10 seconds")
	case i.ctx.Err() != nil:
		i.tell("ended at once: sbench gc removes what is left")
		i.exit(codeInterrupted)
	default:
		i.cancel()
		if i.n > 1 {
			time.AfterFunc(lastGrace, i.interrupt)
			return
		}
		i.tell("ending; a second Ctrl-C ends sbench at once, and leaves the rest to sbench gc")
	}
}

// tell writes a line. That nobody reads it stops nothing.
func (i *interruption) tell(line string) {
	said := make(chan struct{})
	go func() {
		_, _ = fmt.Fprintln(i.say, "sbench:", line)
		close(said)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}

// graceful returns the channel that the first signal closes from now on. What is to be
// said then goes to say, which must be safe to use at any time.
func (i *interruption) graceful(say io.Writer) <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.soft, i.say = make(chan struct{}), say
	return i.soft
}

func (i *interruption) close() { i.cancel() }
