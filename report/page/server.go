package page

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/run/record"
)

// A server looks at the records every viewLooks, and a browser waits at most viewWaits for an answer. Before
// the next page it waits viewRests, or viewTimes as long as the last page took. A browser that takes nothing of its page
// for viewStalls gets no more of it: others wait for theirs.
const (
	viewLooks  = 500 * time.Millisecond
	viewWaits  = 20 * time.Second
	viewRests  = 2 * time.Second
	viewTimes  = 10
	viewStalls = time.Minute
)

// A Server serves the page of runs on loopback, while their records grow. Its address contains a secret, because
// every user of the host can connect to loopback, and every web page can make a browser do so.
type Server struct {
	Open   func(context.Context) ([]*report.Source, error) // the server closes the sources, also after an error
	Dirs   []string                                        // of the runs
	Secret string

	mu   sync.Mutex // one page at a time
	next time.Time  // before then, no browser gets an answer about changes
}

// Serve serves the page on l, which it closes, until ctx ends.
func (v *Server) Serve(ctx context.Context, l net.Listener) error {
	server := &http.Server{Handler: v.Handler(), ReadHeaderTimeout: 10 * time.Second, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// Handler answers requests for the page, and for changes of the records.
func (v *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /"+v.Secret+"/{$}", v.page)
	mux.HandleFunc("GET /"+v.Secret+"/wait", v.wait)
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
func (v *Server) page(w http.ResponseWriter, r *http.Request) {
	v.mu.Lock()
	defer v.mu.Unlock()
	began, state := time.Now(), v.state()
	sources, err := v.Open(r.Context())
	for _, s := range sources {
		defer func() { _ = s.Close() }() // only read from
	}
	if err != nil {
		http.Error(w, report.Visible(err.Error(), 1000), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	p := Page{Report: report.Summarize(sources), Sources: sources, Live: state}
	if err := p.Write(r.Context(), patient{w}); err != nil {
		panic(http.ErrAbortHandler)
	}
	v.next = time.Now().Add(max(viewRests, viewTimes*time.Since(began)))
}

// patient is an answer that a browser may take slowly.
type patient struct{ http.ResponseWriter }

// Write implements io.Writer. Each part has its own time.
func (p patient) Write(data []byte) (n int, err error) {
	for part := range slices.Chunk(data, 4<<10) {
		_ = http.NewResponseController(p.ResponseWriter).SetWriteDeadline(time.Now().Add(viewStalls))
		written, err := p.ResponseWriter.Write(part)
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}

// wait answers 200 once the records differ from the state since, or 204 if they do not for viewWaits.
func (v *Server) wait(w http.ResponseWriter, r *http.Request) {
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
func (v *Server) state() string {
	var sizes []string
	for _, dir := range v.Dirs {
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
