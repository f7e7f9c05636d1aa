package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run"
)

// TestStrangers runs a directory of tasks in Harbor's form as people write them: each reference passes, each empty
// candidate fails, and the run names the tasks that cannot be prepared.
func TestStrangers(t *testing.T) {
	forgetBuilt(t, containerdtest.Open(t))
	archive, err := txtar.ParseFile("testdata/strangers/tasks.txtar")
	must.Do(t, err)
	source := t.TempDir()
	write := func(name, text string) {
		name = filepath.Join(source, name)
		must.Do(t, os.MkdirAll(filepath.Dir(name), 0o755))
		must.Do(t, os.WriteFile(name, []byte(strings.ReplaceAll(text, "@BASE@", containerdtest.Image)), 0o644))
	}
	for _, f := range archive.Files {
		task, _, _ := strings.Cut(f.Name, "/")
		if _, err := os.Lstat(filepath.Join(source, task, "instruction.md")); err != nil && !strings.Contains(f.Name, "/steps/") {
			write(task+"/instruction.md", "Do it.\n")
		}
		if _, err := os.Lstat(filepath.Join(source, task, "task.toml")); err != nil {
			write(task+"/task.toml", "version = \"1.0\"\n")
		}
		write(f.Name, string(f.Data))
	}
	must.Do(t, os.Symlink("keep.log", filepath.Join(source, "clean/environment/link")))
	out := t.TempDir()
	for standIn, passed := range map[string]int{"reference": 21, "empty": 0} {
		code, stdout, stderr := sbench(t, "run", source, "--harness", standIn, "--exclude", "excluded*", "-o", filepath.Join(out, standIn), "--progress", "plain", "--json")
		var summary run.Summary
		if err := json.Unmarshal([]byte(stdout), &summary); err != nil || code != codeInfrastructure || summary.Verified() != 21 || summary.Passed != passed || strings.Contains(stderr, "\x1b") || !strings.Contains(stderr, "3 tasks could not be prepared: gpus, broken, absent\n") {
			t.Errorf("%s: exit code %d, %v\n%s%s", standIn, code, err, stdout, stderr)
		}
		for i, want := range []run.LeftOut{{Task: "gpus", Reason: "task.toml: environment: GPUs and TPUs are not supported (write gpus = 0"}, {Task: "broken", Reason: "exited with code 1, and had no network: --allow"}, {Task: "absent", Reason: "image sbench.local/absent:1"}} {
			if i >= len(summary.LeftOut) || summary.LeftOut[i].Task != want.Task || !strings.Contains(summary.LeftOut[i].Reason, want.Reason) {
				t.Errorf("left out %+v, want %+v", summary.LeftOut, want)
			}
		}
	}
	kept := false
	for _, r := range recordsOf(t, filepath.Join(out, "reference")) {
		for _, l := range privateOf(t, filepath.Join(out, "reference"), r).Logs {
			kept = kept || l.Name == "reward.json"
		}
	}
	if !kept {
		t.Error("the checker's files were not kept")
	}
}

// TestFetches: a checker that fetches its tools reaches the domains that the tester file lists, through the
// proxy, and nothing else. Only this test's sbench has a route to the server.
func TestFetches(t *testing.T) {
	h := newHost(t).private() // a daemon in another mount namespace could not be used
	// the image has no curl
	const fetch = "curl() { python3 -c 'import sys, urllib.request as u; print(u.urlopen(sys.argv[1]).read().decode())' \"$2\"; }\n" +
		"curl -LsSf http://tools.example/checktool > /tmp/checktool\n"
	filetest.Write(t, h.dir, map[string]string{
		"tasks/t/instruction.md":    "Write 42 to answer.txt.\n",
		"tasks/t/task.toml":         "[environment]\ndocker_image = \"" + containerdtest.Image + "\"\nworkdir = \"/srv/app\"\n",
		"tasks/t/tests/test.sh":     fetch + "if [ -s /tmp/checktool ] && sh /tmp/checktool; then echo 1; else echo 0; fi > /logs/verifier/reward.txt\n",
		"tasks/t/solution/solve.sh": "echo 42 > answer.txt\n",
		"www/checktool":             "#!/bin/sh\ngrep -qx 42 answer.txt\n",
		// the solution leaves a server, and the checker asks it
		"tasks/s/instruction.md":    "Serve answer.txt with 42 at port 8098.\n",
		"tasks/s/task.toml":         "[environment]\ndocker_image = \"" + containerdtest.Image + "\"\nworkdir = \"/srv/app\"\n",
		"tasks/s/tests/test.sh":     fetch + "[ -s /tmp/checktool ] && curl -s http://localhost:8098/answer.txt > answer.txt && sh /tmp/checktool && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
		"tasks/s/solution/solve.sh": "mkdir /srv/www; cd /srv/www; echo 42 > answer.txt\npython3 -m http.server 8098 >/dev/null 2>&1 &\nuntil (: >/dev/tcp/127.0.0.1/8098) 2>/dev/null; do sleep 0.1; done\n",
		"hosts":                     "11.0.0.1 tools.example\n",
	})
	server := exec.Command("python3", "-m", "http.server", "80")
	server.Dir, server.SysProcAttr = filepath.Join(h.dir, "www"), &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	must.Do(t, server.Start())
	defer func() { _ = server.Process.Kill(); _ = server.Wait() }()
	for name, tt := range map[string]struct{ domains, harness, want string }{
		"reference":         {`["tools.example"]`, "reference", "verified=2 passed=2"},
		"empty":             {`["tools.example"]`, "empty", "verified=2 passed=0"},
		"other domains":     {`["other.example"]`, "reference", "verified=0 passed=0"},
		"no domains":        {`[]`, "reference", "the reward is 0; the checker fetches what it needs, and verification.allowed_domains is empty"},
		"empty and refused": {`["other.example"]`, "empty", "verified=2 passed=0"},
	} {
		t.Run(name, func(t *testing.T) {
			const script = `ip link set lo up; ip link add v0 type veth peer name "v$$" netns "$1"; ip addr add 11.0.0.2/24 dev v0; ip link set v0 up
nsenter -t "$1" -n sh -c 'ip addr flush scope global; ip addr add 11.0.0.1/24 dev "$0"; ip link set "$0" up' "v$$"; mount --bind "$2" /etc/hosts; shift 2
for i in $(seq 100); do curl -sf -m 1 http://tools.example/checktool >/dev/null && break; sleep 0.1; done
exec "$@"`
			out := filepath.Join(h.dir, strings.ReplaceAll(name, " ", "-"))
			cmd := exec.Command("unshare", "--net", "--mount", "sh", "-c", script, "sh", strconv.Itoa(server.Process.Pid), filepath.Join(h.dir, "hosts"),
				"sbench", "run", filepath.Join(h.dir, "tasks"), "--harness", tt.harness, "-o", out, "--progress", "plain", "--set", "verification.allowed_domains="+tt.domains)
			cmd.Env = h.env
			text, _ := cmd.CombinedOutput()
			must.Contains(t, string(text), tt.want)
		})
	}
}

// TestSeparateBroken: a verifier with an environment of its own gets an artifact of the agent's machine. The
// attempt is measured, whatever the agent does to that machine.
func TestSeparateBroken(t *testing.T) {
	forgetBuilt(t, containerdtest.Open(t))
	source := filepath.Join(t.TempDir(), "one")
	filetest.Write(t, source, map[string]string{
		"instruction.md":         "Do it.\n",
		"task.toml":              "artifacts = [\"/app/answer\", \"/app/more\"]\n[verifier.environment]\ndocker_image = \"" + containerdtest.Image + "\"\n",
		"environment/Dockerfile": "FROM " + containerdtest.Image + "\nWORKDIR /app\n",
		"tests/test.sh":          "[ \"$(cat /app/answer)\" = 42 ] && echo 1 > /logs/verifier/reward.txt || echo 0 > /logs/verifier/reward.txt\n",
	})
	pack := filepath.Join(t.TempDir(), "pack")
	expect(t, codeMeasured, "imported 1 task(s)", "pack", "import", "--out", pack, "harbor", source)
	expect(t, codeMeasured, "sbench.local/", "image", "build", "--pack", pack)
	const solved = "echo 42 > answer; "
	instead := func(program, script string) string { // what collects runs this
		return solved + "rm -f /usr/bin/" + program + "; printf '#!/bin/bash\\n" + script + "\\n' > /usr/bin/" + program + "; chmod +x /usr/bin/" + program
	}
	for name, tt := range map[string]struct{ script, want string }{
		"solved":                    {solved, "passed=1"},
		"no program is left":        {solved + "rm -rf /usr /bin /lib /sbin 2>/dev/null; true", "verified=1 passed=0"},
		"no users":                  {solved + "rm /etc/passwd /etc/group", "verified=1 passed=1"},
		"a hole for an answer":      {instead("cp", "truncate -s 3000G /opt/sbench/artifacts/app/answer"), "verified=1 passed=0"},
		"a pipe for an answer":      {instead("cp", "mkfifo /opt/sbench/artifacts/app/answer"), "verified=1 passed=0"},
		"links for directories":     {instead("mkdir", "ln -s /etc /opt/sbench/artifacts/app"), "verified=1 passed=0"},
		"more than there is room":   {instead("cp", "head -c 4G /dev/zero > /opt/sbench/artifacts/app/answer"), "verified=1 passed=0"},
		"a directory for an answer": {"mkdir answer", "verified=1 passed=0"},
		"links in a directory":      {solved + "mkdir more; ln -s /etc/shadow more/a; ln -s ../answer more/b; ln -s c more/c", "passed=1"},
	} {
		t.Run(name, func(t *testing.T) {
			command := must.JSON(t, []string{"bash", "-c", tt.script})
			out := filepath.Join(t.TempDir(), "out")
			expect(t, codeMeasured, tt.want, "run", filepath.Join(pack, "tester-command.yaml"), "-o", out, "--progress", "plain", "--set", "harness.config.command="+string(command))
			expect(t, codeMeasured, "", "verify", out)
		})
	}
}
