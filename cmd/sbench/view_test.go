package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
)

// TestView: the command prints the address, and ends well when it is interrupted.
func TestView(t *testing.T) {
	dir := sampleRun(t, true, nil)
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	ended := make(chan error)
	go func() {
		ended <- (&viewCmd{runDirs: runDirs{RunDirs: []string{dir}}}).Run(ctx, &app{stdout: in, stderr: io.Discard})
	}()
	address, err := bufio.NewReader(out).ReadString('\n')
	must.Do(t, err)
	if !strings.HasPrefix(address, "http://127.0.0.1:") {
		t.Errorf("the address %q", address)
	}
	answer, err := http.Get(strings.TrimSpace(address))
	must.Do(t, err)
	body, err := io.ReadAll(answer.Body)
	must.Do(t, err)
	must.Do(t, answer.Body.Close())
	must.Contains(t, string(body), "<title>r · sbench report</title>")
	cancel()
	must.Do(t, <-ended)
}
