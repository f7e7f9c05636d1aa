package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
)

const (
	serveAnswer = `import http.server, os
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(os.environ["ANSWER"].encode())
http.server.HTTPServer(("", 8080), Handler).serve_forever()`
	askAnswer = `python3 -c 'import urllib.request; print(urllib.request.urlopen("http://web:8080/").read().decode())'`
)

// sidecarPack writes a pack of one task with a sidecar, and the tester file of a script, which it returns.
func sidecarPack(t *testing.T, sidecar map[string]any, script string) string {
	sidecar["name"], sidecar["image"], sidecar["env"] = "web", containerdtest.Image, map[string]any{"ANSWER": "forty-two"}
	environment := must.JSON(t, map[string]any{"sidecars": []any{sidecar}})
	row := taskRow("shop", `test "$(cat answer.txt)" = "$(`+askAnswer+`)"`, `, "environment": `+string(environment))
	domains := strings.Replace(commandHarness(script), "config: {", "config: {allowed_domains: [allowed.invalid], ", 1)
	return writePack(t, t.TempDir(), row, domains)
}

// TestSidecars: the harness and the checker each reach a fresh sidecar by name, also beside a proxy, and can see nothing
// else of it.
func TestSidecars(t *testing.T) {
	h := newHost(t)
	before := h.runs()
	serve := func() map[string]any {
		return map[string]any{"command": []string{"python3", "-c", serveAnswer}, "ready": askAnswer, "timeout_seconds": 60}
	}
	renamed := serve()
	renamed["aliases"] = []string{"shop"}
	for name, tt := range map[string]struct {
		sidecar        map[string]any
		script, status string
		message        string
	}{
		"answers":      {serve(), askAnswer + " > answer.txt", "passed", ""},
		"another name": {renamed, strings.Replace(askAnswer, "web", "shop", 1) + " > answer.txt", "passed", ""},
		"wrong answer": {serve(), "echo 41 > answer.txt", "failed", ""},
		"is another sandbox": {
			serve(), askAnswer + ` > answer.txt; echo > /tmp/mine; ps=$(cat /proc/[0-9]*/cmdline | tr '\0' ' '); case "$ps" in *serve_""forever*) exit 1;; esac`, "passed", "",
		},
		"from its image only": {map[string]any{"command": "sleep 1000", "ready": "test ! -e /workspace"}, "hostname; exit 3", "failed", "exited with code 3"},
		"never ready":         {map[string]any{"command": "sleep 1000", "ready": "false", "timeout_seconds": 1}, "true", "error", `sidecar "web": exited with code 126: with-services: the service`},
		"ends at once":        {map[string]any{"command": "no-such-command", "ready": askAnswer, "timeout_seconds": 1}, "true", "error", "is not ready after 1s"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			code := codeMeasured
			if tt.status == "error" {
				code = codeInfrastructure
			}
			_, _ = h.sbench(code, "run", sidecarPack(t, tt.sidecar, tt.script), "-o", out, "--progress=none")
			h.sbench(codeMeasured, "verify", out)
			for _, r := range recordsOf(t, out) {
				if string(r.VerificationStatus) != tt.status || !strings.Contains(r.FailureMessage, tt.message) || r.Sidecars["web"] != r.ImageID {
					t.Errorf("%s: %s, sidecars %v\n%s%s", r.VerificationStatus, r.FailureMessage, r.Sidecars, r.ProducerStdout, r.ProducerStderr)
				}
			}
		})
	}
	h.sbench(codeMeasured, "gc")
	h.nothingLeft(before)
}
