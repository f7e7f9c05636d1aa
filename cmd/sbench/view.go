package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
	"github.com/securebench/sbench/run/record"
)

type viewCmd struct {
	runDirs
	Port int `placeholder:"N" help:"Port on 127.0.0.1. Default: a free one."`
}

// Times of the viewer: it looks at the records every viewLooks, and a browser waits at most viewWaits for
// an answer. Before the next page it waits at least viewRests, and at least viewTimes as long as the last
// page took.
const (
	viewLooks = 500 * time.Millisecond
	viewWaits = 20 * time.Second
	viewRests = 2 * time.Second
	viewTimes = 10
)

// Run serves the HTML report on loopback until it is interrupted.
func (cmd *viewCmd) Run(ctx context.Context, a *app) error {
	sources, err := cmd.open(ctx)
	if err := errors.Join(err, closeAll(sources)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", fmt.Sprint(cmd.Port)))
	if err != nil {
		return fmt.Errorf("%w: --port %d: %w", errUsage, cmd.Port, err)
	}
	v := &viewer{open: cmd.open, dirs: cmd.RunDirs, secret: rand.Text()}
	server := &http.Server{Handler: v.handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := a.printf("http://%s/%s/\n", l.Addr(), v.secret); err != nil {
		return errors.Join(err, server.Close())
	}
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// A viewer serves the page of runs. Its address contains a secret, because every user of the host can
// connect to loopback, and every web page can make a browser do so.
type viewer struct {
	open   func(context.Context) ([]*report.Source, error)
	dirs   []string
	secret string

	mu   sync.Mutex // one page at a time
	next time.Time  // before then, no browser gets an answer about changes
}

func (v *viewer) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /"+v.secret+"/{$}", v.page)
	mux.HandleFunc("GET /"+v.secret+"/wait", v.wait)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		for name, value := range map[string]string{
			"Content-Security-Policy": "frame-ancestors 'none'", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Cross-Origin-Resource-Policy": "same-origin", "Cross-Origin-Opener-Policy": "same-origin", "Cache-Control": "no-store",
		} {
			w.Header().Set(name, value)
		}
		mux.ServeHTTP(w, r)
	})
}

// page writes the page for the present records. A truncated page lacks its script, so that nobody takes it
// for a whole one.
func (v *viewer) page(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	began, state := time.Now(), v.state()
	sources, err := v.open(r.Context())
	defer func() { _ = closeAll(sources) }() // only read from
	if err != nil {
		http.Error(w, report.Visible(err.Error(), 1000), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p := page.Page{Report: report.Summarize(sources), Sources: sources, Live: state}
	if err := p.Write(r.Context(), w); err != nil {
		panic(http.ErrAbortHandler)
	}
	v.next = time.Now().Add(max(viewRests, viewTimes*time.Since(began)))
}

// wait answers 200 once the records differ from the state since, or 204 if they do not for viewWaits.
func (v *viewer) wait(w http.ResponseWriter, r *http.Request) {
	ctx, cancel := context.WithTimeout(r.Context(), viewWaits)
	defer cancel()
	look := time.NewTicker(viewLooks)
	defer look.Stop()
	for {
		v.mu.Lock()
		rested := !time.Now().Before(v.next)
		v.mu.Unlock()
		if rested && v.state() != r.URL.Query().Get("since") {
			return
		}
		select {
		case <-look.C:
		case <-ctx.Done():
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
}

// state identifies the records and their seal by the sizes and times of the files.
func (v *viewer) state() string {
	var sizes []string
	for _, dir := range v.dirs {
		for _, name := range []string{record.RecordsFile, record.SealFile} {
			size := "none"
			if info, err := os.Lstat(filepath.Join(dir, name)); err == nil {
				size = fmt.Sprint(info.Size(), info.ModTime().UnixNano())
			}
			sizes = append(sizes, size)
		}
	}
	return strings.Join(sizes, ",")
}
