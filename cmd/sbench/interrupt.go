package main

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// interruption turns signals into the end of a context. For a command that asked
// for it, the first closes a channel instead, and the second ends the context.
type interruption struct {
	ctx    context.Context
	cancel context.CancelFunc

	mu   sync.Mutex
	soft chan struct{} // nil unless asked for, and after the first signal
}

// watchSignals is undone by close.
func watchSignals() *interruption {
	i := &interruption{}
	i.ctx, i.cancel = context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	go func() {
		for {
			select {
			case <-signals:
				i.interrupt()
			case <-i.ctx.Done():
				signal.Stop(signals)
				return
			}
		}
	}()
	return i
}

func (i *interruption) interrupt() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.soft == nil {
		i.cancel()
		return
	}
	close(i.soft)
	i.soft = nil
}

// graceful returns the channel that the first signal closes from now on.
func (i *interruption) graceful() <-chan struct{} {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.soft = make(chan struct{})
	return i.soft
}

func (i *interruption) close() { i.cancel() }
