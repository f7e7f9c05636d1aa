package compiler

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
)

// maxSeen bounds the warnings that once remembers. It drops later ones.
const maxSeen = 10_000

// once emits only the first of equal warnings, which many rows may cause.
func (pv *packValidator) once(p Problem) {
	key := p.Path + "\x00" + p.Message
	if !pv.seen[key] && len(pv.seen) < maxSeen {
		pv.seen[key] = true
		pv.warn(p)
	}
}

// steerable matches commands that a candidate's files can steer, through Python, pytest or the tool
// itself, and that sbench cannot protect.
var steerable = regexp.MustCompile(`\b(env\s+-i|PYTHONPATH=|PYTEST_ADDOPTS=|python[0-9.]*\s+-[a-zA-Z]*[ES])|\b(npm|npx|yarn|pnpm|cargo|make|mvn|gradle|tox)\b`)

// checkerSmells warns about a checker that the candidate's files may steer.
func (pv *packValidator) checkerSmells(t *Task) {
	checker := t.Checker()
	line := strings.Join(checker.Command.Args(), " ")
	if m := steerable.FindString(line); checker.Source == checkerCommand && m != "" {
		pv.warn(pv.check.at(t, "$.eval.checker.command", "a checker of source script or pytest runs from /tests",
			"with %q the candidate's files in the workspace may steer the check", strings.TrimSpace(m)))
	}
	if t.unbreakable() {
		pv.warn(pv.check.at(t, "$.eval.checker", "move the checks into a file of tests, which a pytest checker or the script runs",
			"nothing shows that the check can fail: it has no hidden file that a verifier could break"))
	}
}

// unbreakable reports whether a verifier cannot show that the checker can fail: the checker has more than
// one line, and no hidden file besides its own script that the verifier could break.
func (t *Task) unbreakable() bool {
	checker := t.Checker()
	switch checker.Source {
	case checkerCommand:
		command := strings.TrimSpace(strings.Join(checker.Command.Args(), " "))
		return strings.Contains(command, "\n") && len(t.evaluationFiles()) == 0
	case CheckerScript:
		if checker.Reward { // the verifier sends it elsewhere
			return false
		}
		name := filepath.Join(t.pack.EvalRoot, checker.Files())
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() || checker.Path == checker.Files() { // a directory is no script
			return err == nil && !info.IsDir()
		}
		entries, err := os.ReadDir(name)
		return err == nil && len(entries) == 1
	}
	return false
}

// laneSmells warns about hidden files in the directories that are mounted for evaluation.
func (pv *packValidator) laneSmells(t *Task) {
	fields := map[string]string{"$.eval.checker.path": t.Checker().Files()}
	for _, ref := range t.evaluationFiles() {
		fields["$.eval."+ref.Name+".path"] = ref.Path
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		name := fields[field]
		if name == "" {
			continue
		}
		for _, w := range pv.check.look(place{EvaluationInputs, name, ""}).withheld {
			pv.once(pv.check.at(t, field, sideBySide, "the verifier's sandbox gets %q without %q, which is hidden by %s", name, w.Path, w.By))
		}
	}
}

// The least lengths, in bytes, of values that are not public and are searched for in public text. Shorter
// values occur there by chance.
const (
	minAnswer = 3  // for a Family of Words
	minLeak   = 16 // for all other families
)

// leakSmells searches public fields for values that are not public. It skips context, which
// may contain the answer, and choices, which include the right one.
func (pv *packValidator) leakSmells(t *Task) {
	shortest, words := minLeak, t.family.Words
	if words {
		shortest = minAnswer
	}
	var public []string // the fields of input come before those of eval
	for _, v := range t.resources() {
		switch {
		case v.file != nil, v.section == "input" && (v.key.Is("context") || v.key.Is("choices")):
		case v.section == "input":
			eachString(v.key, v.Value, func(_ document.Value, text string) { public = append(public, text) })
		case slices.ContainsFunc(leaksOf(v, shortest), func(secret string) bool {
			return slices.ContainsFunc(public, func(text string) bool { return contains(text, secret, words) })
		}):
			pv.warn(pv.check.at(t, v.Path(), "the agent can read it there", "value appears verbatim in a public field of input"))
		}
	}
}

// leaksOf returns the strings of an eval value that are searched for. A checker of a single line, such as
// the command pytest -q, is not a secret.
func leaksOf(v resource, shortest int) []string {
	return slices.DeleteFunc(secretsIn(v, shortest), func(s string) bool {
		return v.key.Is("checker") && !strings.Contains(s, "\n")
	})
}

// contains reports whether text contains the secret, as whole words if words is set.
func contains(text, secret string, words bool) bool {
	for start := 0; ; {
		i := strings.Index(text[start:], secret)
		if i < 0 {
			return false
		}
		i += start
		end := i + len(secret)
		if !words || !(i > 0 && isWord(text[i-1])) && !(end < len(text) && isWord(text[end])) {
			return true
		}
		start = i + 1
	}
}

func isWord(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c >= 0x80
}

// Bounds on the files that are checked for references from rows, and on those reported.
const (
	maxFiles   = 100_000
	maxOrphans = 20
)

// orphans returns the eval files that no row refers to.
func (pv *packValidator) orphans() (names []string) {
	if pv.check.eval.open() != nil || pv.pack.roots != nil { // then the root is the whole pack
		return nil
	}
	files := 0
	_ = fs.WalkDir(pv.check.eval.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir() && pv.check.used[name]:
			return fs.SkipDir
		case files == maxFiles:
			return fs.SkipAll
		case !d.IsDir():
			files++
			if !pv.check.used[name] {
				names = append(names, name)
			}
		}
		return nil
	})
	slices.Sort(names)
	return names[:min(len(names), maxOrphans)]
}
