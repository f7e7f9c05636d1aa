package harbor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/pack"
)

// fetches reports whether a script of the tests fetches what it needs, and notes the first line that
// does.
func (b *builder) fetches(t *task, tests []taskFile) bool {
	for _, f := range tests {
		if !strings.HasSuffix(f.path, ".sh") {
			continue
		}
		n := 0
		for line := range strings.Lines(string(f.text)) {
			n++
			line = strings.TrimSpace(line)
			if what := fetching.FindString(line); what != "" && !strings.HasPrefix(line, "#") && !offline.MatchString(line) {
				b.Note(pack.Place{File: t.path(cmp.Or(f.at, f.path)), Line: n}, "the script fetches what it needs (%s): a run needs verification.allowed_domains", strings.TrimSpace(what))
				return true
			}
		}
	}
	return false
}

// fetching matches commands that need the network, such as "pip install x", "go get x@v1", "uv run --with x", "npx x" and
// "curl https://example.org": package managers, and requests to hosts with a dot in their names, which are neither this machine
// nor a sidecar.
var fetching = regexp.MustCompile(`\b(apt-get|apt|apk|dnf|yum|npm|uv|conda|pip3?)\s+(-\S+\s+)*(install|add|update|ci|sync|tool|pip|venv)\b|` +
	`\b(bundle|cargo|composer|gem|pipx|pnpm|poetry|yarn)\s+(-\S+\s+)*(install|add)\b|\bgo\s+(install|get)\s[^;&|#]*@|` +
	`\buv\s+(-\S+\s+)*run\s+(-\S+\s+)*(--with\S*|-w|--from|-p|--python)\s|\b(uvx|npx)\s|\bgit clone\s[^|;&]*git@|\b(curl|wget|git clone)\s[^|;&]*https?://[^/\s"']+\.[a-z]{2,}`)

// offline matches an option by which a package manager fetches nothing, or a request stays on this machine, such as
// " --no-index" and " --resolve a.example:443:127.0.0.1".
var offline = regexp.MustCompile(`\s--(no-index|offline|no-download|local|path|unix-socket)\b|\s--(resolve|connect-to)[ =]\S+:(127\.0\.0\.1|localhost)\b`)

var (
	// background matches what leaves a process running ("serve &", "nohup serve", "nginx --daemon"), requests a request to a port
	// or a UNIX socket of this machine ("http://localhost", "redis-cli"), looks what looks at processes ("pgrep x"), and starts
	// what starts a process in Python.
	background = regexp.MustCompile(`(?m)(^|[^&>|])&\s*(#.*)?$|\b(nohup|setsid|systemctl (re)?start|service \S+ (re)?start|tmux new|screen -d|\w+ctl (\S+ )*start)\b|\s--(daemon(ize)?|fork|detach)\b`)
	requests   = regexp.MustCompile(`(?i)\b(https?|wss?)://(localhost|127\.0\.0\.1|0\.0\.0\.0)\b|\b(localhost|127\.0\.0\.1)["']?\s*[:,/ ]\s*\d|\.sock\b|\bAF_UNIX\b|\b(psql|mysql(admin)?|redis-cli|supervisorctl|tmux)\b`)
	looks      = regexp.MustCompile(`\b(pgrep|pidof|psutil|kill -0|ps -?[aefux]+)\b|\bos\.kill\(`)
	starts     = regexp.MustCompile(`\b(Popen|start_server|TestClient|multiprocessing|threading)\b`)
)

// keepsProcesses reports whether the checker needs what runs when the agent has ended. There are four reasons:
//
//   - The operator says so.
//   - The solution leaves a process running, and the tests start none.
//   - The tests send requests to this machine, and start no process: the solution starts a server that becomes a daemon by
//     itself, or what the image's entry point starts has a state. In a step, the solution has to send requests, too.
//   - Both solution and tests talk to a sidecar, and a sidecar may have a state.
//
// Tests that send no requests, or look at processes, may be about the process itself, which they cannot see: a note says so.
func (b *builder) keepsProcesses(t *task, p terminalTask) bool {
	tests, env := append(slices.Clone(p.tests), p.script), taskFile{text: []byte(exports(p.compose.env))}
	if p.separate() { // its tests run elsewhere
		tests = nil
		commands, _ := p.checker["collect"].([]map[string]any)
		for _, c := range commands {
			tests = append(tests, taskFile{text: fmt.Append(nil, c["command"])})
		}
	}
	if b.Keep || len(tests) == 0 {
		return b.Keep
	}
	asks, leaves := matches(tests, requests), matches(p.solution, background)
	daemon := asks && (p.row.Step == nil || matches(p.solution, requests))
	testsStart := matches(tests, background) || matches(tests, starts)
	if (leaves || daemon) && !testsStart {
		if !asks || matches(tests, looks) {
			b.Note(t.place, "the solution leaves a process running: the tests reach its ports and UNIX sockets, but neither see the process (ps, a PID file) nor what it writes later. Let them ask it, or leave the task out (--exclude)")
		}
		return asks || p.row.Step == nil // a step keeps none
	}
	sidecar := p.compose.hosts()
	talks := func(files []taskFile) bool { return matches(append(slices.Clone(files), env), sidecar) }
	return sidecar != nil && talks(tests) && (len(p.solution) == 0 || talks(p.solution))
}

// matches reports whether a file has what r matches.
func matches(files []taskFile, r *regexp.Regexp) bool {
	return slices.ContainsFunc(files, func(f taskFile) bool { return r.Match(f.text) })
}

// separate reports whether the checker has an image of its own.
func (p terminalTask) separate() bool { return p.verifier != nil || p.checker["image"] != nil }

// writeFiles writes files below a directory of the pack. It fails if the pack gets too big.
func (b *builder) writeFiles(dir string, files []taskFile) error {
	for _, f := range files {
		name, err := path.Join(dir, f.path), error(nil)
		if f.link != "" {
			err = b.Link(name, f.link)
		} else if b.bytes += int64(len(f.text)); b.bytes > b.Limits.AllBytes {
			err = compiler.Problems{{File: b.Source, Message: fmt.Sprintf("the task directories hold more than %d bytes, with a file for each link to a file", b.Limits.AllBytes)}}
		} else {
			err = b.Write(name, f.text, f.executable)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// A terminalTask is what a format says about a task in a directory.
type terminalTask struct {
	name     string         // of the step; "" for the whole task
	row      pack.Row       // without what addTask sets
	tests    []taskFile     // hidden files of the check
	script   taskFile       // the file of the tests that checks; zero if an image holds it
	checker  map[string]any // further keys of the row's checker
	seconds  float64        // time limit of the check
	network  string         // the network mode of the check; unless it is noNetwork or allowlist, the scripts of the check tell
	solution []taskFile     // a script solve.sh and its files; empty if there is none
	public   []taskFile     // files that are put into the workspace before the agent works
	image    []taskFile     // the build context of the image; nil if the image exists
	verifier []taskFile     // the build context of the checker's own image; nil if there is no such image, or it exists
	compose  composed       // what a compose file adds
}

// publicDir holds what agents see (compiler, asset_roots).
const publicDir = "assets"

// addTask writes a task's files to the pack and adds its rows, one or one for each step, unless the task
// has problems. The whole machine is the candidate, with the powers that the format's own harness gives
// to its root.
func (b *builder) addTask(ctx context.Context, t *task, parts ...terminalTask) error {
	for i := range parts {
		b.complete(t, &parts[i])
	}
	if len(t.problems) > 0 {
		return nil
	}
	image := ""
	var rows []pack.Row
	for _, p := range parts {
		var err error
		if p.image != nil && b.OwnImages() { // otherwise the operator has named an existing image
			if image == "" {
				image, err = b.buildContext(t, "", p.image)
			}
			p.row.Environment["image"] = image
		}
		if err = errors.Join(err, b.writePart(t, p)); err != nil {
			return err
		}
		rows = append(rows, p.row)
	}
	return b.Add(ctx, t.place, rows...)
}

// complete sets what rows of all formats have.
func (b *builder) complete(t *task, p *terminalTask) {
	if p.home() != "/root" && p.needsSetuid() || matches(append(slices.Clone(p.tests), p.script), sudoAs) {
		t.wrong("", 0, "let root run it: by agent.user or USER or, in tests, without su", "the task needs a setuid program, such as sudo, for another user than root, which is not supported: setuid bits have no effect in a sandbox")
	}
	p.tests, p.solution, p.public = t.followed(p.tests), t.followed(p.solution), t.followed(p.public)
	row := &p.row
	row.ID = path.Join(t.id, p.name)
	row.Eval = map[string]any{"checker": b.checkerOf(t, p)}
	if len(p.solution) > 0 { // see docs/datasets.md
		row.Eval["expected_state"] = map[string]any{"path": path.Join(row.ID, "solution")}
	}
	maps.Copy(row.Eval, given(map[string]any{"expected_changes": p.changes()}))
	keeps := b.keepsProcesses(t, *p)
	t.refuse(keeps && row.Step != nil, "let the tests start it, or write a task without steps", "the tests need a process that the solution leaves, which a step does not keep")
	maps.Copy(row.Environment, given(map[string]any{"candidate": "machine", "capabilities": "packages", "keep_processes": keeps}))
	row.Metadata["source"] = map[string]any{"format": t.form, "folder": t.id, "files": len(t.files), "sha256": treeDigest(t.files)}
	var seen []string
	for _, f := range p.public {
		top, _, _ := strings.Cut(f.path, "/")
		if !slices.Contains(seen, top) {
			seen = append(seen, top)
			row.Assets = append(row.Assets, map[string]any{"path": path.Join(row.ID, top), "mount": top, "read_only": false})
		}
	}
	for _, f := range p.solution {
		if what := lost.Find(f.text); what != nil {
			b.Note(t.place, "the solution uses %s: the checker's machine has no devices and no shared memory of the agent's. Let it write a file elsewhere, or leave the task out (--exclude)", what)
			break
		}
	}
}

// checkerOf returns the checker of a row, and adds the script that checks to the tests.
func (b *builder) checkerOf(t *task, p *terminalTask) map[string]any {
	checker := merged(map[string]any{"source": compiler.CheckerScript, "timeout_seconds": p.seconds}, p.checker)
	dir := path.Join(t.id, p.name, "tests")
	if checker["command"] == nil { // else the image holds it
		script := p.script.path
		checker["path"] = path.Join(dir, script)
		p.tests = append(slices.DeleteFunc(slices.Clone(p.tests), func(f taskFile) bool { return f.path == script }), p.script)
	}
	if p.network != noNetwork && (p.network == allowlist || b.fetches(t, slices.Concat(p.tests, p.verifier))) {
		checker["network"] = true
	}
	return checker
}

// changes returns the paths of programs and profiles that the task is about. The checker sees these as the agent left them,
// and other programs and profiles as the image has them.
func (p terminalTask) changes() []string {
	instruction := fmt.Sprint(p.row.Input["instructions"])
	about := instruction
	for _, f := range p.solution {
		about += "\n" + strings.Join(written.FindAllString(string(f.text), -1), "\n")
	}
	return slices.Concat(profiles(about, p.home()), p.ownPrograms(instruction))
}

// writePart writes the files of a row.
func (b *builder) writePart(t *task, p terminalTask) error {
	hidden := path.Join(pack.HiddenDir, p.row.ID)
	err := errors.Join(
		b.writeFiles(path.Join(hidden, "tests"), p.tests), b.writeFiles(path.Join(hidden, "solution"), p.solution), b.writeFiles(path.Join(publicDir, p.row.ID), p.public),
	)
	if err == nil && p.verifier != nil {
		checker := p.row.Eval["checker"].(map[string]any)
		checker["image"], err = b.buildContext(t, strings.Trim(p.name+".verifier", "."), p.verifier)
	}
	if err == nil {
		err = p.compose.addTo(b, t, p.row)
	}
	return err
}

// fromLine matches where a stage of a Dockerfile begins, with its base and its name.
var fromLine = regexp.MustCompile(`(?im)^\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?`)

// dockerfile returns the instructions of the Dockerfile that make the image: its last stage, after the stages that this one
// begins with.
func (p terminalTask) dockerfile() (last []byte) {
	f, _ := find(p.image, "Dockerfile")
	stages, named := fromLine.FindAllSubmatchIndex(f.text, -1), map[string][]byte{}
	name := func(at []int) string { return strings.ToLower(string(f.text[max(at[0], 0):max(at[1], 0)])) }
	for i, m := range stages {
		end := len(f.text)
		if i+1 < len(stages) {
			end = stages[i+1][0]
		}
		last = slices.Concat(named[name(m[2:4])], f.text[m[0]:end])
		named[name(m[4:6])] = last
	}
	return last
}

// home returns the home directory of the agent's user: the task's, or else the last one of the Dockerfile.
func (p terminalTask) home() string {
	user, _ := p.row.Environment["harness_user"].(string)
	if all := userLine.FindAllSubmatch(p.dockerfile(), -1); user == "" && len(all) > 0 {
		user = string(all[len(all)-1][1])
	}
	if user == "" || user == "root" || strings.Trim(user, "0123456789") == "" {
		return "/root"
	}
	return "/home/" + user
}

// needsSetuid reports whether the solution calls sudo or the Dockerfile makes a setuid program.
func (p terminalTask) needsSetuid() bool {
	return matches(p.solution, callsSudo) || makesSetuid.Match(p.dockerfile())
}

// sudoAs matches a test that calls sudo as another user ("su ada -c 'sudo x'"), callsSudo a line that does ("x && sudo y"), and
// makesSetuid what sets a setuid bit ("chmod 4755 x", "chmod u+s x", "install -m 4755 x").
var (
	sudoAs      = regexp.MustCompile(`\bsu\s[^\n]*-c\s*["'][^\n]*\bsudo\s`)
	callsSudo   = regexp.MustCompile(`(?m)(^|[;&|(])\s*sudo\s`)
	makesSetuid = regexp.MustCompile(`\bchmod(\s[^;&|\n]*)?\s(0?[4-7][0-7]{3}\s|u\+s)|\binstall\s[^;&|\n]*(-m|--mode)[ =]?(0?[4-7][0-7]{3}\s|u\+s)`)
)

// userLine matches the USER of a Dockerfile.
var userLine = regexp.MustCompile(`(?im)^\s*USER\s+([A-Za-z0-9._-]+)`)

// profile matches the files by which shells are set up, which a checker sees as the image has
// them unless the task is about them.
var profile = regexp.MustCompile(`(?:~|\$HOME|\$\{HOME\}|/root|/home/[A-Za-z0-9._-]+)/\.(?:bashrc|bash_profile|profile|zshrc)\b|/etc/(?:profile|environment|bash\.bashrc)\b(?:\.d(?:/[A-Za-z0-9_.-]*[A-Za-z0-9_-])?)?`)

// lost matches what makes something that the checker does not see: a device or shared memory.
var lost = regexp.MustCompile(`\bmknod\b|/dev/shm/`)

// written matches what a script writes to, such as "> file", "tee -a file" and "sed -i s/a/b/ file".
var written = regexp.MustCompile(`(>|\btee( -a)?|\bsed -i\S*\s[^;&|\n]*)\s*["']?[^\s"'<>;&|]+`)

// profiles returns the paths of the profiles that a text names; ~ and HOME stand for home.
func profiles(text, home string) []string {
	all := profile.FindAllString(text, -1)
	for i := range all {
		all[i] = strings.TrimSuffix(strings.NewReplacer("~", home, "$HOME", home, "${HOME}", home).Replace(all[i]), "/")
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// systemFile matches a path at which a checker sees what the image has, unless the task is about it, such as
// "/usr/bin/x". placed matches where a line of a Dockerfile puts a file: "COPY --chmod=755 tool /usr/bin/" and
// "RUN echo x > /usr/bin/tool". fetched matches "curl URL > /usr/bin/tool": tests may trust that program. continued matches the
// end of a line that goes on.
var (
	systemFile = regexp.MustCompile(`/(bin|sbin|lib(exec|32|64|x32)?|include|python[\d.]*|(dist|site)-packages)/`)
	placed     = regexp.MustCompile(`(?im)(?:^\s*(?:COPY|ADD)\s+(?:--ch\S+\s+)*[^-\s].*[\s"]|[^\n;&]*>\s*)(/[\w./+-]+)`)
	fetched    = regexp.MustCompile(`\b(curl|wget)\s.*>`)
	continued  = regexp.MustCompile(`\\\r?\n`)
)

// absolute matches a path in an instruction, and source the file of a program.
var (
	absolute = regexp.MustCompile(`/[\w./+-]*\w`)
	source   = regexp.MustCompile(`\.(c|cc|cpp|go|js|pl|py|rb|rs|sh)$`)
)

// ownPrograms returns the paths of programs and modules that the task is about. Instruction and solution both name them, and
// the Dockerfile puts them there without fetching them, or they are below /usr/local and the build context has their source.
// Those that the Dockerfile puts there and the solution removes need not be in the instruction.
func (p terminalTask) ownPrograms(instruction string) (all []string) {
	var paths []string
	for _, m := range placed.FindAllSubmatch(continued.ReplaceAll(p.dockerfile(), []byte(" ")), -1) {
		if !fetched.Match(m[0]) {
			paths = append(paths, path.Clean(string(m[1])))
			paths = append(paths, p.copied(string(m[0]), string(m[1]))...)
		}
	}
	for _, at := range absolute.FindAllString(instruction, -1) {
		built := func(f taskFile) bool { return source.MatchString(f.path) && stem(f.path) == path.Base(at) }
		if strings.HasPrefix(at, "/usr/local/") && slices.ContainsFunc(p.image, built) {
			paths = append(paths, path.Clean(at))
		}
	}
	for _, at := range paths {
		word := regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(stem(at)) + `($|[^\w-])`)
		removal := regexp.MustCompile(`(?m)\b(rm|unlink)\s([^;&|\n]*\s)?["']?` + regexp.QuoteMeta(at) + `["']?($|[\s;&|])`)
		about := word.MatchString(instruction) && matches(p.solution, word) || matches(p.solution, removal)
		if about && systemFile.MatchString(at) && !systemFile.MatchString("/"+stem(at)+"/") {
			all = append(all, at)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// stem returns the last element of a path without its extension.
func stem(name string) string { return strings.TrimSuffix(path.Base(name), path.Ext(name)) }

// copied returns where a COPY or ADD to a directory puts files of the build context.
func (p terminalTask) copied(line, dir string) (all []string) {
	for _, word := range strings.Fields(line) {
		from := path.Clean("/" + strings.Trim(word, `[]",`))
		for _, f := range p.image {
			if rest, below := strings.CutPrefix("/"+f.path, strings.TrimSuffix(from, "/")+"/"); below {
				all = append(all, path.Join(dir, rest))
			} else if same, _ := path.Match(from, "/"+f.path); same {
				all = append(all, path.Join(dir, path.Base(f.path)))
			}
		}
	}
	return all
}

// buildContext writes the build context of an image of the task to the pack's images, and records the
// image. part is "" for the task's own image. The name of an image has the digest of its context, so that
// two packs never share the name of different images.
func (b *builder) buildContext(t *task, part string, files []taskFile) (ref string, err error) {
	digest := treeDigest(files)
	name, dir := t.id, strings.ReplaceAll(t.id, "/", "+")
	if part != "" {
		name, dir = name+"."+part, dir+"+"+part
	}
	names := map[string]string{"pack": imageName(b.ID), "task": imageName(name), "digest": digest[:12]}
	if ref, err = b.Reference(names); err != nil {
		return "", compiler.Problems{{File: t.place.File, Message: err.Error()}}
	}
	dir = path.Join(pack.ImagesDir, dir)
	b.AddImage(pack.BuiltImage{Ref: ref, Context: dir, Digest: digest})
	return ref, b.writeFiles(dir, files)
}

// imageName turns an id into a part of the name of an image (distribution's reference grammar).
func imageName(id string) string {
	return strings.Trim(otherBytes.ReplaceAllString(strings.ToLower(id), "-"), "._-")
}

// otherBytes matches what a name of an image cannot have: other bytes, and several separators at once.
var otherBytes = regexp.MustCompile(`[^a-z0-9._-]+|[._-]{2,}`)
