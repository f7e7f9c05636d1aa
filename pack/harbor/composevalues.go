package harbor

// How the values of a compose file are read: variables of the host, environments and commands.

import (
	"cmp"
	"maps"
	"path"
	"regexp"
	"strings"

	"github.com/securebench/sbench/compiler/document"
)

// composeVariables are the variables that the formats' own harnesses set. Variables for paths and names on
// the host are left out: they have no meaning here.
var composeVariables = map[string]string{
	"T_BENCH_TEST_DIR": "/tests", "T_BENCH_CONTAINER_LOGS_PATH": "/logs", "T_BENCH_CONTAINER_AGENT_LOGS_PATH": "/logs/agent",
	"ENV_VERIFIER_LOGS_PATH": "/logs/verifier", "ENV_AGENT_LOGS_PATH": "/logs/agent", "ENV_ARTIFACTS_PATH": "/logs/artifacts",
	"CONTEXT_DIR": ".",
}

// interpolation matches a variable of the host in a compose file (compose-spec, 12-interpolation.md).
var interpolation = regexp.MustCompile(`\$(?:\$|\{([A-Za-z_]\w*)(?:(:?-)([^{}]*))?\}|([A-Za-z_]\w*)|)`)

// composeText returns a scalar as text, with variables of the host replaced by what the operator gives,
// or by their defaults. "$$" stands for "$".
func (t composeReader) composeText(v document.Value) string {
	text := v.Text()
	if k := v.Kind(); k == document.Number || k == document.Bool {
		text = string(v.Raw())
	}
	return t.interpolated(text, t.name, v.Line())
}

// interpolated returns the text of a line of a file, with the variables of the host replaced.
func (t composeReader) interpolated(text, file string, line int) string {
	return interpolation.ReplaceAllStringFunc(text, func(found string) string {
		m := interpolation.FindStringSubmatch(found)
		if found == "$$" {
			return "$"
		}
		variable := m[1] + m[4]
		value, given := t.env[variable]
		if own, ok := composeVariables[variable]; !given && ok {
			value, given = own, true
		}
		switch {
		case given:
			return value
		case m[2] != "":
			return m[3]
		}
		t.wrong(file, line, "give it with --env "+variable+"=VALUE", "%q has a variable of the host", text)
		return ""
	})
}

// serviceEnv returns the variables of a service. A variable of the service itself hides one of its files.
func (t composeReader) serviceEnv(service document.Value, own bool) map[string]string {
	env := map[string]string{}
	for _, v := range listed(service.Get("env_file")) {
		name := cmp.Or(t.composeText(v), t.composeText(v.Get("path")))
		if name == "" {
			continue
		}
		f, ok := t.file(path.Join(path.Dir(t.name), name))
		if maps.Copy(env, t.envFile(f)); !ok && string(v.Get("required").Raw()) != "false" {
			t.wrong(t.name, v.Line(), "write a path from the compose file", "env_file: %q is no file of the task", name)
		}
	}
	return merged(env, t.composeEnv(service.Get("environment"), own))
}

// envValue matches a value in a file of variables: in single or in double quotes, or up to a comment.
var envValue = regexp.MustCompile(`^(?:'([^']*)'|"((?:[^"\\]|\\.)*)"|(.*?)(?:\s+#.*)?$)`)

// envFile returns the variables of a file of the task: lines NAME=value, where the value may be quoted.
func (t composeReader) envFile(f taskFile) map[string]string {
	env, n := map[string]string{}, 0
	for line := range strings.Lines(strings.TrimPrefix(string(f.text), "\ufeff")) {
		n++
		line = strings.TrimPrefix(strings.TrimSpace(line), "export ")
		key, value, given := strings.Cut(line, "=")
		if key, value = strings.TrimSpace(key), strings.TrimSpace(value); !given || strings.HasPrefix(line, "#") {
			continue
		}
		quoted := envValue.FindStringSubmatch(value)
		if env[key] = quoted[1]; !strings.HasPrefix(value, "'") {
			env[key] = t.interpolated(quoted[2]+quoted[3], f.path, n)
		}
	}
	return env
}

// composeEnv returns variables, which are a mapping or a list of NAME=value. A variable without a value is left
// out of the task's own service if no file of the task names it.
func (t composeReader) composeEnv(v document.Value, own bool) map[string]string {
	env := map[string]string{}
	set := func(line int, key, value string, given bool) {
		if !given {
			value, given = t.env[key]
		}
		if !given && (!own || t.mentions(key)) {
			t.wrong(t.name, line, "give it with --env "+key+"=VALUE", "the variable %q comes from the host", key)
		}
		if given {
			env[key] = value
		}
	}
	for key, value := range v.Fields() {
		set(key.Line(), key.Text(), t.composeText(value), value.Kind() != document.Null)
	}
	for _, item := range v.Items() {
		key, value, given := strings.Cut(t.composeText(item), "=")
		set(item.Line(), key, value, given)
	}
	return env
}

// composeArgs returns a command, which is a list or a string of words; nil for none.
func (t composeReader) composeArgs(v document.Value) []string {
	var args []string
	for _, item := range v.Items() {
		args = append(args, t.composeText(item))
	}
	if v.Kind() != document.String {
		return args
	}
	text := t.composeText(v)
	if strings.TrimSpace(commandWord.ReplaceAllString(text, "")) != "" {
		t.wrong(t.name, v.Line(), "write it as a list", "the command %q has an open quote", text)
	}
	for _, word := range commandWord.FindAllString(text, -1) {
		word = commandQuote.ReplaceAllStringFunc(word, func(quoted string) string {
			m := commandQuote.FindStringSubmatch(quoted)
			return m[1] + m[2] + commandEscape.ReplaceAllString(m[3], "$1")
		})
		args = append(args, word)
	}
	return args
}

// commandWord matches a word of a command as a shell splits it, commandQuote what is quoted in a word, and commandEscape what
// is escaped in double quotes.
var (
	commandWord   = regexp.MustCompile(`(?s)(?:\\.|'[^']*'|"(?:\\.|[^"\\])*"|[^\s'"\\])+`)
	commandQuote  = regexp.MustCompile(`(?s)\\(.)|'([^']*)'|"((?:\\.|[^"\\])*)"`)
	commandEscape = regexp.MustCompile(`(?s)\\(.)`)
)

// composeTest returns the command of a service's health check as a list; nil for the image's own. If the service is to have
// no check, lines are the instructions of a Dockerfile that take the image's check away.
func (t composeReader) composeTest(service document.Value) (ready, lines []string) {
	check := service.Get("healthcheck")
	v := check.Get("test")
	none := []string{"HEALTHCHECK NONE"}
	if check.Get("disable").IsTrue() {
		return nil, none
	}
	if v.Kind() == document.String {
		return []string{"sh", "-c", t.composeText(v)}, nil
	}
	args := t.composeArgs(v)
	switch {
	case len(args) > 1 && args[0] == "CMD":
		return args[1:], nil
	case len(args) == 2 && args[0] == "CMD-SHELL":
		return []string{"sh", "-c", args[1]}, nil
	case len(args) > 0 && args[0] == "NONE":
		return nil, none
	case len(args) > 0:
		t.wrong(t.name, v.Line(), "begin it with CMD or CMD-SHELL", "the health check is no command")
	}
	return nil, nil
}
