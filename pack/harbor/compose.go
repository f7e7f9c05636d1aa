package harbor

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"regexp"
	"runtime"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/pack"
)

// composed is what a compose file adds to a task.
type composed struct {
	row      map[string]any    // the row's environment: entrypoint, user, workdir
	env      map[string]string // of the task's own sandbox
	shm      string            // the size of /dev/shm in all sandboxes; "" for the usual one
	image    string            // of the task's own sandbox, if it is not built; "" if the file names none
	context  []taskFile        // the build context of the task's own sandbox; nil if the file names none
	lines    []string          // further instructions of its Dockerfile
	mounted  []taskFile        // further files of its build context
	names    []string          // by which sidecars reach it
	sidecars []map[string]any
	builds   [][]taskFile // the build context of each sidecar's image; nil if the image exists
}

// hosts matches a sidecar's name where a host's name stands; nil without sidecars.
func (c composed) hosts() *regexp.Regexp {
	var names []string
	for _, s := range c.sidecars {
		names = append(names, regexp.QuoteMeta(fmt.Sprint(s["name"])))
		for _, alias := range aliasesOf(s) {
			names = append(names, regexp.QuoteMeta(alias))
		}
	}
	if names == nil {
		return nil
	}
	name := "(" + strings.Join(names, "|") + ")"
	return regexp.MustCompile(`(//|@|["'=]|\s-h ?|--host[= ])` + name + `\b|\b` + name + `:\d`)
}

// aliasesOf returns the further names of a sidecar.
func aliasesOf(sidecar map[string]any) []string {
	all, _ := sidecar["aliases"].([]string)
	return all
}

var (
	// composeIdle are the keys of a service that change nothing here: all services share a loopback interface and the task's
	// limits, and end with the task.
	composeIdle = []string{
		"container_name", "cpus", "deploy", "expose", "hostname", "init", "labels", "logging", "mem_limit", "networks", "platform", "ports",
		"pull_policy", "restart", "stdin_open", "stop_grace_period", "tty",
	}
	// composeRead are the keys of a service that the import reads.
	composeRead = []string{"build", "command", "depends_on", "entrypoint", "env_file", "environment", "healthcheck", "image", "shm_size", "tmpfs", "user", "volumes", "working_dir"}
	// composeTop are the keys of a compose file that are not refused.
	composeTop = []string{"name", "networks", "services", "version", "volumes"}
)

// composeReader reads a compose file of a task.
type composeReader struct {
	*task
	name string
	root document.Value
	env  map[string]string // of the file .env beside it, and over that what the operator gives
}

// readCompose reads a compose file (compose-spec, 05-services.md). own is the service that is the
// task's own sandbox. Anything that sandboxes cannot do is a problem. compose-go is not used: it fills
// in the host's environment and files, and its services no longer have lines.
func (b *builder) readCompose(task *task, name, own string) composed {
	var c composed
	if _, ok := task.file(name); !ok {
		return c
	}
	t := composeReader{task, name, task.yaml(name), b.Env}
	if f, ok := task.file(path.Join(path.Dir(name), ".env")); ok {
		t.env = merged(t.envFile(f), b.Env)
	}
	for k := range t.root.Fields() {
		if !slices.Contains(composeTop, k.Text()) && !strings.HasPrefix(k.Text(), "x-") {
			t.wrong(name, k.Line(), "write what it adds into the services", "%s is not supported", k.Text())
		}
	}
	c.names = []string{own}
	for _, service := range t.inOrder() {
		s := t.root.Get("services").Get(service)
		t.checkKeys(service, s)
		t.sharedMemory(&c, s.Get("shm_size"))
		aliases := t.aliases(service, s)
		if service == own {
			c.names = append(c.names, aliases...)
			t.ownService(&c, own, s)
			continue
		}
		t.sidecar(&c, service, s, aliases)
		mine := networks(t.root.Get("services").Get(own))
		if !slices.ContainsFunc(networks(s), func(network string) bool { return slices.Contains(mine, network) }) {
			t.wrong(name, s.Get("networks").Line(), "leave networks out if it may", "the service %s has no network of the service %s, which would reach it nevertheless", service, own)
		}
	}
	return c
}

// checkKeys records a problem for each key of a service that sandboxes cannot do.
func (t composeReader) checkKeys(service string, s document.Value) {
	for k, v := range s.Fields() {
		if k.Is("cap_add") {
			for _, c := range v.Items() {
				t.refuseCapability(service, c)
			}
		} else if string(v.Raw()) != "false" && !slices.Contains(composeIdle, k.Text()) && !slices.Contains(composeRead, k.Text()) {
			t.wrong(t.name, k.Line(), "leave it out, or do the same in the Dockerfile", "the service %s needs %s, which is not supported", service, k.Text())
		}
	}
	deploy, platform, tmpfs := s.Get("deploy"), s.Get("platform"), s.Get("tmpfs")
	if devices := deploy.Get("resources").Get("reservations").Get("devices"); devices.Given() {
		t.wrong(t.name, devices.Line(), "leave them out if the task can be solved without", "the service %s needs devices, which are not supported", service)
	}
	if n := deploy.Get("replicas"); n.Given() && t.composeText(n) != "1" {
		t.wrong(t.name, n.Line(), "write a service for each of them", "the service %s has %s replicas, which are not supported", service, t.composeText(n))
	}
	if platform.Given() && !strings.HasPrefix(t.composeText(platform)+"/", "linux/"+runtime.GOARCH+"/") { // a variant may follow
		t.wrong(t.name, platform.Line(), "leave it out if the task can be solved without", "the service %s is for %s, which this machine is not", service, t.composeText(platform))
	}
	for _, v := range listed(tmpfs) {
		at, options, _ := strings.Cut(v.Text(), ":")
		if path.Clean(at) == "/dev/shm" && strings.Contains(options, "size=") {
			t.wrong(t.name, v.Line(), "write the size as shm_size", "the service %s has a tmpfs of a size at %s, which is not supported", service, at)
		} else if at != "" && !slices.Contains(emptyDirs, path.Clean(at)) {
			t.wrong(t.name, v.Line(), "make the directory in the Dockerfile", "the service %s has a tmpfs at %s, which is not supported", service, at)
		}
	}
}

// sharedMemory reads the size of a service's /dev/shm.
func (t composeReader) sharedMemory(c *composed, v document.Value) {
	size := t.composeText(v)
	if c.shm != "" && v.Given() && size != c.shm {
		t.wrong(t.name, v.Line(), "write the same size for all services", "a shm_size of %s beside one of %s is not supported", size, c.shm)
	}
	c.shm = cmp.Or(size, c.shm)
}

// emptyDirs are directories that begin empty in all sandboxes, or in all images.
var emptyDirs = []string{"/tmp", "/run", "/var/run", "/var/tmp", "/dev/shm"}

// composeCapabilities are the capabilities that a task's root has (environment.capabilities: packages), and SYS_PTRACE, which
// is needed for processes of other users alone.
var composeCapabilities = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT", "SYS_PTRACE"}

// refuseCapability records a problem with a capability that a service asks for, and that it has not.
func (t composeReader) refuseCapability(service string, c document.Value) {
	name := strings.TrimPrefix(strings.ToUpper(c.Text()), "CAP_")
	if !slices.Contains(composeCapabilities, name) {
		t.wrong(t.name, c.Line(), "leave it out if the task can be solved without", "the service %s needs the capability %s, which is not supported", service, name)
	}
}

// aliases returns the further names of a service's host. A name with a dot, which could hide another host, is a problem if it
// is used.
func (t composeReader) aliases(service string, s document.Value) (all []string) {
	f, _ := t.file(t.name)
	add := func(v document.Value) {
		name := v.Text()
		switch {
		case strings.Contains(name, "$") || name == service || slices.Contains(all, name):
		case !strings.Contains(name, "."):
			all = append(all, name)
		case t.mentions(name) || strings.Count(string(f.text), name) > 1:
			t.wrong(t.name, v.Line(), "write a name without dots", "the service %s is called %s, too, which is not supported", service, name)
		}
	}
	for _, how := range s.Get("networks").Fields() {
		for _, alias := range how.Get("aliases").Items() {
			add(alias)
		}
	}
	if name := s.Get("container_name"); name.Given() {
		add(name)
	}
	return all
}

// inOrder returns the names of the services, each after those that it depends on.
func (t composeReader) inOrder() (order []string) {
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		service := t.root.Get("services").Get(name)
		if seen[name] || !service.Given() {
			return
		}
		seen[name] = true
		on := service.Get("depends_on")
		for key, how := range on.Fields() {
			if condition := how.Get("condition"); condition.Is("service_completed_successfully") {
				t.wrong(t.name, condition.Line(), "do its work in a Dockerfile", "the service %s waits for the end of %s, which is not supported", name, key.Text())
			}
		}
		for _, other := range names(on) {
			visit(other)
		}
		order = append(order, name)
	}
	for _, name := range names(t.root.Get("services")) {
		visit(name)
	}
	return order
}

// names returns the names in a list, or the keys of a mapping.
func names(v document.Value) (all []string) {
	for _, item := range v.Items() {
		all = append(all, item.Text())
	}
	for key := range v.Fields() {
		all = append(all, key.Text())
	}
	return all
}

// listed returns the items of a list, or what is there in place of a list.
func listed(v document.Value) (all []document.Value) {
	if v.Kind() != document.Array {
		return []document.Value{v}
	}
	for _, item := range v.Items() {
		all = append(all, item)
	}
	return all
}

// networks returns the names of a service's networks.
func networks(service document.Value) []string {
	if all := names(service.Get("networks")); all != nil {
		return all
	}
	return []string{"default"}
}

// sidecar reads a service beside the task's own sandbox.
func (t composeReader) sidecar(c *composed, name string, service document.Value, aliases []string) {
	ready, unchecked := t.composeTest(service)
	s := given(map[string]any{
		"name": name, "aliases": aliases, "env": t.serviceEnv(service, false), "ready": ready,
		"entrypoint": t.composeArgs(service.Get("entrypoint")), "command": t.composeArgs(service.Get("command")),
	})
	build, image := service.Get("build"), ""
	var files []taskFile
	if build.Given() {
		files = t.composeContext(build)
	} else if image = t.composeText(service.Get("image")); image == "" {
		t.wrong(t.name, service.Line(), "write one of them", "the sidecar %s has neither image nor build", name)
	}
	lines, mounted := t.mounted(name, false, service.Get("volumes"))
	lines = append(lines, unchecked...)
	for _, set := range [][2]string{{"user", "USER "}, {"working_dir", "WORKDIR "}} {
		if text := t.composeText(service.Get(set[0])); text != "" {
			lines = append(lines, set[1]+text)
		}
	}
	if files = extended(files, image, lines, mounted); files == nil {
		s["image"] = image
	}
	c.sidecars, c.builds = append(c.sidecars, s), append(c.builds, files)
}

// extended returns a build context with further instructions at the end of its Dockerfile, and with further files. If there
// is none, but there are instructions, it begins with an image.
func extended(context []taskFile, image string, lines []string, files []taskFile) []taskFile {
	if len(lines) > 0 && context == nil {
		context = []taskFile{{path: "Dockerfile", text: []byte("FROM " + image)}}
	}
	for i := range context {
		if context[i].path == "Dockerfile" && len(lines) > 0 {
			context[i].text = []byte(strings.Join(append([]string{string(context[i].text)}, lines...), "\n"))
		}
	}
	return append(context, files...)
}

// mounted returns what puts the volumes of a service into its image: instructions of a Dockerfile that copy files of the
// task, and these files. It skips volumes that begin empty, and the formats' own, for the logs of the task's own service.
func (t composeReader) mounted(name string, own bool, volumes document.Value) (lines []string, files []taskFile) {
	for i, v := range volumes.Items() {
		if written := cmp.Or(v.Text(), v.Get("source").Text()); strings.HasPrefix(written, "${T_BENCH_") || strings.HasPrefix(written, "${HOST_") {
			if !own {
				t.wrong(t.name, v.Line(), "services reach each other by ports alone", "the service %s mounts a directory of logs, which is not supported", name)
			}
			continue
		}
		source, target := t.volume(v)
		if source == "" {
			continue
		}
		from, dir := path.Join(path.Dir(t.name), source), fmt.Sprintf("volumes/%d", i)
		found := t.below(from)
		for k := range found {
			found[k].path = path.Join(dir, found[k].path)
		}
		if f, ok := t.file(from); ok {
			dir = path.Join(dir, path.Base(from))
			f.path = dir
			found = append(found, f)
		} else {
			dir, target = dir+"/", target+"/"
		}
		if len(found) == 0 || path.IsAbs(source) {
			t.wrong(t.name, v.Line(), "put it beside the compose file, and write a path that begins with ./", "the service %s mounts %q, which is no file or directory of the task", name, source)
		}
		lines, files = append(lines, fmt.Sprintf("COPY [%q, %q]", dir, target)), append(files, found...)
	}
	return lines, files
}

// volume returns what a volume mounts, and where. The source is relative to the directory of the compose file, and "" for a
// volume that begins empty.
func (t composeReader) volume(v document.Value) (source, target string) {
	if v.Kind() == document.String {
		text := t.composeText(v)
		parts := strings.Split(text, ":")
		if len(parts) == 1 {
			return "", text
		}
		source, target = parts[0], parts[1]
	} else {
		source, target = t.composeText(v.Get("source")), t.composeText(v.Get("target"))
	}
	if !path.IsAbs(target) {
		t.wrong(t.name, v.Line(), "write where it is mounted, as an absolute path", "a volume has the target %q", target)
	}
	if source == "" || strings.ContainsAny(source[:1], "./~") {
		return source, target
	}
	users := 0
	for _, service := range t.root.Get("services").Fields() {
		for _, other := range service.Get("volumes").Items() {
			if name, _, _ := strings.Cut(cmp.Or(other.Get("source").Text(), other.Text()), ":"); name == source {
				users++
			}
		}
	}
	if users > 1 {
		t.wrong(t.name, v.Line(), "services reach each other by ports alone", "the volume %q of several services is not supported", source)
	}
	return "", target
}

// ownService reads the service that is the task's own sandbox.
func (t composeReader) ownService(c *composed, own string, service document.Value) {
	c.env = t.serviceEnv(service, true)
	if build := service.Get("build"); build.Given() {
		c.context = t.composeContext(build)
	} else if image := service.Get("image"); image.Given() && !strings.Contains(image.Text(), "$") { // the format's own image is built
		c.image = t.composeText(image)
	}
	ready, unchecked := t.composeTest(service)
	c.lines, c.mounted = t.mounted(own, true, service.Get("volumes"))
	c.lines = append(c.lines, unchecked...)
	if v := service.Get("entrypoint"); v.Given() {
		t.wrong(t.name, v.Line(), "write it into the Dockerfile", "an entry point of the task's own service is not supported")
	}
	command := t.composeArgs(service.Get("command"))
	if idleCommand.MatchString(strings.Join(command, " ")) {
		command = nil
	}
	c.row = given(map[string]any{
		"user": t.composeText(service.Get("user")), "workdir": t.composeText(service.Get("working_dir")),
		"entrypoint": given(map[string]any{"command": command, "ready": ready}),
	})
}

// idleCommand matches commands that only keep a container alive, such as "sh -c sleep infinity".
var idleCommand = regexp.MustCompile(`^(\S*sh -l?c )?(exec )?(\S*/)?(sleep (infinity|inf|\d+)|tail -f /dev/null)$`)

// argLine matches an instruction that declares build arguments, and buildArg one of them and its default, such as "A", "A=1" and
// `A="1 2"`.
var (
	argLine  = regexp.MustCompile(`(?im)^[ \t]*ARG[ \t](?:\\\r?\n|.)*$`)
	buildArg = regexp.MustCompile(`(\s)(\w+)(?:=(?:"(?:\\.|[^"\\])*"|'[^']*'|\\\S|[^\s"'\\])*)?`)
)

// withArgs returns a Dockerfile in which the values of build arguments are the defaults.
func withArgs(dockerfile string, args map[string]string) string {
	return argLine.ReplaceAllStringFunc(dockerfile, func(line string) string {
		return buildArg.ReplaceAllStringFunc(line, func(word string) string {
			m := buildArg.FindStringSubmatch(word)
			if value, ok := args[m[2]]; ok {
				return m[1] + m[2] + `="` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, `$`, `\$`).Replace(value) + `"`
			}
			return word
		})
	})
}

// composeContext returns the files of a build context with its Dockerfile, which has the build's arguments.
func (t composeReader) composeContext(v document.Value) []taskFile {
	dir, dockerfile, args := t.composeText(v), "Dockerfile", map[string]string{}
	for key, value := range v.Fields() {
		switch key.Text() {
		case "context":
			dir = t.composeText(value)
		case "dockerfile":
			dockerfile = path.Clean(t.composeText(value))
		case "args":
			args = t.composeEnv(value, false)
		default:
			t.wrong(t.name, key.Line(), "context, dockerfile and args are read", "a build with %s is not supported", key.Text())
		}
	}
	at := path.Join(path.Dir(t.name), dir)
	const ignore = ".dockerignore" // may follow the Dockerfile's name
	files := slices.DeleteFunc(t.context(at), func(f taskFile) bool {
		return strings.TrimSuffix(f.path, ignore) == "Dockerfile" && dockerfile != "Dockerfile"
	})
	for i := range files {
		switch files[i].path {
		case dockerfile:
			files[i].path, files[i].text = "Dockerfile", []byte(withArgs(string(files[i].text), args))
		case dockerfile + ignore:
			files[i].path = "Dockerfile" + ignore
		}
	}
	if _, ok := find(files, "Dockerfile"); !ok {
		t.wrong(t.name, v.Line(), "write build.context and build.dockerfile", "%s holds no %s", at, dockerfile)
	}
	return files
}

// build returns the build context of the task's own image, which is named or in the directory at; nil if the task or the
// compose file names an image that exists.
func (c composed) build(t *task, named, at string) []taskFile {
	context, image := c.context, cmp.Or(named, c.image)
	if image != "" {
		context = nil
	} else if context == nil {
		t.text(path.Join(at, "Dockerfile")) // records a problem if it is missing
		context = t.context(at)
	}
	return extended(context, image, c.lines, c.mounted)
}

// addTo writes the sidecars to a row, and what their images are built from to the pack.
func (c composed) addTo(b *builder, t *task, row pack.Row) error {
	for i, files := range c.builds {
		if files == nil {
			continue
		}
		ref, err := b.buildContext(t, fmt.Sprint(c.sidecars[i]["name"]), files)
		if err != nil {
			return err
		}
		c.sidecars[i]["image"] = ref
	}
	if len(c.sidecars) > 0 { // one of them brings the names, for all
		c.sidecars[0]["aliases"] = append(aliasesOf(c.sidecars[0]), c.names...)
	}
	health, _ := row.Environment["entrypoint"].(map[string]any)
	own, _ := c.row["entrypoint"].(map[string]any)
	env, _ := row.Environment["env"].(map[string]string)
	// The task's own keys come first.
	maps.Copy(row.Environment, merged(c.row, row.Environment))
	if c.image != "" && c.lines == nil { // otherwise an image is built on it
		row.Environment["image"] = c.image
	}
	resources, _ := row.Environment["resources"].(map[string]any)
	maps.Copy(row.Environment, given(map[string]any{
		"resources": merged(resources, given(map[string]any{"shm": c.shm})),
		"sidecars":  c.sidecars, "entrypoint": merged(health, own), "env": merged(c.env, env),
	}))
	return nil
}
