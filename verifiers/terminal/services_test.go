package terminal_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/filetest"
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
	const slow = "python3 -c 'while __import__(\"time\").process_time() < 1: pass'; "
	service := func(command string, seconds float64) map[string]any {
		return map[string]any{"command": command, "ready": ready, "timeout_seconds": seconds}
	}
	checker := map[string]any{"command": ask}
	tests := []struct {
		name, script, reason string
		eval                 map[string]any
	}{
		{"answers", start + solve, "", map[string]any{"checker": checker, "services": []any{service(serve, 60)}}},
		{"wrong answer", start + "echo 43 > answer.txt", "checker_failed", map[string]any{"checker": checker, "services": []any{service(serve, 60)}}},
		{"never ready", solve, "checker_failed", map[string]any{"checker": checker, "services": []any{service(serve, 1)}}},
		{"in order", start + solve, "", map[string]any{"checker": checker, "services": []any{map[string]any{"command": []string{"touch", "first"}, "ready": "test -e first"}, service("test -e first && "+serve, 20)}}},
		{"what the agent left running is dead", start + solve + "; (" + serve + ") >/dev/null 2>&1 &", "checker_failed", map[string]any{"checker": checker}},
		{"as soon as it has settled", start + solve, "", map[string]any{"checker": checker, "services": []any{map[string]any{"command": slow + serve}}}},
		{"as many as wanted", start + solve, "", map[string]any{"checker": map[string]any{"command": "sleep 0.2; " + ask}, "services": []any{map[string]any{"command": "sleep 1000"}, service(serve, 60)}}},
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

// TestRewards: the number that a checker leaves decides, whatever its exit status and its leftovers.
func TestRewards(t *testing.T) {
	w := newTerminalWorld(t)
	const txt, js = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"
	tests := []struct {
		name, script string
		score        float64
		reason       string // "" for a pass
		said         string // part of the message
	}{
		{"one", "echo 1 > " + txt, 1, "", ""},
		{"another status", "echo 1.0 > " + txt + "; exit 3", 1, "", ""},
		{"more than one", "echo 2 > " + txt, 1, "", ""},
		{"partial", "echo 0.5 > " + txt, 0.5, "checker_failed", "the reward is 0.5"},
		{"many digits", "echo 0.123456789 > " + txt, 0.123456789, "checker_failed", "the reward is 0.1235"},
		{"negative", "echo -1 > " + txt, 0, "checker_failed", "the reward is -1"},
		{"several numbers", `echo '{"reward": 1, "failed": 0, "time": 7.5}' > ` + js, 1, "", ""},
		{"one number", `echo '{"score": 1}' > ` + js, 1, "", ""},
		{"JSON before text", `echo '{"reward": 0.25, "x": 1}' > ` + js + "; echo 1 > " + txt, 0.25, "checker_failed", ""},
		{"none called reward", `echo '{"a": 1, "b": 1, "c": 1}' > ` + js, 1, "", ""},
		{"none called reward, one partial", `echo '{"a": 1, "b": 0.5}' > ` + js, 0.75, "checker_failed", ""},
		{"true", `echo '{"reward": true, "quoted": "0.5"}' > ` + js, 1, "", ""},
		{"null", `echo '{"reward": null}' > ` + js, 0, "no_reward", "no object of numbers"},
		{"no object", "echo 1 > " + js, 0, "no_reward", "no object of numbers"},
		{"empty", ": > " + txt, 0, "no_reward", "no number"},
		{"two numbers", "echo 1 1 > " + txt, 0, "no_reward", "no number"},
		{"not finite", "echo inf > " + txt, 0, "no_reward", "no finite number"},
		{"none", "exit 1", 0, "no_reward", "neither reward.json nor reward.txt, and exited with code 1"},
		{"a link", "echo 1 > /tmp/x; ln -s /tmp/x " + txt, 0, "no_reward", "no file"},
		{"a linked directory", "cd /logs && rmdir verifier && echo 1 > canary/reward.txt && ln -s canary verifier", 0, "no_reward", "left no directory"},
		{"a directory", "mkdir " + txt, 0, "no_reward", "no file"},
		{"replaced", "echo 0 > " + txt + "; echo 1 > /tmp/x; mv /tmp/x " + txt, 1, "", ""},
		{"leftovers", "sleep 1000 & echo 1 > " + txt, 1, "", ""},
		{"beside the tests", "cd /tests; echo 1 > score; cp score " + txt, 1, "", ""},
		{"not the tests", "echo 1 > /tests/check.sh; echo 1 > " + txt, 1, "", ""},
		{"too late", "echo 1 > " + txt + "; sleep 100", 0, "verifier_timeout", ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			filetest.Write(t, w.dir, map[string]string{"hidden/p/check.sh": "#!/bin/bash\n" + tt.script + "\n"})
			seconds := 60
			if tt.name == "too late" {
				seconds = 2
			}
			_, v := w.attempt(t, solve, map[string]any{"checker": map[string]any{"source": "script", "path": "p/check.sh", "reward": true, "timeout_seconds": seconds}}, verifiers.Permissions{})
			if v.Score != tt.score || v.Reason != tt.reason || !strings.Contains(v.Message, tt.said) {
				t.Errorf("score %v, %q: %s\n%s%s", v.Score, v.Reason, v.Message, v.Stdout, v.Stderr)
			}
		})
	}
}

// TestCheckerLogs: what a checker leaves beside its reward is kept for people.
func TestCheckerLogs(t *testing.T) {
	w := newTerminalWorld(t)
	filetest.Write(t, w.dir, map[string]string{"hidden/p/check.sh": "#!/bin/bash\ncd /logs/verifier\necho '{}' > ctrf.json; mkdir more; ln -s ctrf.json link; mkfifo pipe; echo x > ' odd'; echo 1 > reward.txt\n"})
	_, v := w.attempt(t, solve, map[string]any{"checker": map[string]any{"source": "script", "path": "p/check.sh", "reward": true}}, verifiers.Permissions{})
	if want := []verifiers.Log{{Name: "ctrf.json", Text: "{}\n"}, {Name: "reward.txt", Text: "1\n"}}; !slices.Equal(v.Logs, want) {
		t.Errorf("%s %s: logs %v", v.Status, v.Message, v.Logs)
	}
}
