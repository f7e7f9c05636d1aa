package pack

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
)

// composed is what a compose file adds to a task.
type composed struct {
	env      map[string]string // of the task's own sandbox
	sidecars []map[string]any
	builds   []sidecarBuild
}

// sidecarBuild is an image to build for the sidecar at an index.
type sidecarBuild struct {
	sidecar int
	name    string
	files   []taskFile // the build context
}

// Keys of a service that have no meaning where all services share a loopback interface and end
// with the task, and those that the import reads.
var (
	composeIdle = []string{"container_name", "depends_on", "expose", "init", "labels", "logging", "networks", "platform", "ports", "pull_policy", "restart", "stdin_open", "stop_grace_period", "tty"}
	composeRead = []string{"build", "command", "entrypoint", "environment", "healthcheck", "image"}
)

// compose reads a compose file (compose-spec, 05-services.md). own is the service that is the
// task's own sandbox. Anything about another that sandboxes cannot do is a problem. compose-go is
// not used: it fills in the host's environment and files, and its services no longer have lines.
func (t *task) compose(name, own string) composed {
	var c composed
	if _, ok := t.file(name); !ok {
		return c
	}
	for key, service := range t.yaml(name).Get("services").Fields() {
		if key.Text() == own {
			c.env = t.composeEnv(name, service.Get("environment"))
			continue
		}
		for k := range service.Fields() {
			if !slices.Contains(composeIdle, k.Text()) && !slices.Contains(composeRead, k.Text()) {
				t.wrong(name, k.Line(), "", "the sidecar %s needs %s, which is not supported", key.Text(), k.Text())
			}
		}
		s := map[string]any{"name": key.Text()}
		if env := t.composeEnv(name, service.Get("environment")); len(env) > 0 {
			s["env"] = env
		}
		for _, k := range []string{"entrypoint", "command"} {
			if args := t.composeArgs(name, service.Get(k)); args != nil {
				s[k] = args
			}
		}
		if ready := t.composeTest(name, service.Get("healthcheck").Get("test")); ready != nil {
			s["ready"] = ready
		}
		if image := service.Get("image"); service.Get("build").Kind() == 0 {
			s["image"] = t.composeText(name, image)
			if s["image"] == "" {
				t.wrong(name, key.Line(), "", "the sidecar %s has neither image nor build", key.Text())
			}
		} else {
			c.builds = append(c.builds, sidecarBuild{len(c.sidecars), key.Text(), t.composeContext(name, service.Get("build"))})
		}
		c.sidecars = append(c.sidecars, s)
	}
	return c
}

// composeText returns a scalar as text. "$$" stands for "$", and anything else with "$" for a
// variable of the host (compose-spec, 12-interpolation.md).
func (t *task) composeText(name string, v document.Value) string {
	text := v.Text()
	if k := v.Kind(); k == document.Number || k == document.Bool {
		text = string(v.Raw())
	}
	if strings.Contains(strings.ReplaceAll(text, "$$", ""), "$") {
		t.wrong(name, v.Line(), "a pack has no variables of the host", "%q has a variable of the host, which is not supported", text)
	}
	return strings.ReplaceAll(text, "$$", "$")
}

// composeEnv returns variables, which are a mapping or a list of NAME=value.
func (t *task) composeEnv(name string, v document.Value) map[string]string {
	env := map[string]string{}
	set := func(line int, key, value string, given bool) {
		if !given {
			t.wrong(name, line, "a pack has no variables of the host", "the variable %s comes from the host, which is not supported", key)
		}
		env[key] = value
	}
	for key, value := range v.Fields() {
		set(key.Line(), key.Text(), t.composeText(name, value), value.Kind() != document.Null)
	}
	for _, item := range v.Items() {
		key, value, given := strings.Cut(t.composeText(name, item), "=")
		set(item.Line(), key, value, given)
	}
	return env
}

// composeArgs returns a command, which is a list or a string of words; nil for none.
func (t *task) composeArgs(name string, v document.Value) []string {
	var args []string
	for _, item := range v.Items() {
		args = append(args, t.composeText(name, item))
	}
	if v.Kind() != document.String {
		return args
	}
	text := t.composeText(name, v)
	if strings.ContainsAny(text, "'\"\\") {
		t.wrong(name, v.Line(), "write it as a list", "the command %q has quotes", text)
	}
	return strings.Fields(text)
}

// composeTest returns the command of a health check as a list; nil for none.
func (t *task) composeTest(name string, v document.Value) []string {
	if v.Kind() == document.String {
		return []string{"sh", "-c", t.composeText(name, v)}
	}
	args := t.composeArgs(name, v)
	switch {
	case len(args) > 1 && args[0] == "CMD":
		return args[1:]
	case len(args) == 2 && args[0] == "CMD-SHELL":
		return []string{"sh", "-c", args[1]}
	case len(args) > 0 && args[0] != "NONE":
		t.wrong(name, v.Line(), "", "the health check is no command: it begins with CMD or CMD-SHELL")
	}
	return nil
}

// composeContext returns the files of a build context with its Dockerfile.
func (t *task) composeContext(name string, v document.Value) []taskFile {
	dir, dockerfile := v.Text(), "Dockerfile"
	for key, value := range v.Fields() {
		switch key.Text() {
		case "context":
			dir = t.composeText(name, value)
		case "dockerfile":
			dockerfile = path.Clean(t.composeText(name, value))
		default:
			t.wrong(name, key.Line(), "", "a build with %s is not supported", key.Text())
		}
	}
	var files []taskFile
	at := path.Join(path.Dir(name), dir)
	for _, f := range t.files {
		rest, inside := strings.CutPrefix(f.path, at+"/")
		if at == "." {
			rest, inside = f.path, true
		}
		if inside && !isEvaluation(f.path) {
			if f.path = rest; rest == dockerfile {
				f.path = "Dockerfile"
			} else if rest == "Dockerfile" {
				continue
			}
			files = append(files, f)
		}
	}
	if !slices.ContainsFunc(files, func(f taskFile) bool { return f.path == "Dockerfile" }) {
		t.wrong(name, v.Line(), "", "%s holds no %s", at, dockerfile)
	}
	return files
}

// addTo writes the sidecars to a row, and what their images are built from to the pack.
func (c composed) addTo(b *Builder, t *task, row Row) error {
	for _, build := range c.builds {
		names := t.names()
		names["task"] += ".sidecar." + strings.ToLower(strings.Trim(build.name, "._-"))
		ref, err := b.buildContext(t, names, fmt.Sprintf("%s+%s", t.id, build.name), build.files)
		if err != nil {
			return err
		}
		c.sidecars[build.sidecar]["image"] = ref
	}
	if len(c.sidecars) > 0 {
		row.Environment["sidecars"] = c.sidecars
	}
	if len(c.env) > 0 {
		own, _ := row.Environment["env"].(map[string]string)
		maps.Copy(c.env, own)
		row.Environment["env"] = c.env
	}
	return nil
}
