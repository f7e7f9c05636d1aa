package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/securebench/sbench/run/record"
)

// TestViewer: the server answers only addresses with the secret, and a waiting browser gets an answer when there
// are more records.
func TestViewer(t *testing.T) {
	dir := t.TempDir()
	records := filepath.Join(dir, record.RecordsFile)
	write := func(text string) { must(t, os.WriteFile(records, []byte(text), 0o644)) }
	write(`{"task_id": "one", "verification_status": "passed"}` + "\n")
	synctest.Test(t, func(t *testing.T) {
		cmd := runDirs{RunDirs: []string{dir}, AcceptUnsigned: true}
		v := &viewer{open: cmd.open, dirs: cmd.RunDirs, secret: "secret"}
		handler := v.handler()
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
		page := get("/secret/", http.StatusOK)
		for _, want := range []string{"connect-src 'self'", `"live":"`, `"task":"one"`, "</html>"} {
			if !strings.Contains(page.Body.String(), want) {
				t.Errorf("the page lacks %s", want)
			}
		}
		if h := page.Header(); h.Get("Content-Security-Policy") != "frame-ancestors 'none'" || h.Get("Cache-Control") != "no-store" {
			t.Errorf("%v", h)
		}
		_, rest, _ := strings.Cut(page.Body.String(), `"live":"`)
		state, _, _ := strings.Cut(rest, `"`)
		wait := "/secret/wait?since=" + strings.ReplaceAll(state, " ", "%20")
		began := time.Now()
		get(wait, http.StatusNoContent)
		if waited := time.Since(began); waited != viewWaits {
			t.Errorf("waited %v", waited)
		}
		write(`{"task_id": "one", "verification_status": "passed"}` + "\n" + `{"task_id": "two", "verification_status": "failed"}` + "\n")
		get(wait, http.StatusOK)
		if got := get("/secret/", http.StatusOK).Body.String(); !strings.Contains(got, `"task":"two"`) {
			t.Error("the page lacks the new record")
		}
		must(t, os.Remove(records))
		get("/secret/", http.StatusInternalServerError)
	})
}

// TestView: the command prints the address, and ends well when it is interrupted.
func TestView(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	l, err := record.Create(dir, record.Manifest{RunID: "r"})
	must(t, err)
	must(t, l.Close())
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error)
	go func() {
		ended <- (&viewCmd{runDirs: runDirs{RunDirs: []string{dir}}}).Run(ctx, &app{stdout: in, stderr: io.Discard})
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	must(t, err)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("the address %q", address)
	}
	answer, err := http.Get(strings.TrimSpace(address))
	must(t, err)
	body, err := io.ReadAll(answer.Body)
	must(t, err)
	must(t, answer.Body.Close())
	if !strings.Contains(string(body), "<title>r · sbench report</title>") {
		t.Errorf("%.300s", body)
	}
	cancel()
	must(t, <-ended)
}
