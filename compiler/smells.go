package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/compiler/schema"
)

// maxSeen bounds the warnings that once remembers; it drops any beyond.
const maxSeen = 10_000

// once emits a warning that many rows may have for the first of them only.
func (pv *packValidator) once(p Problem) {
	key := p.Path + "\x00" + p.Message
	if pv.seen[key] || len(pv.seen) >= maxSeen {
		return
	}
	pv.seen[key] = true
	pv.warn(p)
}

func (pv *packValidator) rowSmells(r row) {
	root := r.doc.Root()
	pv.environmentSmells(pv.pack.TasksPath, "$.environment", root.Get("environment"))
	if pv.pack.environment.Image == "" || root.Get("environment").Get("image").Kind() != 0 {
		if pv.pack.environment.withRow(root.Get("environment")).Image == "" {
			pv.once(pv.at(r, "$.environment", "set defaults.environment.image in the manifest", "task has no image, which every harness needs"))
		}
	}
	pv.fileSmells(r)
	pv.leakSmells(r)
	pv.patchSmells(r)
	pv.checkerSmells(r)
}

// steerable matches commands that sbench cannot protect from files of the candidate
// that steer Python, pytest or the tool itself.
var steerable = regexp.MustCompile(`\b(env\s+-i|PYTHONPATH=|PYTEST_ADDOPTS=|python[0-9.]*\s+-[a-zA-Z]*[ES])|\b(npm|npx|yarn|pnpm|cargo|make|mvn|gradle|tox)\b`)

// checkerSmells warns of a checker that the candidate's files may steer, and reports
// a script that is not executable.
func (pv *packValidator) checkerSmells(r row) {
	if r.family.Family != TerminalTask {
		return
	}
	checker := parseChecker(r.doc.Root().Get("eval").Get("checker"), pv.pack.EvalRoot)
	line := strings.Join(checker.Command.Args(), " ")
	if m := steerable.FindString(line); checker.Source == checkerCommand && m != "" {
		pv.warn(pv.at(r, "$.eval.checker.command", "a checker of source script or pytest runs from /tests",
			"with %q the candidate's files in the workspace may steer the check", strings.TrimSpace(m)))
	}
	if checker.Source == CheckerScript {
		if info, err := os.Stat(filepath.Join(pv.pack.EvalRoot, checker.Path)); err == nil && info.Mode()&0o111 == 0 {
			pv.emit(pv.at(r, "$.eval.checker.path", "chmod +x", "script %q is not executable", checker.Path))
		}
	}
}

// environmentSmells checks the environment of the manifest or of a row.
func (pv *packValidator) environmentSmells(file, path string, env document.Value) {
	for key, value := range env.Fields() {
		name := key.Text()
		at := Problem{File: file, Line: value.Line(), Path: path + "." + name}
		switch {
		case !slices.Contains(environmentKeys(), name):
			at.Message = fmt.Sprintf("environment key %q is unused", name)
			at.Hint = cmp.Or(schema.Suggest(name, environmentKeys()), "sbench keeps it as metadata")
		case name == "image" && value.Kind() == document.String && !strings.Contains(value.Text(), "@sha256:"):
			at.Message, at.Hint = fmt.Sprintf("image %q has no digest", value.Text()), "a tag may mean another image tomorrow: add @sha256:…"
		default:
			continue
		}
		pv.once(at)
	}
	for key := range env.Get("env").Fields() {
		if name := key.Text(); looksSecret(strings.ToUpper(name)) {
			pv.once(Problem{
				File: file, Line: key.Line(), Path: path + ".env." + name,
				Message: fmt.Sprintf("%q looks like the name of a secret", name), Hint: "a pack's environment variables are public",
			})
		}
	}
}

// fileSmells makes sure that the files a row refers to exist.
func (pv *packValidator) fileSmells(r row) {
	for _, v := range r.family.resources(r.doc.Root(), true) {
		switch {
		case v.file == nil:
		case v.section == "eval":
			pv.evalFile(r, v.where()+".path", v.file.Path, "eval file")
		default:
			if err := pv.assets.check(v.file.Path); err != nil {
				pv.emit(pv.at(r, v.where()+".path", "", "asset %v", err))
			}
		}
	}
	if r.family.Family != TerminalTask {
		return
	}
	if checker := parseChecker(r.doc.Root().Get("eval").Get("checker"), pv.pack.EvalRoot); checker.Path != "" {
		pv.evalFile(r, "$.eval.checker.path", checker.Path, "checker file")
		pv.used[checker.Directory()] = true
	}
}

func (pv *packValidator) evalFile(r row, path, name, what string) {
	err := pv.eval.check(name)
	if !errors.Is(err, fs.ErrNotExist) {
		pv.used[name] = true
	}
	if err != nil {
		pv.warn(pv.at(r, path, "it has to be below "+pv.pack.evalRel, "%s %v", what, err))
	}
}

// Lengths in bytes from which a value that is not public is searched for in public
// text. Shorter ones occur by chance.
const (
	minAnswer = 3  // for a short_answer
	minLeak   = 16 // for all other families
)

// leakSmells searches public fields for values that are not public. It skips context,
// which is meant to contain the answer, and choices, which contain the right one.
func (pv *packValidator) leakSmells(r row) {
	shortest, words := minLeak, r.family.Family == ShortAnswer
	if words {
		shortest = minAnswer
	}
	var public []string // the fields of input come before those of eval
	for _, v := range r.family.resources(r.doc.Root(), true) {
		switch {
		case v.file != nil:
		case v.section == "input":
			if v.key.Is("context") || v.key.Is("choices") {
				continue
			}
			eachString(v.key, v.Value, func(_ document.Value, text string) { public = append(public, text) })
		case slices.ContainsFunc(secretsOf(v.key, v.Value, shortest), func(secret string) bool {
			return slices.ContainsFunc(public, func(text string) bool { return holds(text, secret, words) })
		}):
			pv.warn(pv.at(r, v.where(), "the agent can read it there", "value appears verbatim in a public field of input"))
		}
	}
}

// secretsOf returns the strings of at least shortest bytes in an eval value.
func secretsOf(key, v document.Value, shortest int) []string {
	var all []string
	for _, s := range appendSecrets(nil, key, v, shortest) {
		// A checker's single line, such as the command pytest -q, is not a secret.
		if !key.Is("checker") || strings.Contains(s, "\n") {
			all = append(all, s)
		}
	}
	return all
}

// holds reports whether text contains the secret; if words is set, only as whole
// words.
func holds(text, secret string, words bool) bool {
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

// patchSmells reports malformed patches in a row.
func (pv *packValidator) patchSmells(r row) {
	if r.family.Family != RepoPatch {
		return
	}
	eval := r.doc.Root().Get("eval")
	patches := []struct{ path, text string }{
		{"$.eval.gold_patch", eval.Get("gold_patch").Text()},
		{"$.eval.tests.setup_patch", patchText(eval.Get("tests").Get("setup_patch"))},
		{"$.eval.tests.test_patch", patchText(eval.Get("tests").Get("test_patch"))},
	}
	for _, p := range patches {
		if p.text == "" {
			continue
		}
		if _, err := patch.Parse(p.text); err != nil {
			pv.emit(pv.at(r, p.path, "", "malformed patch: %v", err))
		}
	}
}

// fileProbe finds out whether files below a root exist, and caches the answers.
type fileProbe struct {
	assetRoot
	known map[string]error
}

// check returns an error unless name is a file or directory without symbolic links.
func (p *fileProbe) check(name string) error {
	err, ok := p.known[name]
	if !ok {
		err = p.walk(name, func(string, fs.FileInfo) error { return nil })
		if p.known == nil || len(p.known) > maxKnown {
			p.known = map[string]error{}
		}
		p.known[name] = err
	}
	return err
}

// Bounds on the files that are searched for some that no row refers to, and on those
// that are reported.
const (
	maxFiles   = 100_000
	maxOrphans = 20
)

// orphans returns the eval files that no row refers to.
func (pv *packValidator) orphans() (names []string) {
	if pv.eval.open() != nil {
		return nil
	}
	files := 0
	_ = fs.WalkDir(pv.eval.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
		case d.IsDir() && pv.used[name]:
			return fs.SkipDir
		case files == maxFiles:
			return fs.SkipAll
		case !d.IsDir():
			files++
			if !pv.used[name] {
				names = append(names, name)
			}
		}
		return nil
	})
	slices.Sort(names)
	return names[:min(len(names), maxOrphans)]
}
