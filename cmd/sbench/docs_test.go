package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/internal/test/containerdtest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
	"github.com/securebench/sbench/pack/harbor"
)

// A block is a fenced block of a page.
type block struct {
	language string
	lines    []string
	first    int // number of the first line
}

// blocks returns the fenced blocks of a page, and its other lines by their numbers.
func blocks(text string) (fenced []block, others map[int]string) {
	others = map[int]string{}
	within := false
	for i, line := range strings.Split(text, "\n") {
		language, fence := strings.CutPrefix(line, "```")
		switch {
		case fence && within:
			within = false
		case fence:
			within = true
			fenced = append(fenced, block{language: language, first: i + 2})
		case within:
			last := &fenced[len(fenced)-1]
			last.lines = append(last.lines, line)
		default:
			others[i+1] = line
		}
	}
	return fenced, others
}

func pages(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, pattern := range []string{"../../README.md", "../../docs/*.md", "../../docs/design/*.md"} {
		files := must.Glob(t, pattern)
		for _, file := range files {
			text := must.Read(t, file)
			found[file] = string(text)
		}
	}
	return found
}

// TestDocs runs every page's blocks of shell commands (```sh) as one script. A block of text (```text) after it
// shows lines of its output, where "…" stands for anything; make is not run, but its targets must exist.
func TestDocs(t *testing.T) {
	containerdtest.Open(t)
	ran := 0
	for page, text := range pages(t) {
		fenced, _ := blocks(text)
		script, shown := "", []string{}
		for i, b := range fenced {
			if b.language == "sh" {
				script += strings.Join(b.lines, "\n") + "\n"
			} else if b.language == "text" && i > 0 && fenced[i-1].language == "sh" && b.first-fenced[i-1].first-len(fenced[i-1].lines) <= 4 {
				shown = append(shown, b.lines...)
			}
		}
		if script == "" {
			continue
		}
		ran++
		t.Run(filepath.Base(page), func(t *testing.T) {
			output := runPage(t, script)
			for _, line := range shown {
				parts := strings.Split(line, "…")
				for i := range parts {
					parts[i] = regexp.QuoteMeta(strings.Join(strings.Fields(parts[i]), " "))
				}
				if found, err := regexp.MatchString("(?m)^"+strings.Join(parts, ".*")+"$", output); err != nil || !found {
					t.Errorf("it did not print %q, %v; output:\n%s", line, err, output)
				}
			}
		})
	}
	if ran < 4 {
		t.Errorf("only %d pages have commands", ran)
	}
}

func runPage(t *testing.T, script string) string {
	t.Helper()
	dir := t.TempDir()
	must.Do(t, os.Chmod(dir, 0o755))
	sbench, err := exec.LookPath("sbench")
	must.Do(t, err)
	repository := must.Abs(t, "../..")
	must.Do(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	for name, target := range map[string]string{
		"bin/sbench": sbench, "benchmarks": filepath.Join(repository, "benchmarks"), "scripts": filepath.Join(repository, "scripts"),
	} {
		must.Do(t, os.Symlink(target, filepath.Join(dir, name)))
	}
	const before = `make() { for target; do grep -q "^$target:" "$REPOSITORY/Makefile"; done; }
`
	cmd := exec.CommandContext(t.Context(), "bash", "-euo", "pipefail", "-c", before+script)
	cmd.Dir, cmd.WaitDelay = dir, time.Minute
	cmd.Env = append(os.Environ(), containerdtest.Environment()...)
	cmd.Env = append(cmd.Env, "HOME="+dir, "REPOSITORY="+repository)
	output := must.Run(t, cmd)
	var lines []string
	for line := range strings.Lines(string(output)) {
		lines = append(lines, strings.Join(strings.Fields(line), " "))
	}
	t.Log(string(output)) // with -v
	return strings.Join(lines, "\n")
}

// TestDocsBlocks: a command that can be run is in a block that TestDocs runs. The others are in
// blocks of a console (```console), and here, with the reason.
func TestDocsBlocks(t *testing.T) {
	reasons := map[string]string{ // of commands that begin so
		"sbench image build ":           "needs a Dockerfile",
		"sbench pack import human":      "needs the published data set",
		"sbench validate humaneval":     "needs the published data set",
		"sbench pack check humaneval":   "needs the published data set",
		"sbench run --config humaneval": "needs the published data set, a key and a network",
		"sbench doctor":                 "of an installed package: the step deb of scripts/hosts/run.sh",
		"cd /usr/share/doc/sbench":      "of an installed package",
		"sbench run --config benchm":    "of an installed package: the step deb of scripts/hosts/run.sh",
		"sbench report ~/smoke":         "of an installed package",
		"sbench image import ":          "needs the archive that one of the others makes",
	}
	command := regexp.MustCompile(`^ {4}(\$ )?(bin/)?(sbench|make|scripts/\S+)( |$)`)
	synopsis := regexp.MustCompile(`\[|\.\.\.| [A-Z_]{3,}\b`)
	for page, text := range pages(t) {
		page = strings.TrimPrefix(page, "../../")
		fenced, others := blocks(text)
		for number, line := range others {
			if command.MatchString(line) && !synopsis.MatchString(line) {
				t.Errorf("%s:%d: %q is a command outside of a block of commands", page, number, line)
			}
		}
		for _, b := range fenced {
			for i, line := range b.lines {
				where := fmt.Sprintf("%s:%d: %q", page, b.first+i, line)
				shown, isCommand := strings.CutPrefix(line, "$ ")
				switch {
				case b.language == "sh" && isCommand:
					t.Errorf("%s: without the prompt", where)
				case b.language != "console" || !isCommand:
				default:
					known := false
					for prefix := range reasons {
						known = known || strings.HasPrefix(shown, prefix)
					}
					if !known {
						t.Errorf("%s: run it (```sh), or say here why not", where)
					}
				}
			}
		}
	}
}

// TestDocsNames: each format and each agent has a row in the table of its page.
func TestDocsNames(t *testing.T) {
	formats, agents := must.Read(t, "../../docs/datasets.md"), must.Read(t, "../../docs/harnesses.md")
	for _, f := range append(pack.Formats(), harbor.Formats()...) {
		must.Contains(t, string(formats), "\n| `"+f.Name+"` |")
	}
	for _, cli := range harness.CLIs() {
		must.Contains(t, string(agents), "\n| `"+cli.Name+"` |")
	}
}

// TestDocsCommands: every command of a page and of a pack's README, whether TestDocs runs it or not, is one of
// sbench, with flags that it has.
func TestDocsCommands(t *testing.T) {
	command := regexp.MustCompile(`^ {4,}(?:\$ |- (?:run: )?)?(?:[A-Z_]+=\S+ )*(?:bin/)?sbench ([a-z].*)`)
	quoted, rest := regexp.MustCompile(`"[^"]*"|'[^']*'`), regexp.MustCompile(` (&&|\||>|#) .*| < .*`)
	all := pages(t)
	readmes := must.Glob(t, "../../benchmarks/*/README.md")
	for _, readme := range readmes {
		text := must.Read(t, readme)
		all[readme] = string(text)
	}
	seen := 0
	for page, text := range all {
		fenced, others := blocks(text)
		for _, b := range fenced {
			for i, line := range b.lines {
				others[b.first+i] = "    " + strings.TrimLeft(line, " ")
			}
		}
		for number, line := range others {
			m := command.FindStringSubmatch(line)
			if m == nil || strings.ContainsAny(m[1], "[…") {
				continue
			}
			seen++
			formats := append(pack.Formats(), harbor.Formats()...)
			parser, err := kong.New(&cli{Pack: packCmd{Import: newPackImport(formats)}}, helpVars(formats))
			must.Do(t, err)
			if _, err := parser.Parse(strings.Fields(rest.ReplaceAllString(quoted.ReplaceAllString(m[1], "x"), ""))); err != nil {
				t.Errorf("%s:%d: %s: %v", page, number, m[1], err)
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d commands", seen)
	}
}
