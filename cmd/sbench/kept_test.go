package main

import (
	"bufio"
	"cmp"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

// ask opens a port of its own, and asks the server at port 8098, for at most so many seconds.
func ask(seconds int) string {
	return fmt.Sprintf(`touch /tmp/own; python3 -c '
import socket, urllib.request as u
own = socket.create_server(("127.0.0.1", 9000))
assert u.urlopen("http://127.0.0.1:8098/", timeout=%d).read() == b"42"
'`, seconds)
}

// A keeping is a task that keeps processes, with the harness's script.
type keeping struct {
	script  string
	sidecar string         // the Python program of a sidecar; "" for no sidecar
	checker map[string]any // nil means the command ask
	limit   int            // seconds of the harness; 0 means a minute
}

// run writes a pack with the task, and returns the arguments of sbench for a run of it.
func (k keeping) run(t *testing.T, output string) []string {
	if k.checker == nil {
		k.checker = map[string]any{"command": ask(30), "timeout_seconds": 60}
	}
	environment := map[string]any{"keep_processes": true, "timeout_seconds": cmp.Or(k.limit, 60), "resources": map[string]any{"memory": "128m", "pids": 64}}
	if k.checker["image"] != nil {
		environment["candidate"] = "machine"
	}
	if k.sidecar != "" {
		environment["sidecars"] = []any{map[string]any{"name": "store", "image": containerdtest.Image, "command": []string{"python3", "-c", k.sidecar}, "ready": "python3 -c 'import socket; socket.create_connection((\"store\", 8098))'"}}
	}
	row := must.JSON(t, map[string]any{
		"id": "kept/task", "input": map[string]any{"instructions": "Serve 42."}, "eval": map[string]any{"checker": k.checker}, "environment": environment,
	})
	tester := writePack(t, t.TempDir(), string(row)+"\n", commandHarness(k.script))
	filetest.Write(t, filepath.Dir(tester), map[string]string{"hidden/test_once.py": "import urllib.request as u\ndef test_42():\n    assert u.urlopen('http://127.0.0.1:8098/').read() == b'42'\n"})
	return []string{"run", tester, "-o", output, "--progress", "plain"}
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

// store is a server with a state: the body of the last POST, which it also executes.
const store = `
import http.server, os, signal
class Handler(http.server.BaseHTTPRequestHandler):
    said = b"nothing"
    def reply(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(Handler.said)
    def do_POST(self):
        Handler.said = self.rfile.read(int(self.headers["Content-Length"]))
        exec(Handler.said)
        self.reply()
    do_GET = reply
http.server.ThreadingHTTPServer(("127.0.0.1", 8098), Handler).serve_forever()
`

// told returns a script that sends a text to the sidecar.
func told(text string) string {
	return `python3 -c 'import urllib.request as u; u.urlopen("http://store:8098/", b"` + text + `")' || true; `
}

// passing is a script that passes a descriptor of its directory to the sidecar, which from then on changes the sizes of
// the directory's files all the time.
const passing = `truncate -s 16M big{0..7}; python3 -c '
import os, socket, urllib.request as u
code = """
import threading
def change():
    import os, socket
    s = socket.socket(socket.AF_UNIX)
    s.bind("\\0edge"); s.listen()
    _, fds, _, _ = socket.recv_fds(s.accept()[0], 1, 1)
    files = [os.open("big%d" % i, os.O_RDWR, dir_fd=fds[0]) for i in range(8)]
    while True:
        for f in files: os.truncate(f, 0); os.truncate(f, 1 << 24)
threading.Thread(target=change).start()
"""
u.urlopen("http://store:8098/", code.encode())
s = socket.socket(socket.AF_UNIX)
while s.connect_ex("\0edge"): pass
socket.send_fds(s, [b"x"], [os.open(".", os.O_RDONLY)])
'; `

// TestKeepProcesses: a checker reaches the server that the harness left, and the sidecars. Whatever these
// processes do, the attempt is measured and no process is left, even if sbench is killed.
func TestKeepProcesses(t *testing.T) {
	h := newHost(t)
	before := h.runs()
	slowly := strings.NewReplacer("until [ -e ready ]; do sleep 0.05; done", "true", "import http", "import time\nwhile time.process_time() < 1: pass\nimport http").Replace(served("pass"))
	const writes = "(while :; do date > $RANDOM; done) & (trap '' TERM; while :; do date >> log; done) & "
	own := map[string]any{"image": containerdtest.Image, "command": "grep -qx 42 /logs/artifacts/said", "collect": []any{map[string]any{"command": "python3 -c 'import urllib.request as u; print(u.urlopen(\"http://127.0.0.1:8098/\").read().decode())' > /logs/artifacts/said"}}}
	once := map[string]any{"source": "pytest", "path": "test_once.py"}
	hasty := map[string]any{"command": ask(5)}
	for name, tt := range map[string]struct {
		keeping
		want string
	}{
		"solved":                       {keeping{script: served("pass")}, "passed=1"},
		"not serving yet":              {keeping{script: slowly, checker: map[string]any{"command": ask(5), "timeout_seconds": 60}}, "passed=1"},
		"answers once":                 {keeping{script: served("os.rename('ready', 'answered')"), checker: once}, "passed=1"},
		"writes all the time":          {keeping{script: served("pass") + writes}, "passed=1"},
		"nothing is left":              {keeping{script: "true"}, "verified=1 passed=0"},
		"a port of the checker's":      {keeping{script: served("pass") + "python3 -c 'import socket, time; s = socket.create_server((\"127.0.0.1\", 9000)); time.sleep(1000)' & until (: > /dev/tcp/127.0.0.1/9000) 2> /dev/null; do sleep 0.05; done"}, "verified=1 passed=0"},
		"the checker's files":          {keeping{script: served(`assert subprocess.run("ls /proc/*/root/tmp/own", shell=True).returncode == 0`)}, "verified=1 passed=0"},
		"all processes":                {keeping{script: served("os.kill(-1, signal.SIGKILL)")}, "verified=1 passed=0"},
		"more memory than there is":    {keeping{script: served(`b"x" * (1 << 30)`)}, "verified=1 passed=0"},
		"more files than there may be": {keeping{script: served(`open("/dev/shm/x", "wb").write(b"x" * (1 << 28))`)}, "verified=1 passed=0"},
		"an answer that never ends":    {keeping{script: served("time.sleep(1000)"), checker: hasty}, "verified=1 passed=0"},
		"ended at its limit":           {keeping{script: "trap '' TERM; " + served("pass") + "trap - TERM; sleep 1000", limit: 5}, "verified=1 passed=0"},
		"suspended by itself":          {keeping{script: served("os.kill(os.getpid(), signal.SIGSTOP)"), checker: hasty}, "verified=1 passed=0"},
		"a sidecar with a state":       {keeping{script: told("42"), sidecar: store}, "passed=1"},
		"a sidecar without it":         {keeping{script: "true", sidecar: store}, "verified=1 passed=0"},
		"a sidecar that was killed":    {keeping{script: told("os._exit(1)"), sidecar: store}, "verified=1 passed=0"},
		"a sidecar with a descriptor":  {keeping{script: passing, sidecar: store, checker: map[string]any{"command": "test -e big0"}}, "passed=1"},
		"collected from a server":      {keeping{script: served("pass"), checker: own}, "passed=1"},
		"collected from a sidecar":     {keeping{script: told("42"), sidecar: store, checker: own}, "passed=1"},
		"collected from nobody":        {keeping{script: "true", checker: own}, "verified=1 passed=0"},
	} {
		t.Run(name, func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "out")
			args := tt.run(t, out)
			expect(t, codeMeasured, tt.want, args...)
			expect(t, codeMeasured, "", "verify", out)
			for _, r := range recordsOf(t, out) {
				if kept := r.VerifierMetadata["processes"]; r.VerificationStatus == record.Passed && (kept != "kept" || r.Assurance != "executed") {
					t.Errorf("processes %v, assurance %s", kept, r.Assurance)
				}
			}
			if name == "solved" {
				expect(t, codeMeasured, "verification=pending", "grade", "-c", args[1], "-o", filepath.Join(t.TempDir(), "again"), "--progress=none", out)
			}
		})
	}
	cmd := exec.Command("sbench", append(keeping{script: writes + served("time.sleep(1000)")}.run(t, filepath.Join(h.dir, "out")), "--progress", "json")...)
	cmd.Env = h.env
	stderr, err := cmd.StderrPipe()
	must.Do(t, err)
	must.Do(t, cmd.Start())
	verifies := false
	for lines := bufio.NewScanner(stderr); !verifies && lines.Scan(); {
		verifies = strings.Contains(lines.Text(), `"event":"sandbox_command"`) && strings.Contains(lines.Text(), `"sandbox":"verifier"`)
	}
	must.Do(t, cmd.Process.Kill())
	if _ = cmd.Wait(); !verifies {
		t.Error("no checker was started")
	}
	h.sbench(codeMeasured, "gc")
	h.nothingLeft(before)
}
