package main

import (
	"bufio"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/run/record"
)

// keptTask writes a pack with a task that keeps the harness's processes, and returns the arguments of sbench for a
// run of the pack with script as the harness. The checker opens a port of its own, and asks a server that the
// harness has left.
func keptTask(t *testing.T, script, output string) []string {
	t.Helper()
	dir := t.TempDir()
	const checker = `touch /tmp/own; python3 -c '
import socket, urllib.request as u
own = socket.create_server(("127.0.0.1", 9000))
assert u.urlopen("http://127.0.0.1:8098/", timeout=5).read() == b"42"
'`
	row, err := json.Marshal(map[string]any{
		"id": "kept/task", "family": "terminal_task", "input": map[string]any{"instructions": "Serve 42."},
		"eval":        map[string]any{"checker": map[string]any{"command": checker, "timeout_seconds": 30}},
		"environment": map[string]any{"image": containerdtest.Image, "keep_processes": true, "timeout_seconds": 5, "resources": map[string]any{"memory": "128m", "pids": 64}},
	})
	must(t, err)
	filetest.Write(t, dir, map[string]string{
		"manifest.yaml": "id: kept\nversion: 1\n", "tasks.jsonl": string(row) + "\n",
		"tester.yaml": `{"schema_version": "0.2", "run": {"id": "kept", "output_dir": "out"}, "benchmark": {"manifest": "manifest.yaml", "tasks": "tasks.jsonl"},
"harness": {"type": "command", "config": {"command": "true"}}}`,
	})
	command, err := json.Marshal([]string{"bash", "-c", script})
	must(t, err)
	return []string{"run", filepath.Join(dir, "tester.yaml"), "-o", output, "--progress", "plain", "--set", "harness.config.command=" + string(command)}
}

// served returns a script that leaves a server running. The server runs attack before its first answer.
func served(attack string) string {
	return `cat > s.py <<'END'
import http.server, os, signal, socket, subprocess, time
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        ` + attack + `
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"42")
server = http.server.HTTPServer(("127.0.0.1", 8098), Handler)
open("ready", "w").close()
server.serve_forever()
END
python3 s.py & until [ -e ready ]; do sleep 0.05; done; `
}

// TestKeepProcesses: a checker reaches a server that the harness has left. Whatever the kept processes do, the
// attempt is measured, and no process is left in the end, even if sbench is killed.
func TestKeepProcesses(t *testing.T) {
	h := newHost(t)
	before := h.runs()
	const writes = "(while :; do date > $RANDOM; done) & (trap '' TERM; while :; do date >> log; done) & "
	for name, tt := range map[string]struct{ script, want string }{
		"solved":                       {served("pass"), "passed=1"},
		"writes all the time":          {served("pass") + writes, "passed=1"},
		"nothing is left":              {"true", "verified=1 passed=0"},
		"a port of the checker's":      {served("pass") + "python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 9000)); time.sleep(1000)' & sleep 1", "verified=1 passed=0"},
		"the checker's files":          {served(`assert subprocess.run("ls /proc/*/root/tmp/own", shell=True).returncode == 0`), "verified=1 passed=0"},
		"all processes":                {served("os.kill(-1, signal.SIGKILL)"), "verified=1 passed=0"},
		"more memory than there is":    {served(`b"x" * (1 << 30)`), "verified=1 passed=0"},
		"more files than there may be": {served(`open("/dev/shm/x", "wb").write(b"x" * (1 << 28))`), "verified=1 passed=0"},
		"an answer that never ends":    {served("time.sleep(1000)"), "verified=1 passed=0"},
		"ended at its limit":           {"trap '' TERM; " + served("pass") + "trap - TERM; sleep 1000", "verified=1 passed=0"},
		"suspended by itself":          {served("os.kill(os.getpid(), signal.SIGSTOP)"), "verified=1 passed=0"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			args := keptTask(t, tt.script, out)
			expect(t, codeMeasured, tt.want, args...)
			expect(t, codeMeasured, "", "verify", out)
			_, err := record.Read(out, record.Trust{}, func(r record.Record) error {
				if kept := r.VerifierMetadata["processes"]; r.VerificationStatus == record.Passed && (kept != "kept" || r.Assurance != "executed") {
					t.Errorf("processes %v, assurance %s", kept, r.Assurance)
				}
				return nil
			})
			must(t, err)
			if name == "solved" {
				expect(t, codeMeasured, "verification=pending", "grade", "-c", args[1], "-o", filepath.Join(t.TempDir(), "again"), "--quiet", out)
			}
		})
	}
	cmd := exec.Command("sbench", append(keptTask(t, writes+served("time.sleep(1000)"), filepath.Join(h.dir, "out")), "--progress", "json")...)
	cmd.Env = h.env
	stderr, err := cmd.StderrPipe()
	must(t, err)
	must(t, cmd.Start())
	verifies := false
	for lines := bufio.NewScanner(stderr); !verifies && lines.Scan(); {
		verifies = strings.Contains(lines.Text(), `"event":"sandbox_command"`) && strings.Contains(lines.Text(), `"sandbox":"verifier"`)
	}
	must(t, cmd.Process.Kill())
	if _ = cmd.Wait(); !verifies {
		t.Error("no checker was started")
	}
	h.sbench(codeMeasured, "gc")
	h.nothingLeft(before)
}
