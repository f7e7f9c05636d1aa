package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/cmd/sbench/interrupt"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/runtime"
	"github.com/securebench/sbench/runtime/host"
	"github.com/securebench/sbench/runtime/images"
)

// The images of the imported packs.
const (
	appImage   = "sbench.local/pack-app:fixture"
	repoImages = "sbench.local/pack-{repo}:fixture"
)

// sbench runs a command line with the tests' daemon.
func sbench(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, e := range containerdtest.Environment() {
		name, value, _ := strings.Cut(e, "=")
		t.Setenv(name, value)
	}
	var out, errOut bytes.Buffer
	interrupts := interrupt.Watch(codeInterrupted)
	defer interrupts.Close()
	code = execute(interrupts, args, &out, &errOut)
	return code, out.String(), errOut.String()
}

func expect(t *testing.T, code int, text string, args ...string) {
	t.Helper()
	got, stdout, stderr := sbench(t, args...)
	if got != code || !strings.Contains(stdout, text) {
		t.Fatalf("sbench %s: exit code %d, want %d and %q\n%s%s", strings.Join(args, " "), got, code, text, stdout, stderr)
	}
}

// checked imports and validates a pack, and checks that the reference solutions pass and nothing else does.
func checked(t *testing.T, tasks string, args ...string) (out string) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "pack")
	expect(t, codeMeasured, "imported "+tasks+" task(s)", append([]string{"pack", "import", "--out", out}, args...)...)
	warnings := "0"
	if strings.Join(args[:1], "") == "terminal-bench" {
		warnings = "1" // of a script that is the whole test, which no verifier can break
	}
	expect(t, codeMeasured, " 0 error(s), "+warnings+" warning(s)", "validate", out)
	begun := time.Now()
	expect(t, codeMeasured, "checked "+tasks+" task(s): reference passed "+tasks+", empty passed 0", "pack", "check", "--set", "verification.allowed_domains=[]", "--progress", "plain", out)
	t.Logf("checked %s tasks twice in %s", tasks, time.Since(begun).Round(time.Millisecond))
	return out
}

// fixture writes the source in one of the pack package's golden files and returns its
// path.
func fixture(t *testing.T, name string) string {
	t.Helper()
	archive, err := txtar.ParseFile(filepath.Join("../../pack/testdata", name+".txtar"))
	must.Do(t, err)
	dir := t.TempDir()
	for _, f := range archive.Files {
		if strings.HasPrefix(f.Name, "src/") {
			file := filepath.Join(dir, f.Name)
			must.Do(t, os.MkdirAll(filepath.Dir(file), 0o755))
			must.Do(t, os.WriteFile(file, f.Data, 0o644))
		}
	}
	for line := range strings.Lines(string(archive.Comment)) {
		if source, ok := strings.CutPrefix(strings.TrimSpace(line), "source: "); ok {
			return filepath.Join(dir, source)
		}
	}
	t.Fatalf("%s names no source", name)
	return ""
}

// TestPackText imports formats with text or code as candidates.
func TestPackText(t *testing.T) {
	containerdtest.Open(t)
	tests := []struct{ format, fixture, tasks string }{
		{"humaneval", "humaneval", "3"}, {"mmlu", "mmlu", "5"}, {"squad", "squad", "4"}, {"truthfulqa", "truthfulqa", "3"},
	}
	for _, tt := range tests {
		t.Run(tt.format, func(t *testing.T) { checked(t, tt.tasks, tt.format, fixture(t, tt.fixture)) })
	}
}

// TestPackTasks imports formats of task directories. Their solutions run in a sandbox.
func TestPackTasks(t *testing.T) {
	c := containerdtest.Open(t)
	app := t.TempDir()
	must.Do(t, os.MkdirAll(filepath.Join(app, "work"), 0o755))
	must.Do(t, os.WriteFile(filepath.Join(app, "notes.txt"), []byte("one\ntwo\n"), 0o644))
	withImage(t, c, appImage, app, "/app")
	for _, tt := range []struct {
		name, tasks string
		args        []string
	}{
		{"terminal-bench", "2", []string{"terminal-bench", "--task", "count-*", "--task", "script-*"}}, // the other works elsewhere in its own image
		{"harbor", "3", []string{"harbor", "--task", "json-*", "--task", "sums", "--task", "unicode-*"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checked(t, tt.tasks, append(tt.args, fixture(t, tt.args[0]), "--image", appImage)...)
		})
	}
	t.Run("a pack that does not measure", func(t *testing.T) {
		out := filepath.Join(t.TempDir(), "pack")
		expect(t, codeMeasured, "imported 3", "pack", "import", "--out", out, "--image", appImage, "terminal-bench", fixture(t, "terminal-bench"))
		must.Do(t, os.WriteFile(filepath.Join(out, "hidden/old-form/tests/run-tests.sh"), []byte("#!/bin/sh\necho 1 passed in 0.01s\n"), 0o755))
		must.Do(t, os.WriteFile(filepath.Join(out, "hidden/count-lines/solution/solve.sh"), []byte("echo 3 > count.txt\n"), 0o755))
		must.Do(t, os.Rename(filepath.Join(out, "hidden/script-only/solution/solve.sh"), filepath.Join(out, "hidden/script-only/solution/other.sh")))
		code, stdout, stderr := sbench(t, "pack", "check", "--set", "verification.allowed_domains=[]", "--progress=none", out)
		want := `"count-lines": reference failed checker_failed
"script-only": reference failed reference_missing
"old-form": empty passed although it solves nothing
checked 3 task(s): reference passed 1, empty passed 1
`
		if code != codeUsage || stdout != want || !strings.Contains(stderr, "the pack does not measure what it should: 3 result(s)") {
			t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
		}
	})
}

// splitPack is a pack of two split tasks. One driver, hidden/good, is missing. The other lets the candidate write its output.
const splitPack = `-- manifest.yaml --
{id: split, version: 1, defaults: {family: terminal_task, environment: {workdir: /work}}}
-- tasks.jsonl --
{"id": "good", "input": {"instructions": "i"}, "eval": {"split": {"questions": 1, "driver": {"path": "good", "command": "sh /tests/good"}, "oracle": {"path": "oracle", "command": "sh /tests/oracle"}}, "expected_state": {"path": "solution"}}}
{"id": "bad", "input": {"instructions": "i"}, "eval": {"split": {"questions": 1, "driver": {"path": "bad", "command": "sh /tests/bad"}, "oracle": {"path": "oracle", "command": "sh /tests/oracle"}}, "expected_state": {"path": "solution"}}}
-- hidden/bad --
read -r question
test -e prog.sh || { echo 0; exit; }
sh prog.sh
-- hidden/oracle --
read -r start
echo 1
read -r evidence
case $evidence in *'"answer":"3"}'|*'"answer":3}') echo '{"passed": true}';; *) echo '{"passed": false}';; esac
-- hidden/solution/solve.sh --
echo 'echo 3' > prog.sh
`

// carelessAdapter replaces itself with the candidate.
const carelessAdapter = `import json, os, sys
sys.stdin.readline()
if os.path.exists("add.py"):
    os.execvp("python3", ["python3", "add.py", "1", "1"])
print(json.dumps({"format": "securebench.adapter-response/v2", "status": "candidate_error", "failure": {"code": "missing", "message": "no add.py"}}))
`

// securebenchPack returns the files of a pack of SecureBench 2.0 with two tasks, one of them with a careless adapter.
func securebenchPack(t *testing.T) *txtar.Archive {
	t.Helper()
	pack, err := txtar.ParseFile("../../verifiers/split/testdata/add.txtar")
	must.Do(t, err)
	for i, f := range pack.Files {
		text := strings.NewReplacer("registry.example/py@sha256:"+strings.Repeat("1", 64), containerdtest.Image, "timeout=5", "timeout=1").Replace(string(f.Data))
		switch pack.Files[i].Data = []byte(text); f.Name {
		case "manifest.yaml":
			pack.Files[i].Name = "manifest-v2.yaml"
		case "rows.jsonl":
			pack.Files[i].Data = []byte(text + strings.NewReplacer(`"add-two"`, `"careless"`, `"adapter": {"path": "add"`, `"adapter": {"path": "careless"`).Replace(text))
		case "runtime/add/adapter.yaml":
			pack.Files = append(pack.Files, txtar.File{Name: "runtime/careless/adapter.yaml", Data: f.Data}, txtar.File{Name: "runtime/careless/adapter.py", Data: []byte(carelessAdapter)})
		}
	}
	pack.Files = append(pack.Files, txtar.File{Name: "tester.yaml", Data: []byte(
		`{schema_version: "0.2", run: {id: r, output_dir: out}, benchmark: {manifest: manifest-v2.yaml, tasks: rows.jsonl}, harness: {type: command, config: {command: "true"}}}`,
	)})
	return pack
}

// TestPackHostile: pack check finds a driver that hostile candidates break. They do not break the driver that
// init --split writes.
func TestPackHostile(t *testing.T) {
	containerdtest.Open(t)
	good := must.Read(t, "../../examples/split/hidden/double/driver.sh")
	split := txtar.Parse([]byte(strings.ReplaceAll(splitPack, "workdir: /work", "workdir: /work, image: "+containerdtest.Image)))
	split.Files = append(split.Files, txtar.File{Name: "hidden/good", Data: bytes.ReplaceAll(good, []byte("double.sh"), []byte("prog.sh"))})
	for _, test := range []struct {
		name string
		pack *txtar.Archive
		arg  string // below the directory of the pack
		want string
	}{
		{"split", split, ".", `"bad": hostile: stays failed driver_broken
"bad": hostile: kills failed driver_broken
"bad": hostile: floods failed driver_broken
"bad": hostile: exits failed driver_broken
checked 2 task(s): reference passed 2, empty passed 0, 10 hostile candidate(s) tried
`},
		{"SecureBench 2.0", securebenchPack(t), "tester.yaml", `"careless": hostile: stays failed driver_broken
"careless": hostile: prints failed driver_broken
"careless": hostile: kills failed driver_broken
"careless": hostile: floods failed driver_broken
"careless": hostile: exits failed driver_broken
checked 2 task(s): reference passed 0, empty passed 0, 10 hostile candidate(s) tried
`},
	} {
		t.Run(test.name, func(t *testing.T) {
			dir := t.TempDir()
			must.Do(t, os.MkdirAll(filepath.Join(dir, "assets"), 0o755))
			for _, f := range test.pack.Files {
				must.Do(t, os.MkdirAll(filepath.Dir(filepath.Join(dir, f.Name)), 0o755))
				must.Do(t, os.WriteFile(filepath.Join(dir, f.Name), f.Data, 0o644))
			}
			code, stdout, stderr := sbench(t, "pack", "check", "--progress=none", filepath.Join(dir, test.arg))
			if code != codeUsage || stdout != test.want {
				t.Errorf("exit code %d\n%s%s", code, stdout, stderr)
			}
		})
	}
}

// TestExamplePacks: the rows that stand in for public benchmarks' measure, on images that sbench builds.
func TestExamplePacks(t *testing.T) {
	containerdtest.Open(t)
	for _, tt := range []struct {
		name, tasks string
		images      bool
	}{
		{"humaneval-mini", "3", false},
		{"mmlu-abstract-algebra-mini", "4", false},
		{"terminal-bench-first10", "3", true},
		{"swe-bench-verified-codex-smoke", "2", true},
		{"repo-patch-smoke", "5", true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			dir := filepath.Join("../../benchmarks", tt.name)
			if tt.images {
				list, err := pack.Images(dir)
				must.Do(t, err)
				for _, image := range list {
					sbench(t, "image", "prune", "--all", image.Ref) // which another test may have built
				}
				code, _, stderr := sbench(t, "run", "-c", filepath.Join(dir, "tester-command.yaml"), "-o", filepath.Join(t.TempDir(), "out"))
				if code != codeUsage || !strings.Contains(stderr, "sbench image build --pack ") {
					t.Errorf("without its images: exit code %d\n%s", code, stderr)
				}
				expect(t, codeMeasured, "sbench.local/"+tt.name, "image", "build", "--pack", dir)
			}
			expect(t, codeMeasured, "checked "+tt.tasks+" task(s): reference passed "+tt.tasks+", empty passed 0", "pack", "check", "--progress", "plain", dir)
		})
	}
}

func withImage(t *testing.T, c *host.Host, ref, dir, dest string) {
	t.Helper()
	containerdtest.WithDirectory(t, c, ref, dir, dest)
	_, err := c.Images.Commit(t.Context(), runtime.Commit{Base: ref, As: ref, Key: "test", Change: func(config *dockerspec.DockerOCIImageConfig) { config.WorkingDir = dest }})
	must.Do(t, err)
	t.Cleanup(func() { must.Do(t, c.Images.Remove(context.Background(), ref)) })
}

func repository(t *testing.T, files map[string]string) (dir, commit string) {
	t.Helper()
	dir = t.TempDir()
	filetest.Write(t, dir, files)
	git(t, dir, "init", "-q")
	git(t, dir, "add", "--all")
	git(t, dir, "-c", "user.name=a", "-c", "user.email=a@example.org", "commit", "-qm", "base")
	return dir, strings.TrimSpace(git(t, dir, "rev-parse", "HEAD"))
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", append([]string{"-C", dir, "-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("git %v: %v", args, err)
	}
	return string(out)
}

func change(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	filetest.Write(t, dir, files)
	git(t, dir, "add", "--all")
	patch := git(t, dir, "diff", "--cached")
	git(t, dir, "reset", "-q", "--hard")
	return patch
}

// TestPackSWEBench: three rows of two repositories, one with CRLF in the patched file,
// one with a solution in a directory that policies deny.
func TestPackSWEBench(t *testing.T) {
	c := containerdtest.Open(t)
	calc, calcCommit := repository(t, map[string]string{
		"calc/core.py": "def add(a, b):\n    return a - b\n\n\ndef mul(a, b):\n    return a + b\n", "calc/__init__.py": "",
		"tests/test_core.py": "from calc.core import add\n\n\ndef test_zero():\n    assert add(0, 0) == 0\n\n\ndef test_broken_before_and_after():\n    assert False\n",
		"calc/test/tool.py":  "LEVEL = 1\n",
	})
	crlf, crlfCommit := repository(t, map[string]string{"table.py": "ROWS = [1,\r\n        2]\r\n", "spec_table.py": "from table import ROWS\n"})
	withImage(t, c, "sbench.local/pack-example__calc:fixture", calc, "/testbed")
	withImage(t, c, "sbench.local/pack-example__crlf:fixture", crlf, "/testbed")

	core := "def add(a, b):\n    return a + b\n\n\ndef mul(a, b):\n    return a + b\n"
	test := func(dir, name, text string) string { return change(t, dir, map[string]string{name: text}) }
	rows := []map[string]any{
		{
			"instance_id": "example__calc-1", "repo": "example/calc", "base_commit": calcCommit, "problem_statement": "add subtracts",
			"patch":        change(t, calc, map[string]string{"calc/core.py": core}),
			"test_patch":   test(calc, "tests/test_core.py", "import pytest\nfrom calc.core import add\n\n\ndef test_zero():\n    assert add(0, 0) == 0\n\n\n@pytest.mark.parametrize('a', ['ä', 'b c'])\ndef test_add(a):\n    assert add(a, a) == a * 2\n\n\ndef test_broken_before_and_after():\n    assert False\n"),
			"FAIL_TO_PASS": `["tests/test_core.py::test_add[b c]"]`, "PASS_TO_PASS": []string{"tests/test_core.py::test_zero"},
		},
		{
			"instance_id": "example__calc-2", "repo": "example/calc", "base_commit": calcCommit, "problem_statement": "the level is two",
			"patch":        change(t, calc, map[string]string{"calc/test/tool.py": "LEVEL = 2\n"}),
			"test_patch":   test(calc, "tests/test_tool.py", "from calc.test.tool import LEVEL\n\n\ndef test_level():\n    assert LEVEL == 2\n"),
			"FAIL_TO_PASS": []string{"tests/test_tool.py::test_level"}, "PASS_TO_PASS": "[]", "hints_text": "",
		},
		{
			"instance_id": "example__crlf-3", "repo": "example/crlf", "base_commit": crlfCommit, "problem_statement": "a row is missing",
			"patch":        change(t, crlf, map[string]string{"table.py": "ROWS = [1,\r\n        2,\r\n        3]\r\n"}),
			"test_patch":   test(crlf, "spec_table.py", "from table import ROWS\n\nassert ROWS == [1, 2, 3]\r\n"),
			"FAIL_TO_PASS": []string{"spec (table)"}, "PASS_TO_PASS": []string{},
		},
	}
	var source bytes.Buffer
	enc := json.NewEncoder(&source)
	for _, row := range rows {
		must.Do(t, enc.Encode(row))
	}
	file := filepath.Join(t.TempDir(), "rows.jsonl")
	must.Do(t, os.WriteFile(file, source.Bytes(), 0o644))
	pack := checked(t, "3", "swebench", file, "--image", repoImages,
		"--test-command", "example/calc=python3 -m pytest -q -p no:cacheprovider {tests}", "--test-command", "example/crlf=python3 {files}")
	var gold []any
	for _, row := range rows {
		gold = append(gold, map[string]any{"instance_id": row["instance_id"], "model_patch": row["patch"], "model_name_or_path": "gold"})
	}
	expect(t, codeMeasured, "verified=3 passed=3", "grade", "-c", filepath.Join(pack, "tester-command.yaml"), lines(t, "gold.jsonl", gold...),
		"-o", filepath.Join(t.TempDir(), "gold"), "--progress=none")
}

// TestPackRewards: a reward counts only if a run of the tests explains it. Each "solution" cheats.
func TestPackRewards(t *testing.T) {
	c := containerdtest.Open(t)
	withImage(t, c, appImage, t.TempDir(), "/app")
	cheats := map[string]struct{ test, program string }{
		"another-reward": {
			`./program; echo '{"a": 0}' > /logs/verifier/reward.json`, `echo 1 > /logs/verifier/reward.txt`,
		},
		"left-behind": {
			`echo 0 > /logs/verifier/reward.txt; ./program && until grep -qx 1 /logs/./verifier/reward.txt; do sleep 0.05; done`,
			`(setsid sh -c 'while :; do echo 1 > /logs/verifier/x; mv /logs/verifier/x /logs/verifier/reward.txt; done' >/dev/null 2>&1 &)`,
		},
		"killed": {
			`echo 1 > /logs/verifier/reward.txt; ./program; echo 0 > /logs/verifier/reward.txt`, `kill -9 $PPID`,
		},
		"a-link": {
			`./program; sed -i s/1/0/ /logs/verifier/reward.txt 2>/dev/null; true`,
			`echo 1 > one; ln -sf "$PWD/one" /logs/verifier/reward.txt; chmod 000 /logs/verifier`,
		},
		"no-number":  {`./program`, `echo 1 2 > /logs/verifier/reward.txt; echo 0x1 >> /logs/verifier/reward.txt`},
		"too-much":   {`./program; [ -s /logs/verifier/reward.txt ] || echo 0 > /logs/verifier/reward.txt`, `echo 100 > /logs/verifier/reward.txt`},
		"own-tests":  {`./program; echo 0 > /logs/verifier/reward.txt`, `echo 'echo 1 > /logs/verifier/reward.txt' > "$(dirname "$0")/tests/test.sh" || echo x > /tests/test.sh`},
		"no-reward":  {`./program`, `true`},
		"honest":     {`./program && echo 1 > /logs/verifier/reward.txt`, `true`},
		"not-a-file": {`./program`, `rm /logs/verifier/reward.txt; mkdir /logs/verifier/reward.txt`},
		"a-pipe": {
			`./program > o; echo 0 > /logs/verifier/reward.txt; until [ -f /logs/./verifier/reward.txt ] || [ -f /logs/./canary/reward.txt ]; do sleep 0.05; done`,
			`cd /logs/verifier; mkfifo reward.txt; (exec < reward.txt > /dev/null 2>&1; echo 1 > x; mv x reward.txt; cat) &`,
		},
	}
	source := t.TempDir()
	for name, cheat := range cheats {
		filetest.Write(t, filepath.Join(source, name), map[string]string{
			"task.toml": "version = \"1.0\"\n[environment]\ndocker_image = \"" + appImage + "\"\n", "instruction.md": "Write a program.\n",
			"tests/test.sh":     cheat.test + "\n",
			"solution/solve.sh": "cat > program <<'END'\n#!/bin/sh\n" + cheat.program + "\nEND\nchmod +x program\n",
		})
	}
	out := filepath.Join(t.TempDir(), "pack")
	expect(t, codeMeasured, "imported 11", "pack", "import", "--out", out, "harbor", source)
	records := filepath.Join(t.TempDir(), "records")
	expect(t, codeUsage, "checked 11 task(s): reference passed 1, empty passed 0", "pack", "check", "--progress=none", "--output-dir", records, out)
	text := must.Read(t, filepath.Join(records, "reference", "candidates.jsonl"))
	for name, reason := range map[string]string{
		"another-reward": "checker_failed", "left-behind": "passes_broken_tests", "killed": "checker_failed", "a-link": "(no_reward|checker_failed)", "no-number": "no_reward",
		"too-much": "passes_broken_tests", "own-tests": "checker_failed", "no-reward": "no_reward", "not-a-file": "no_reward", "a-pipe": "passes_broken_tests",
	} {
		if !regexp.MustCompile(`"task_id":"` + name + `".*"failure_reason":"` + reason + `"`).Match(text) {
			t.Errorf("%s failed for another reason than %s", name, reason)
		}
	}
	if t.Failed() {
		t.Logf("%s", text)
	}
}

// tarOf returns an archive, compressed by gzip, with one file.
func tarOf(t *testing.T, name string, mode int64, text string) string {
	t.Helper()
	var out bytes.Buffer
	compressed := gzip.NewWriter(&out)
	archive := tar.NewWriter(compressed)
	must.Do(t, archive.WriteHeader(&tar.Header{Name: name, Mode: mode, Size: int64(len(text)), Typeflag: tar.TypeReg}))
	_, err := archive.Write([]byte(text))
	must.Do(t, errors.Join(err, archive.Close(), compressed.Close()))
	return out.String()
}

func buildOwn(t *testing.T, files map[string]string, ref string) (code int, stderr string) {
	t.Helper()
	dir := t.TempDir()
	filetest.Write(t, dir, files)
	code, _, stderr = sbench(t, "image", "build", dir, "--as", ref)
	return code, stderr
}

// TestImageBuildOwn: sbench builds in its own sandboxes, each step once.
func TestImageBuildOwn(t *testing.T) {
	c := containerdtest.Open(t)
	const ref = "sbench.test/own:fixture"
	files := map[string]string{
		"Dockerfile": "ARG BASE=" + containerdtest.Image + `
FROM ${BASE} AS one
ENV GREETING="hello world"
ARG LEVEL=3
RUN echo "$GREETING $LEVEL" > /etc/greeting && useradd -m app && rm /etc/issue
WORKDIR /srv/work
COPY --chown=app data.txt sub/ ./in/
COPY data.txt /etc/copied
RUN <<EOF
set -e
stat -c %U in/data.txt in/inner > /listing
EOF
FROM one
COPY --from=one /listing /two/
ADD --chown=app files.tar.gz data.txt /opt/
RUN --mount=type=bind,source=sub,target=sub,rw --mount=from=one,source=/listing,target=/mnt/listing --mount=type=tmpfs,target=/scratch \
    touch sub/x /scratch/y && test -e sub/x && cat sub/inner /mnt/listing > /mounted && ! touch /mnt/listing
RUN test ! -e sub/x && test ! -e /mnt/listing && test ! -e /scratch/y
VOLUME /srv/state /srv/work
USER app
WORKDIR own
RUN id -un > ~/made && touch made
WORKDIR ..
`,
		"data.txt": "data\n", "sub/inner": "inner\n", "files.tar.gz": tarOf(t, "bin/tool", 0o750, "tool\n"),
	}
	t.Cleanup(func() {
		list, err := c.Images.List(context.Background())
		must.Do(t, err)
		for _, i := range list {
			if i.Ref == ref || strings.HasPrefix(i.Ref, "sbench.local/build-step:") {
				must.Do(t, c.Images.Remove(context.Background(), i.Ref))
			}
		}
	})
	for n, want := range []int{0, 13} { // steps that were there
		code, stderr := buildOwn(t, files, ref)
		if got := strings.Count(stderr, "as before"); code != codeMeasured || got != want {
			t.Fatalf("build %d: exit code %d, %d steps as before\n%s", n+1, code, got, stderr)
		}
	}
	for all, want := range map[string]bool{"--all": true, "--all=false": false} {
		if code, stdout, _ := sbench(t, "image", "ls", all); code != codeMeasured || !strings.Contains(stdout, ref) || strings.Contains(stdout, "/build-step:") != want {
			t.Errorf("image ls %s: exit code %d\n%s", all, code, stdout)
		}
	}
	engine, err := c.NewRun(t.Context())
	must.Do(t, err)
	defer func() { must.Do(t, engine.Close(context.Background())) }()
	img, err := c.Images.Get(t.Context(), ref, images.PullNever)
	must.Do(t, err)
	sandbox, err := engine.Create(t.Context(), runtime.Config{Name: "look", Image: img, Limits: runtime.DefaultLimits()})
	must.Do(t, err)
	defer func() { must.Do(t, sandbox.Close(context.Background())) }()
	exit, err := sandbox.Exec(t.Context(), runtime.Process{Wall: time.Minute, Args: []string{"sh", "-c",
		"pwd; cat /etc/greeting /two/listing /etc/copied in/inner ~/made /mounted /opt/data.txt; stat -c '%U %a' /opt/bin/tool /srv/state; test -e /etc/issue && echo issue; echo $GREETING; id -un"}})
	must.Do(t, err)
	must.Equal(t, "/srv/work\nhello world 3\napp\napp\ndata\ninner\napp\ninner\napp\napp\ndata\napp 750\nroot 755\nhello world\napp\n", exit.Stdout.String())
	from := "FROM " + containerdtest.Image + "\n"
	// A step that two Dockerfiles share has the configuration of neither.
	for n, own := range []string{"ENTRYPOINT [\"/other\"]\n", ""} {
		code, stderr := buildOwn(t, map[string]string{"Dockerfile": from + own + "RUN printf 'a\\033[31mb\\n'\n"}, ref)
		if strings.Count(stderr, "as before") != n || n == 0 && !strings.Contains(stderr, `a\x1b[31mb`) {
			t.Errorf("exit code %d\n%s", code, stderr)
		}
	}
	if img, err = c.Images.Get(t.Context(), ref, images.PullNever); err != nil || img.Entrypoint != nil {
		t.Errorf("the entry point of another Dockerfile: %q, %v", img.Entrypoint, err)
	}
	// What a base image says about its shell, its health and images that are made of it counts, as in Docker.
	const base = "sbench.test/own-base:fixture"
	t.Cleanup(func() { must.Do(t, c.Images.Remove(context.Background(), base)) })
	for _, tt := range []struct{ ref, text string }{
		{base, from + "SHELL [\"/bin/bash\", \"-c\"]\nONBUILD COPY data.txt /on/build\nONBUILD RUN [[ -e /on/build ]]\nHEALTHCHECK --start-period=2m --interval=10s CMD [[ -e /on/build ]]\n"},
		{ref, "FROM scratch AS files\nCOPY data.txt /data/\nFROM " + base + " AS own\nRUN [[ -e /on/build ]] && rm /on/build\nFROM own\nCOPY --from=files / /all/\nRUN [[ ! -e /on/build && $(find /all -type f) = /all/data/data.txt ]]\n"},
	} {
		if code, stderr := buildOwn(t, map[string]string{"Dockerfile": tt.text, "data.txt": "x"}, tt.ref); code != codeMeasured {
			t.Errorf("%s: exit code %d\n%s", tt.ref, code, stderr)
		}
	}
	img, err = c.Images.Get(t.Context(), ref, images.PullNever)
	if want := []string{"/bin/bash", "-c", "[[ -e /on/build ]]"}; err != nil || !slices.Equal(img.Health, want) || img.HealthWait != 150*time.Second || len(img.OnBuild) > 0 {
		t.Errorf("health %q within %v, on build %q, %v", img.Health, img.HealthWait, img.OnBuild, err)
	}
	for name, tt := range map[string]struct {
		files map[string]string
		want  string
	}{
		"no such file":    {map[string]string{"Dockerfile": from + "COPY none /\n"}, "Dockerfile:2: there is no none in the build context"},
		"a URL":           {map[string]string{"Dockerfile": from + "ADD https://example.org/x /\n"}, "Dockerfile:2: ADD of https://example.org/x, which is not a local file, is not supported: fetch it in a RUN"},
		"unknown":         {map[string]string{"Dockerfile": from + "NONSENSE x\n"}, "unknown instruction: NONSENSE"},
		"an ignored file": {map[string]string{"Dockerfile": from + "COPY x /\n", "x": "", ".dockerignore": "x"}, "Dockerfile:2: there is no x in the build context, or it is ignored"},
		"a secret":        {map[string]string{"Dockerfile": from + "RUN --mount=type=secret,id=x true\n"}, "RUN --mount=type=secret is not supported"},
		"a missing mount": {map[string]string{"Dockerfile": from + "RUN --mount=type=bind,source=none,target=/x true\n"}, `RUN --mount=type=bind: "none" is no file or directory`},
	} {
		if code, stderr := buildOwn(t, tt.files, "sbench.test/broken:fixture"); code != codeUsage || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d\n%s", name, code, stderr)
		}
	}
}
