package main

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/candidate/layer"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/runtime/host"
)

const (
	machineToml = "version = \"1.0\"\n\n[environment]\nworkdir = \"/app\"\n"
	machineTest = `#!/bin/bash
mkdir -p /logs/verifier
python3 -m pytest -q /tests/test_outputs.py
if [ $? -eq 0 ]; then echo 1 > /logs/verifier/reward.txt; else echo 0 > /logs/verifier/reward.txt; fi
`
)

// machineTasks writes the tasks of testdata/machine in Harbor's form, every twentieth unless SBENCH_SOAK is
// set. cheats are shell scripts that manipulate the check instead of solving the task.
func machineTasks(t *testing.T, c *host.Host) (dir string, cheats map[string][]string) {
	t.Helper()
	dir, cheats = t.TempDir(), map[string][]string{}
	files := must.Glob(t, "testdata/machine/*.txtar")
	absent := lacks(t, c, map[string]string{"gcc": "usr/lib/gcc/*/*/cc1", "git": "usr/bin/git"})
	for i, file := range files {
		text := must.Read(t, file)
		// The emulated machines' image has no compiler.
		if i%20 != 0 && os.Getenv("SBENCH_SOAK") == "" || slices.ContainsFunc(absent, func(program string) bool { return strings.Contains(string(text), program+" ") }) {
			continue
		}
		archive := txtar.Parse(text)
		id := strings.TrimSuffix(filepath.Base(file), ".txtar")
		content := map[string]string{"task.toml": machineToml, "tests/test.sh": machineTest}
		for _, f := range archive.Files {
			if strings.HasPrefix(f.Name, "cheat") {
				cheats[id] = append(cheats[id], string(f.Data))
			} else {
				content[f.Name] = string(f.Data)
			}
		}
		if _, own := content["environment/Dockerfile"]; !own {
			content["environment/Dockerfile"] = "FROM " + containerdtest.Image + "\nWORKDIR /app\n"
		}
		filetest.Write(t, filepath.Join(dir, id), content)
	}
	return dir, cheats
}

// lacks returns the programs that the base image lacks. patterns has the globs of each program's files.
func lacks(t *testing.T, c *host.Host, programs map[string]string) (absent []string) {
	t.Helper()
	engine, img := containerdtest.NewRun(t, c)
	view, err := engine.View(t.Context(), img)
	must.Do(t, err)
	for p, file := range programs {
		if found, err := fs.Glob(view.Root().FS(), file); err != nil || len(found) == 0 {
			absent = append(absent, p)
		}
	}
	must.Do(t, view.Close())
	return absent
}

// TestMachineTasks: in tasks with the whole machine as candidate, the solution passes, and an empty candidate
// fails. So does a cheat, which manipulates the check instead of solving the task.
func TestMachineTasks(t *testing.T) {
	c := containerdtest.Open(t)
	forgetBuilt(t, c)
	source, cheats := machineTasks(t, c)
	pack := filepath.Join(t.TempDir(), "pack")
	count := fmt.Sprint(len(cheats))
	expect(t, codeMeasured, "imported "+count+" task(s)", "pack", "import", "--out", pack, "harbor", source)
	expect(t, codeMeasured, "sbench.local/harbor-", "image", "build", "--pack", pack)
	tester := filepath.Join(pack, "tester-command.yaml")
	out := filepath.Join(t.TempDir(), "check")
	t.Cleanup(func() {
		if t.Failed() {
			dir := filepath.Join(out, "reference")
			for _, r := range recordsOf(t, dir) {
				if r.VerificationStatus != record.Passed {
					t.Logf("%s: %s: %s\n%s%s\n%+v", r.TaskID, r.FailureReason, r.FailureMessage, r.ProducerStdout, r.ProducerStderr, privateOf(t, dir, r))
				}
			}
		}
	})
	expect(t, codeMeasured, "checked "+count+" task(s): reference passed "+count+", empty passed 0",
		"pack", "check", "-c", tester, "-o", out, "--progress", "plain", pack)
	t.Run("grade", func(t *testing.T) {
		expect(t, codeMeasured, "", "verify", filepath.Join(out, "reference"))
		again := filepath.Join(t.TempDir(), "again")
		expect(t, codeMeasured, "passed="+count, "grade", "-c", tester, "-o", again, "--progress=none", filepath.Join(out, "reference"))
	})
	for n := range 2 {
		t.Run(fmt.Sprint("cheat ", n+1), func(t *testing.T) {
			script := "case $(python3 -c 'import json, os; print(json.load(open(os.environ[\"SBENCH_TASK_FILE\"]))[\"id\"])') in\n"
			for id, all := range cheats {
				script += id + ")\n" + all[n] + "\n;;\n"
			}
			command := must.JSON(t, []string{"bash", "-c", script + "*) exit 9\n;;\nesac; exit 0"})
			out := filepath.Join(t.TempDir(), "out")
			expect(t, codeMeasured, "verified="+count+" passed=0", "run", tester, "-o", out, "--progress=none", "--set", "harness.config.command="+string(command))
			for _, r := range recordsOf(t, out) {
				if !r.VerificationStatus.Scored() || r.FailurePhase != "verifier" || r.ProducerFailure != nil {
					t.Errorf("%s: %s, %s in %s: %s", r.TaskID, r.VerificationStatus, r.FailureReason, r.FailurePhase, r.FailureMessage)
				}
				t.Logf("%s: %s, restored %v", r.TaskID, r.FailureReason, r.VerifierMetadata["restored"])
			}
		})
	}
}

// forgetBuilt removes the images that sbench builds in the test.
func forgetBuilt(t *testing.T, c *host.Host) {
	t.Helper()
	t.Cleanup(func() {
		list, err := c.Images.List(context.Background())
		must.Do(t, err)
		for _, i := range list {
			if strings.HasPrefix(i.Ref, "sbench.local/build-step:") || strings.HasPrefix(i.Ref, "sbench.local/harbor-") {
				must.Do(t, c.Images.Remove(context.Background(), i.Ref))
			}
		}
	})
}

// setupPack writes a pack of one task with set-up commands, and returns the path of its tester file.
func setupPack(t *testing.T, commands ...string) string {
	environment := must.JSON(t, map[string]any{"candidate": "machine", "setup": commands})
	row := taskRow("machine/setup", "test \"$(cat /etc/answer)\" = go && id -u tool && grep -q one /etc/setup", `, "environment": `+string(environment))
	return writePack(t, t.TempDir(), row, commandHarness("cat /etc/setup && echo go > /etc/answer && echo two >> /etc/setup")+"runtime: {allow_capabilities: true}\n")
}

// TestSetup: set-up commands change the image of the harness and of the verifier, once. What the harness changes in its
// image, show lists.
func TestSetup(t *testing.T) {
	c := containerdtest.Open(t)
	forgetBuilt(t, c)
	stamp := fmt.Sprintf("test ! -e /etc/setup; echo one %s > /etc/setup", t.TempDir())
	tester := setupPack(t, "useradd -m tool", stamp)
	for range 2 {
		out := filepath.Join(t.TempDir(), "out")
		expect(t, codeMeasured, "passed=1", "run", tester, "-o", out, "--progress=none")
		expect(t, codeMeasured, "", "verify", out)
		for _, changed := range []string{"/etc/setup", "/etc/answer"} {
			expect(t, codeMeasured, changed, "show", out, "machine/setup")
		}
	}
	for name, tt := range map[string][2]string{
		"fails":        {"echo broken >&2; exit 3", "$.environment.setup: \"echo broken >&2; exit 3\": preparation failed: the command exited with code 3, and had no network"},
		"reaches none": {"exec 3<>/dev/tcp/203.0.113.1/80", "$.environment.setup"},
	} {
		code, _, stderr := sbench(t, "run", setupPack(t, tt[0]), "--progress=none")
		if code != codeUsage || !strings.Contains(stderr, tt[1]) {
			t.Errorf("%s: exit code %d\n%s", name, code, stderr)
		}
	}
}

// TestMachineBroken: whatever an agent does to its machine, the attempt is measured.
func TestMachineBroken(t *testing.T) {
	forgetBuilt(t, containerdtest.Open(t))
	tester := setupPack(t, "useradd -m tool; echo one > /etc/setup")
	const solved = "echo go > /etc/answer; "
	for name, tt := range map[string]struct{ script, want string }{
		"an id that no sandbox has":    {solved + "echo 'x:x:99999:root' >> /etc/group", "passed=1"},
		"users behind a link":          {solved + "mv /etc/passwd /p; ln -s /p /etc/passwd", "passed=1"},
		"another root":                 {solved + "sed -i 's#^root:.*#root:x:1000:1000::/opt/h:/bin/sh#' /etc/passwd", "passed=1"},
		"no users":                     {solved + "rm /etc/passwd /etc/group", "verified=1"},
		"users in a directory":         {solved + "rm /etc/passwd; mkdir /etc/passwd", "passed=1"},
		"users without end":            {solved + "ln -sf /dev/zero /etc/group; ln -f /bin/bash /etc/passwd", "passed=1"},
		"an endless line":              {solved + "head -c 200000 /dev/zero | tr '\\0' x >> /etc/passwd", "passed=1"},
		"mount points of another kind": {solved + "rm -rf /tmp /run /logs; : > /tmp; : > /run; ln -s /etc /logs; mkdir -p /usr/local/bin/run-candidate", "passed=1"},
		"nothing is left":              {"rm -rf /etc /var /root /home /opt /srv 2>/dev/null; true", "passed=0"},
		"no program is left":           {"rm -rf /usr /bin /lib /sbin 2>/dev/null; true", "passed=0"},
		"closed":                       {solved + "chmod 000 /etc /usr /usr/bin /", "verified=1"},
		"deep":                         {solved + "d=/d; for i in $(seq 100); do d=$d/d; done; mkdir -p $d", "passed=1"},
		"too deep":                     {solved + "d=/d; for i in $(seq 200); do d=$d/d; done; mkdir -p $d", "passed=0"},
		"a web of hard links":          {solved + "python3 -c 'import os\nfor i in range(300000):\n  i % 50000 or open(\"/w%d\" % i, \"w\")\n  os.link(\"/w%d\" % (i // 50000 * 50000), \"/l%d\" % i)'", "passed=0"},
		"a hole larger than the bound": {solved + "truncate -s 20G /hole", "passed=0"},
	} {
		t.Run(name, func(t *testing.T) {
			command := must.JSON(t, []string{"bash", "-c", tt.script})
			out := filepath.Join(t.TempDir(), "out")
			expect(t, codeMeasured, tt.want, "run", tester, "-o", out, "--progress", "plain", "--set", "harness.config.command="+string(command))
			expect(t, codeMeasured, "", "verify", out)
		})
	}
}

// bigMachine returns the arguments of a run whose only candidate changes 100 MB of its machine.
func bigMachine(t *testing.T, output string) []string {
	t.Helper()
	command := must.JSON(t, []string{"bash", "-c", "echo go > /etc/answer; head -c 100000000 /dev/urandom > /var/big"})
	return []string{
		"run", setupPack(t, "useradd -m tool; echo one > /etc/setup"), "--output-dir", output, "--progress=none",
		"--set", "harness.config.command=" + string(command),
	}
}

// TestCaptureKilled: after kill -9 while a machine is stored, a resumed run or gc removes all remains.
func TestCaptureKilled(t *testing.T) {
	h := newHost(t)
	forgetBuilt(t, containerdtest.Open(t))
	before := h.runs()
	var args, half []string
	output, size := "", int64(100_000_000)
	for n := 0; size >= 100_000_000 && n < 20; n++ { // until sbench is killed before it has written the whole layer
		output = filepath.Join(h.dir, fmt.Sprint("out-", n))
		args = bigMachine(t, output)
		cmd := exec.Command("sbench", args...)
		cmd.Env = h.env
		must.Do(t, cmd.Start())
		must.Await(t, "the layer", func() bool {
			half, _ = filepath.Glob(filepath.Join(output, "unjudged", "*"+layer.Suffix)) // the pattern is sound
			records, err := os.Stat(filepath.Join(output, record.RecordsFile))
			return len(half) == 1 || err == nil && records.Size() > 0
		})
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()
		if info, err := os.Stat(strings.Join(half, "")); err == nil {
			size = info.Size()
		}
	}
	if size >= 100_000_000 {
		t.Fatal("no layer was half written")
	}
	h.sbench(codeMeasured, append(args, "--resume")...)
	h.sbench(codeMeasured, "verify", output)
	must.Equal(t, "passed", statuses(t, output))
	if dir := filepath.Dir(half[0]); exists(dir) {
		t.Errorf("%s is still there", dir)
	}
	h.sbench(codeMeasured, "gc")
	h.nothingLeft(before)
}

// TestCaptureFullDisk: an attempt with a machine that does not fit on the disk is not measured. With room on the
// disk, it is.
func TestCaptureFullDisk(t *testing.T) {
	h := newHost(t)
	forgetBuilt(t, containerdtest.Open(t))
	before, disk := h.runs(), filepath.Join(h.dir, "disk")
	must.Do(t, os.Mkdir(disk, 0o755))
	must.Do(t, syscall.Mount("none", disk, "tmpfs", 0, "size=20m"))
	t.Cleanup(func() { must.Do(t, syscall.Unmount(disk, 0)) })
	output := filepath.Join(disk, "out")
	args := bigMachine(t, output)
	h.sbench(codeInfrastructure, args...)
	for _, r := range recordsOf(t, output) {
		if r.VerificationStatus != record.Error || !strings.Contains(r.FailureMessage, "no space left on device") {
			t.Errorf("%s: %s", r.VerificationStatus, r.FailureMessage)
		}
	}
	must.Do(t, syscall.Mount("none", disk, "tmpfs", syscall.MS_REMOUNT, "size=300m"))
	h.sbench(codeMeasured, append(args, "--resume")...)
	h.sbench(codeMeasured, "verify", output)
	if got := statuses(t, output); !strings.HasSuffix(got, "passed") {
		t.Errorf("recorded %q", got)
	}
	h.sbench(codeMeasured, "gc")
	h.nothingLeft(before)
}
