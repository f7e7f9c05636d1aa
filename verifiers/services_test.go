package verifiers_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/securebench/sbench/verifiers"
)

// TestServices: services run beside the checker, in the order of the list.
func TestServices(t *testing.T) {
	w := newTerminalWorld(t)
	const (
		serve = "python3 serve.py"
		ready = "python3 -c \"import socket; socket.create_connection(('127.0.0.1', 8080))\""
		ask   = "python3 -c \"import urllib.request; assert urllib.request.urlopen('http://127.0.0.1:8080/answer.txt').read() == b'44\\n'\""
		start = "printf 'import http.server\\nhttp.server.ThreadingHTTPServer((\"127.0.0.1\", 8080), http.server.SimpleHTTPRequestHandler).serve_forever()\\n' > serve.py; "
	)
	service := func(command string, seconds float64) map[string]any {
		return map[string]any{"command": command, "ready": ready, "timeout_seconds": seconds}
	}
	checker := map[string]any{"command": ask}
	tests := []struct {
		name, script, reason string
		eval                 map[string]any
	}{
		{"answers", start + solve, "", map[string]any{"checker": checker, "services": []any{service(serve, 20)}}},
		{"wrong answer", start + "echo 43 > answer.txt", "checker_failed", map[string]any{"checker": checker, "services": []any{service(serve, 20)}}},
		{"never ready", solve, "checker_failed", map[string]any{"checker": checker, "services": []any{service(serve, 1)}}},
		{"in order", start + solve, "", map[string]any{"checker": checker, "services": []any{map[string]any{"command": []string{"touch", "first"}, "ready": "test -e first"}, service("test -e first && "+serve, 20)}}},
		{"what the agent left running is dead", start + solve + "; (" + serve + ") >/dev/null 2>&1 &", "checker_failed", map[string]any{"checker": checker}},
		{"as many as wanted", start + solve, "", map[string]any{"checker": map[string]any{"command": "sleep 0.2; " + ask}, "services": []any{map[string]any{"command": "sleep 1000"}, service(serve, 20)}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, v := w.attempt(t, tt.script, tt.eval, verifiers.Permissions{})
			if v.Reason != tt.reason {
				t.Errorf("%s %s: %s\n%s%s", v.Status, v.Reason, v.Message, v.Stdout, v.Stderr)
			}
		})
	}
}

// TestPartialScore: a checker that fails may leave a score, which never makes a pass.
func TestPartialScore(t *testing.T) {
	w := newTerminalWorld(t)
	for text, want := range map[string]float64{"0.5": 0.5, "0": 0, "1": 0, "2": 0, "-1": 0, "NaN": 0, "x": 0} {
		w.add(t, "hidden/p/check.sh", "#!/bin/sh\nmkdir -p /logs/verifier; echo '"+text+"' > /logs/verifier/reward.txt; exit 1\n")
		_, v := w.attempt(t, solve, map[string]any{"checker": map[string]any{"source": "script", "path": "p/check.sh"}}, verifiers.Permissions{})
		if v.Score != want || v.Reason != "checker_failed" {
			t.Errorf("%s: score %v, %s", text, v.Score, v.Reason)
		}
	}
}

// add writes a file of the pack.
func (w terminalWorld) add(t *testing.T, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(filepath.Join(w.dir, name)), 0o755))
	must(t, os.WriteFile(filepath.Join(w.dir, name), []byte(text), 0o755))
}
