package page_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
	"github.com/securebench/sbench/run/record"
)

// TestServer: the server answers only addresses with the secret, and a waiting browser gets an answer when there
// are more records.
func TestServer(t *testing.T) {
	dir := t.TempDir()
	records := filepath.Join(dir, record.RecordsFile)
	write := func(text string) { must.Do(t, os.WriteFile(records, []byte(text), 0o644)) }
	write(`{"task_id": "one", "verification_status": "passed"}` + "\n")
	synctest.Test(t, func(t *testing.T) {
		open := func(ctx context.Context) ([]*report.Source, error) {
			s, err := report.Open(ctx, dir)
			if err != nil {
				return nil, err
			}
			return []*report.Source{s}, nil
		}
		handler := (&page.Server{Open: open, Dirs: []string{dir}, Secret: "secret"}).Handler()
		get := func(path string, want int) *httptest.ResponseRecorder {
			t.Helper()
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
			if w.Code != want {
				t.Errorf("%s: %d, want %d", path, w.Code, want)
			}
			return w
		}
		for _, path := range []string{"/", "/wait", "/secre/", "/secret/x", "/secret/run.json"} {
			if got := get(path, http.StatusNotFound).Body.String(); strings.Contains(got, "one") {
				t.Errorf("%s shows records", path)
			}
		}
		shown := get("/secret/", http.StatusOK)
		must.Contains(t, shown.Body.String(), "connect-src 'self'", `"live":"`, `"task":"one"`, "</html>")
		if h := shown.Header(); h.Get("Content-Security-Policy") != "frame-ancestors 'none'" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", h)
		}
		_, rest, _ := strings.Cut(shown.Body.String(), `"live":"`)
		state, _, _ := strings.Cut(rest, `"`)
		wait := "/secret/wait?since=" + strings.ReplaceAll(state, " ", "%20")
		began := time.Now()
		get(wait, http.StatusNoContent)
		must.Equal(t, 20*time.Second, time.Since(began))
		write(`{"task_id": "one", "verification_status": "passed"}` + "\n" + `{"task_id": "two", "verification_status": "failed"}` + "\n")
		get(wait, http.StatusOK)
		if got := get("/secret/", http.StatusOK).Body.String(); !strings.Contains(got, `"task":"two"`) {
			t.Error("the page lacks the new record")
		}
		must.Do(t, os.Remove(records))
		get("/secret/", http.StatusInternalServerError)
	})
}

// asks returns a connection to a server of no runs, which was asked for the page.
func asks(t *testing.T) (browser net.Conn, served <-chan error) {
	browser, connection := net.Pipe()
	none := func(context.Context) ([]*report.Source, error) { return nil, nil }
	ended := make(chan error, 1)
	go func() {
		ended <- (&page.Server{Open: none, Secret: "secret"}).Serve(t.Context(), proxy.OneConn(connection))
	}()
	_, err := io.WriteString(browser, "GET /secret/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
	must.Do(t, err)
	return browser, ended
}

// TestStalledBrowser: a browser that stops reading does not get the page for ever.
func TestStalledBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		browser, served := asks(t)
		time.Sleep(time.Hour)
		_ = browser.SetDeadline(time.Now().Add(time.Minute))
		if text, err := io.ReadAll(browser); err != nil || len(text) > 0 {
			t.Errorf("after an hour, the browser read %d bytes (%v)", len(text), err)
		}
		must.Do(t, browser.Close())
		must.Is(t, <-served, net.ErrClosed)
	})
}

// TestSlowBrowser: a browser that goes on reading gets the whole page, however long that takes.
func TestSlowBrowser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		browser, served := asks(t)
		var text strings.Builder
		began, err := time.Now(), error(nil)
		for ; err == nil; _, err = io.CopyN(&text, browser, 4<<10) {
			time.Sleep(40 * time.Second)
		}
		if took := time.Since(began); !strings.Contains(text.String(), "</html>") || took < 5*time.Minute {
			t.Errorf("in %v, the browser read %d bytes: %v", took, text.Len(), err)
		}
		must.Do(t, browser.Close())
		must.Is(t, <-served, net.ErrClosed)
	})
}
