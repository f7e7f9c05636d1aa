package trustedgit_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/securebench/sbench/candidate/trustedgit"
	"github.com/securebench/sbench/internal/test/must"
)

// TestDiff: the patch has ignored files that the agent's index names, but not those that are the same in the image. It runs
// the scripts with the host's git.
func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name, image, agent string
		want               []string
	}{
		{"an ignored file", "", "echo > build/x", nil},
		{"an ignored file in the agent's index", "", "echo > build/x; echo > build/y; git add -f build/x", []string{"build/x"}},
		{"names that git quotes", "", `cd build; echo > 'a"b'; echo > é; git add -f .`, []string{`"a/build/a\"b"`, `"a/build/\303\251"`}},
		{"an ignored file in the image's index", "echo > build/x; git add -f build/x", "echo > build/y; echo > z", []string{"z"}},
		{"an ignored file in the image's index that the agent changes", "echo > build/x; git add -f build/x", "echo x > build/x", []string{"build/x"}},
		{"a split index", "", "git update-index --split-index; echo > build/x; git add -f build/x; echo > z", []string{"build/x", "z"}},
		{"an index that is none", "", "echo x > .git/index; echo > z", []string{"z"}},
		{"an index that never ends", "", "ln -sf /dev/zero .git/index; echo > z", []string{"z"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run := func(script string) string {
				out, err := exec.Command("sh", "-euc", `cd "$0"; `+script, dir).Output()
				must.Do(t, err)
				return string(out)
			}
			must.Do(t, trustedgit.Stage(filepath.Join(dir, "scripts")))
			must.Do(t, os.Mkdir(filepath.Join(dir, "scratch"), 0o700))
			paths := strings.NewReplacer(trustedgit.Dest, dir+"/scripts", trustedgit.Scratch+"/", dir+"/scratch/", "HOME="+trustedgit.Scratch, "HOME="+dir)
			for _, name := range []string{"diff.sh", "repo.sh"} {
				name = filepath.Join(dir, "scripts", name)
				text, err := os.ReadFile(name)
				must.Do(t, err)
				must.Do(t, os.WriteFile(name, []byte(paths.Replace(string(text))), 0o600))
			}
			run(`mkdir -p image/build; cd image; git init -q; echo build/ > .gitignore; git add .; git -c user.name=a -c user.email=a@b commit -qm base; ` + c.image)
			run(`cp -a image agent; cd agent; ` + c.agent)
			var got []string
			for _, m := range regexp.MustCompile(`(?m)^diff --git (?:a/)?(\S+)`).FindAllStringSubmatch(run(`SBENCH_MOST=1024 sh scripts/diff.sh "$PWD/image" "$PWD/agent" text`), -1) {
				got = append(got, m[1])
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("the patch changes %q, want %q", got, c.want)
			}
		})
	}
}
