package pack

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

var (
	// absolutePath matches a path that is no part of a URL or of a longer path.
	absolutePath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=(:,\\[{<>;|&@])(/[A-Za-z_][A-Za-z0-9._-]*(?:/[A-Za-z0-9._-]+)*)")
	// ownerWork matches commands that work only with the powers of a system's owner.
	ownerWork = regexp.MustCompile(`(?m)\b(apt-get|apt|dpkg|aptitude|dnf|yum|apk)\s+(-\S+\s+)*(install|remove|purge|add|upgrade|-i|--install|--configure)|\b(useradd|adduser|usermod|groupadd|chown|chgrp|su|runuser|sudo)\s`)
)

// everywhere are the directories that tasks name although the candidate changes nothing there:
// programs, what the kernel shows, and what the format's own harness mounts.
var everywhere = []string{"/bin", "/sbin", "/usr/bin", "/usr/sbin", "/lib", "/usr/lib", "/dev", "/proc", "/sys", "/logs", "/tests", "/solution", "/oracle"}

// machine sets in the row's environment that the whole machine is the candidate if the task's
// instruction, tests or solution name a place outside its working directory, or always if
// spec says so, and which powers it needs and shell profiles it is about.
func (b *Builder) machine(t *task, spec terminalTask, row Row) {
	dir, _ := row.Environment["workdir"].(string)
	if dir == "" {
		dir = defaultWorkdir
	}
	instruction, _ := row.Input["instructions"].(string)
	texts := []string{instruction}
	for _, f := range slices.Concat(t.below("tests"), spec.solution) {
		if utf8.Valid(f.text) {
			texts = append(texts, string(f.text))
		}
	}
	outside := slices.ContainsFunc(texts, func(text string) bool { return leaves(text, dir) })
	owner := slices.ContainsFunc(texts, ownerWork.MatchString)
	if !spec.machine && !outside && !owner {
		return
	}
	row.Environment["candidate"] = "machine"
	if asked := profiles(instruction); len(asked) > 0 {
		row.Eval["expected_changes"] = asked
	}
	if owner {
		row.Environment["capabilities"] = "packages"
		b.powers++
	}
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
