package pack

import (
	"cmp"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	// absolutePath matches a path that is no part of a URL or of a longer path.
	absolutePath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=(:,\\[{<>;|&@])(/[A-Za-z_][A-Za-z0-9._-]*(?:/[A-Za-z0-9._-]+)*)")
	// ownerWork matches commands that change a system although they need not name a path of it.
	ownerWork = regexp.MustCompile(`(?m)\b(apt-get|apt|dpkg|aptitude|dnf|yum|apk|pip3?|uv pip|npm|cargo|gem|make)\s+(-\S+\s+)*(install|remove|purge|add|upgrade|-i|--install|--configure|i\s+-g)\b|` +
		`\b(useradd|adduser|usermod|groupadd|chown|chgrp|su|runuser|sudo|ldconfig|update-alternatives|systemctl|service|crontab)\s`)
)

// everywhere are the directories that tasks name although the candidate changes nothing there:
// programs, what the kernel shows, and what the format's own harness mounts.
var everywhere = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/lib", "/usr/lib", "/dev", "/proc", "/sys", "/logs", "/tests", "/solution", "/oracle"}

// machine sets in the row's environment that the whole machine is the candidate if the task's
// instruction, tests or solution name a place outside its working directory, if the instruction
// or solution names a command that changes a system, or always if spec says so.
func (b *Builder) machine(t *task, spec terminalTask, row Row) {
	dir, _ := row.Environment["workdir"].(string)
	dir = cmp.Or(dir, defaultWorkdir)
	instruction, _ := row.Input["instructions"].(string)
	solution := append(textsOf(spec.solution), instruction)
	texts := append(textsOf(t.below("tests")), solution...)
	outside := slices.ContainsFunc(texts, func(text string) bool { return leaves(text, dir) })
	if !spec.machine && !outside && !slices.ContainsFunc(solution, ownerWork.MatchString) {
		return
	}
	// The format's own harness gives a task's root these powers, too.
	row.Environment["candidate"], row.Environment["capabilities"] = "machine", "packages"
	b.powers++
	if asked := profiles(instruction); len(asked) > 0 {
		row.Eval["expected_changes"] = asked
	}
}

// textsOf returns the files that are text.
func textsOf(files []taskFile) (texts []string) {
	for _, f := range files {
		if utf8.Valid(f.text) {
			texts = append(texts, string(f.text))
		}
	}
	return texts
}

// profile matches the files by which shells are set up, which a checker sees as the image has
// them unless the task is about them.
var profile = regexp.MustCompile(`(?:~|/root)/\.(?:bashrc|bash_profile|profile|zshrc)\b|/etc/(?:profile|environment|bash\.bashrc)\b(?:\.d(?:/[A-Za-z0-9_.-]*[A-Za-z0-9_-])?)?`)

// profiles returns the paths of such files in a text.
func profiles(text string) []string {
	all := profile.FindAllString(text, -1)
	for i := range all {
		all[i] = strings.TrimSuffix(strings.Replace(all[i], "~", "/root", 1), "/")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// leaves reports whether a text names a path that is not in the directory dir.
func leaves(text, dir string) bool {
	below := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, dir+"/") }
	for _, m := range absolutePath.FindAllStringSubmatch(text, -1) {
		p := path.Clean(m[1])
		if !below(p, dir) && !slices.ContainsFunc(everywhere, func(known string) bool { return below(p, known) }) {
			return true
		}
	}
	return false
}
