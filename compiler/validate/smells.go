package validate

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/document"
)

// maxSeen bounds the warnings that once remembers. It drops later ones.
const maxSeen = 10_000

// once emits only the first of equal warnings, which many rows may cause.
func (pv *packValidator) once(p compiler.Problem) {
	key := p.Path + "\x00" + p.Message
	if !pv.seen[key] && len(pv.seen) < maxSeen {
		pv.seen[key] = true
		pv.warn(p)
	}
}

// checkerSmells warns about a checker if nothing shows that it can fail.
func (pv *packValidator) checkerSmells(t *compiler.Task) {
	if pv.unbreakable(t) {
		pv.warn(t.Problem("$.eval.checker", "move the checks into a file of tests, which a pytest checker or the script runs",
			"nothing shows that the check can fail: it has no hidden file that a verifier could break"))
	}
	if unguarded.MatchString(guarded.ReplaceAllString(pv.checkerText(t), "")) {
		pv.warn(t.Problem("$.eval.checker", "write PYTHONPATH=$PYTHONPATH:src, and neither env -i nor python -S or -E",
			"Python imports modules of the candidate in place of its own, such as json.py"))
	}
}

// unguarded matches what keeps Python from loading the modules that sbench has for every Python of a checker, where guarded
// does not match.
var (
	unguarded = regexp.MustCompile(`\bPYTHONPATH=|\benv (?:-u \S+ |-\S+ )*-i\b|\bpython[0-9.]* (?:-[bBdEiIOPqsSuvx]+ )*-[bBdEiIOPqsSuvx]*[ES]`)
	guarded   = regexp.MustCompile(`\bPYTHONPATH=["']?\$\{?PYTHONPATH\b`)
)

// checkerText returns the command of a checker, or the text of its script.
func (pv *packValidator) checkerText(t *compiler.Task) string {
	checker := t.Checker()
	if checker.Source != compiler.CheckerScript {
		return strings.Join(checker.Command.Args(), " ")
	}
	text, _ := os.ReadFile(filepath.Join(pv.pack.EvalRoot, checker.Path)) // another check reports what cannot be read
	return string(text)
}

// unbreakable reports whether a verifier cannot show that the checker can fail: the checker has more than
// one line, and no hidden file besides its own script that the verifier could break.
func (pv *packValidator) unbreakable(t *compiler.Task) bool {
	checker := t.Checker()
	switch checker.Source {
	case compiler.CheckerCommand:
		command := strings.TrimSpace(strings.Join(checker.Command.Args(), " "))
		return strings.Contains(command, "\n") && len(inputs(t)) == 0
	case compiler.CheckerScript:
		if checker.Reward { // the verifier sends it elsewhere
			return false
		}
		name := filepath.Join(pv.pack.EvalRoot, checker.Files)
		info, err := os.Stat(name)
		if err != nil || !info.IsDir() || checker.Path == checker.Files { // a directory is no script
			return err == nil && !info.IsDir()
		}
		entries, err := os.ReadDir(name)
		return err == nil && len(entries) == 1
	}
	return false
}

// inputs returns the files of the task that are evaluation inputs.
func inputs(t *compiler.Task) []compiler.FileRef {
	return slices.DeleteFunc(t.Files(), func(f compiler.FileRef) bool { return f.Lane != compiler.EvaluationInputs })
}

// laneSmells warns about hidden files in the directories that are mounted for evaluation.
func (pv *packValidator) laneSmells(t *compiler.Task) {
	fields := map[string]string{"$.eval.checker.path": t.Checker().Files}
	for _, ref := range inputs(t) {
		fields[ref.Field+".path"] = ref.Path
	}
	for _, field := range slices.Sorted(maps.Keys(fields)) {
		name := fields[field]
		if name == "" {
			continue
		}
		for _, w := range pv.check.look(place{compiler.EvaluationInputs, name, ""}).withheld {
			pv.once(t.Problem(field, sideBySide, "the verifier's sandbox gets %q without %q, which is hidden by %s", name, w.Path, w.By))
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
func (pv *packValidator) leakSmells(t *compiler.Task) {
	shortest, words := minLeak, t.Family().Words
	if words {
		shortest = minAnswer
	}
	var public []string
	for key, v := range t.Input().Fields() {
		if !key.Is("context") && !key.Is("choices") {
			eachString(key, v, func(_ document.Value, text string) { public = append(public, text) })
		}
	}
	for key, v := range t.Eval().Fields() {
		if slices.ContainsFunc(leaksOf(key, v, shortest), func(secret string) bool {
			return slices.ContainsFunc(public, func(text string) bool { return contains(text, secret, words) })
		}) {
			pv.warn(t.Problem(v.Path(), "the agent can read it there", "value appears verbatim in a public field of input"))
		}
	}
}

// leaksOf returns the strings of an eval field that are searched for: content of at least shortest bytes. A checker of a
// single line, such as the command pytest -q, is not a secret.
func leaksOf(field, v document.Value, shortest int) (secrets []string) {
	eachString(field, v, func(key document.Value, text string) {
		text = strings.TrimSpace(text)
		word := key.Is("command") && len(text) < minLeak && !strings.ContainsAny(text, " \t\n")
		if len(text) >= shortest && !isPlainKey(key) && !word && !(field.Is("checker") && !strings.Contains(text, "\n")) {
			secrets = append(secrets, text)
		}
	})
	return secrets
}

// eachString calls visit for every string in a value, with the nearest key above it.
func eachString(key, v document.Value, visit func(key document.Value, text string)) {
	if v.Kind() == document.String {
		visit(key, v.Text())
	}
	for _, item := range v.Items() {
		eachString(key, item, visit)
	}
	for key, value := range v.Fields() {
		eachString(key, value, visit)
	}
}

// isPlainKey reports whether the strings under a key are paths or keywords of sbench
// rather than content.
func isPlainKey(key document.Value) bool {
	return slices.ContainsFunc([]string{
		"source", "type", "workdir", "path", "mount", "needed_commands", "expected_changes", "trusted_paths", "answer_pattern", "allow_paths", "allow_sensitive_paths", "patch_preserved_paths",
	}, key.Is)
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
	if _, eval := pv.pack.Roots(); eval == "." { // the whole pack
		return nil
	}
	files := 0
	_ = fs.WalkDir(os.DirFS(pv.pack.EvalRoot), ".", func(name string, d fs.DirEntry, err error) error {
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
