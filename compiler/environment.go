package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/distribution/reference"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// defaultWorkdir is where the workspace is mounted unless the author says otherwise.
const defaultWorkdir = "/workspace"

// Environment describes the sandboxes of a task. All of it is public.
type Environment struct {
	Image string `key:"image" trim:"space"` // empty if the author gave none
	// Workdir is absolute. If the author gave none, it is defaultWorkdir or, for a machine with
	// MaterializeWorkdirFromImage, "" for the image's; see [Task.In].
	Workdir string `key:"workdir"`
	// Timeout is how long the harness may take; zero if the author gave none.
	Timeout time.Duration `key:"timeout_seconds"`
	// VerifyAfterTimeout has the candidate judged even if the harness ended badly, unless the
	// tester file decides.
	VerifyAfterTimeout bool `key:"verify_after_timeout"`
	// MaterializeWorkdirFromImage copies the image's workdir into the workspace
	// before the harness runs. It is for terminal_task only.
	MaterializeWorkdirFromImage bool `key:"materialize_workdir_from_image"`
	// Machine says that the candidate is every change to the image, not only to the workspace. It is for
	// terminal_task only.
	Machine bool `key:"candidate" is:"machine"`
	// Capabilities are the capabilities of processes in the task's sandboxes, named as in
	// capabilities(7) and sorted; nil for none.
	Capabilities []string
	// Isolation is the least isolation of the task's sandboxes from the host's kernel: container or
	// gvisor; "" leaves it to the tester.
	Isolation string `key:"isolation"`
	// Setup are shell commands that change the image before any harness runs in it.
	Setup []string `key:"setup"`
	// Entrypoint is the image's, run beside the harness and beside the checker; nil for none. It is
	// for terminal_task only.
	Entrypoint *Entrypoint `key:"entrypoint"`
	// Prepare has to succeed in the harness's sandbox before the harness starts; the zero Command for
	// none. It is for terminal_task only.
	Prepare Command `key:"prepare"`
	// KeepProcesses has the checker run while what the harness left running still runs, with the same loopback
	// interface. It is for terminal_task only.
	KeepProcesses bool `key:"keep_processes"`
	// Sidecars run beside the harness and beside the checker, which reach them by name on the
	// loopback interface. They are for terminal_task only.
	Sidecars []Sidecar `key:"sidecars"`
	// SecureBench says that the pack is one of SecureBench 2.0: a patch contains files that git ignores, and an
	// image may lack the working directory.
	SecureBench bool
	Resources   Resources         `key:"resources"`
	Env         map[string]string `key:"env"`
	// NetworkNone forbids egress whatever the tester allows.
	NetworkNone bool   `key:"network" is:"none"`
	User        string `key:"user" trim:"space"` // as in the OCI image configuration; empty if not given
}

// An Entrypoint is the entry point of an image.
type Entrypoint struct {
	Command Command       `key:"command"`         // follows it; the zero Command for one that only waits
	Ready   Command       `key:"ready"`           // succeeds as soon as what it starts can be used; the zero Command for none
	Timeout time.Duration `key:"timeout_seconds"` // until it is ready; zero if the author gave none
}

// Args returns the command line for an image with this entry point; nil if there is nothing to start.
func (e *Entrypoint) Args(entrypoint []string) []string {
	wait := []string{"sh", "-c", "sleep infinity"}
	switch {
	case e == nil || len(entrypoint) == 0 && e.Command.IsZero() && e.Ready.IsZero():
		return nil
	case e.Command.IsZero():
		return slices.Concat(entrypoint, wait)
	}
	return slices.Concat(entrypoint, e.Command.Args())
}

// A Sidecar is a service in a sandbox of its own.
type Sidecar struct {
	Name  string `key:"name"`
	Image string `key:"image" trim:"space"`
	// Entrypoint and Command replace the image's, as in Docker: an entry point of the task's
	// also replaces the image's command.
	Entrypoint Command           `key:"entrypoint"`
	Command    Command           `key:"command"`
	Env        map[string]string `key:"env"`
	Ready      Command           `key:"ready"`           // succeeds as soon as the service can be used; the zero Command for none
	Timeout    time.Duration     `key:"timeout_seconds"` // until it is ready; zero if the author gave none
}

// Resources are the limits of a sandbox. Where a field is zero, the limit of the
// tester file applies.
type Resources struct {
	Memory int64   `json:"memory,omitempty" key:"memory"` // bytes
	CPUs   float64 `json:"cpus,omitempty" key:"cpus"`     // cores
	Pids   int64   `json:"pids,omitempty" key:"pids"`     // processes and threads
	Disk   int64   `json:"disk,omitempty" key:"disk"`     // bytes of the workspace and of changes to the image, each
}

func environmentSchema() *schema.Schema {
	return &schema.Schema{
		Doc:    "What the task's sandboxes are made of. A row's keys replace the manifest's defaults; null removes a default.",
		Null:   true,
		Object: &schema.Object{Unknown: schema.Accept, Fields: environmentFields()}, // other keys are kept as metadata
	}
}

func environmentFields() []schema.Field {
	return []schema.Field{
		optional("image", schema.Nullable(imageSchema("The image of the harness's and the verifier's sandbox."))),
		optional("workdir", workdirSchema()),
		optional("timeout_seconds", secondsSchema("The time the harness has.")),
		optional("verify_after_timeout", schema.Nullable(schema.Boolean(
			"Judge what the harness left even if it did not end in time or ended badly; verification.after_timeout of the tester file decides first.", false))),
		optional("materialize_workdir_from_image", schema.Nullable(schema.Boolean(
			"terminal_task only: copy the image's workdir into the workspace before the harness runs. For a whole machine without a workdir, the image's working directory is taken (/app if that is the root).", false))),
		optional("candidate", schema.Nullable(schema.Enum(
			"terminal_task only: what the harness may change and the checker sees: workspace, the default, or machine, which is all of the image.", "workspace", "machine"))),
		optional("capabilities", capabilitiesSchema()),
		optional("isolation", schema.Nullable(schema.Enum("How the task's sandboxes are kept apart from the host's kernel: container, the default, or gvisor, a kernel of their own. The tester file may ask for more.", isolations()...))),
		optional("setup", schema.Nullable(schema.List("Shell commands of root (sh -c) that change the image before the harness runs, once for all attempts. They may reach runtime.setup_domains of the tester file.", schema.Text("A command.")))),
		optional("entrypoint", schema.Nullable(schema.Closed("terminal_task only: run the image's entry point beside the harness, and beside the checker.",
			optional("command", commandSchema("What follows the entry point in its place of the image's command, by default a command that only waits.")),
			optional("ready", commandSchema("A command that succeeds as soon as what the entry point starts can be used. It is tried again until then.")),
			optional("timeout_seconds", secondsSchema("How long that may take, by default a minute.")),
		))),
		optional("prepare", schema.Nullable(commandSchema("terminal_task only: a command that has to succeed in the harness's sandbox before the harness starts."))),
		optional("keep_processes", schema.Nullable(schema.Boolean(
			"terminal_task only: the checker runs while the processes that the harness left still run, and reaches their ports. Not with sidecars, steps, a checker with an image or network access, or a split.", false))),
		optional("sidecars", schema.Nullable(sidecarsSchema())),
		optional("resources", schema.Nullable(schema.Closed("Bounds on a sandbox.", append(resourceFields(),
			optional("disk", bytesSchema("Bytes of the workspace and of what is changed in the image, each, if that is more than the default of 2 GiB.", 1<<20)))...))),
		optional("env", envSchema()),
		optional("network", schema.Nullable(schema.Enum("\"none\" forbids egress whatever the tester allows.", "none"))),
		optional("user", schema.Nullable(schema.Text("The user in the sandbox: name, uid or uid:gid."))),
	}
}

// environmentKeys returns the keys that have a meaning.
var environmentKeys = sync.OnceValue(func() []string {
	var names []string
	for _, f := range environmentFields() {
		names = append(names, f.Name)
	}
	return names
})

func isolations() []string { return []string{"container", "gvisor"} }

// packagePowers in environment.capabilities stands for the capabilities that package managers need.
const packagePowers = "packages"

// capabilityNames are what environment.capabilities may list, without CAP_. They give power
// over nothing but the sandbox's own files and processes, if it has a user namespace of its
// own (user_namespaces(7)).
var capabilityNames = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"}

func capabilitiesSchema() *schema.Schema {
	s := schema.List("Capabilities in the task's sandboxes, which the tester file has to allow (runtime.allow_capabilities), or \""+packagePowers+"\" for those that package managers need.",
		schema.Enum("The name of a capability, without CAP_.", capabilityNames...))
	s.String = &schema.String{Pattern: "^" + packagePowers + "$"}
	s.Check = func(c *schema.Checker, v document.Value) {
		if v.Kind() == document.String && !v.Is(packagePowers) {
			c.Errorf(v, "\""+packagePowers+"\", or a list of "+strings.Join(capabilityNames, ", "), "%q names no capabilities", v.Text())
		}
	}
	return schema.Nullable(s)
}

func sidecarsSchema() *schema.Schema {
	s := schema.List("terminal_task only: services in sandboxes of their own, each with the task's resources, that share the loopback interface with the harness's and the checker's sandbox.",
		schema.Closed("A service.",
			required("name", schema.Matching("The name by which the other sandboxes reach it.", `^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`, "letters, digits and, between them, - and _")),
			required("image", imageSchema("The image of its sandbox.")),
			optional("entrypoint", commandSchema("The entry point of the service, by default the image's. It replaces the image's command, too.")),
			optional("command", commandSchema("The command of the service, which follows its entry point, by default the image's.")),
			optional("env", envSchema()),
			optional("ready", commandSchema("A command that succeeds in the service's sandbox as soon as it can be used. It is tried again until then.")),
			optional("timeout_seconds", secondsSchema("How long it may take until the service is ready, by default a minute.")),
		))
	s.Check = func(c *schema.Checker, v document.Value) {
		seen := map[string]bool{"localhost": true}
		for _, item := range v.Items() {
			name := item.Get("name")
			if seen[name.Text()] {
				c.Errorf(name, "", "the name %q is taken", name.Text())
			}
			seen[name.Text()] = true
		}
	}
	return s
}

// PackageCapabilities returns the capabilities for which "packages" stands in
// environment.capabilities.
func PackageCapabilities() []string { return prefixed(capabilityNames) }

func prefixed(names []string) []string {
	var all []string
	for _, name := range names {
		all = append(all, "CAP_"+name)
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func imageSchema(doc string) *schema.Schema {
	return schema.Checked(doc, schema.String{NonBlank: true}, func(text string) (string, error) {
		if _, err := reference.ParseDockerRef(strings.TrimSpace(text)); err != nil {
			return `such as "docker.io/library/python:3.12@sha256:" and 64 hexadecimal digits`, fmt.Errorf("%q names no image: %w", text, err)
		}
		return "", nil
	})
}

func workdirSchema() *schema.Schema {
	const doc, hint = "The working directory in the sandbox, an absolute path; also where the workspace is mounted.", `such as "/workspace"`
	return schema.Nullable(schema.Checked(doc, schema.String{NonEmpty: true, Pattern: `^/[^\\]*$`}, func(p string) (string, error) {
		switch {
		case path.Clean(p) == "/":
			return hint, errors.New("workdir is the root directory")
		case !isWorkdir(p):
			return hint, fmt.Errorf("workdir %q is no absolute path without %q and backslash", p, "..")
		case isTaken(path.Clean(p)):
			return hint, fmt.Errorf("workdir %q is taken by the sandbox itself", p)
		}
		return "", nil
	}))
}

func isWorkdir(p string) bool {
	return path.IsAbs(p) && !strings.ContainsFunc(p, isOdd) && !strings.Contains(p, `\`) &&
		!slices.Contains(strings.Split(p, "/"), "..") && len(p) <= maxPath
}

// isTaken reports whether every sandbox mounts the clean path dir or needs it unchanged.
func isTaken(dir string) bool {
	tops := []string{"/proc", "/sys", "/dev", CheckerMount, "/logs", "/opt/securebench", "/opt/sbench", "/sbench", "/.sbench"}
	return slices.Contains([]string{"/tmp", "/run", "/etc", "/opt"}, dir) ||
		slices.ContainsFunc(tops, func(top string) bool { return isBelow(dir, top) })
}

func resourceFields() []schema.Field {
	return []schema.Field{
		// The OCI runtime itself needs some memory.
		optional("memory", bytesSchema("Memory in bytes, or as \"512m\" or \"2GiB\"; at least 16 MiB. The default is 1 GiB.", 16<<20)),
		optional("cpus", schema.Nullable(boundedSchema(schema.Positive("Processor cores, from 0.01 to 4096; 1 by default."), 0.01, 4096))),
		// PID_MAX_LIMIT of the kernel
		optional("pids", schema.Nullable(boundedSchema(schema.PositiveInteger("The number of processes and threads, at most 4194304; 256 by default."), 1, 1<<22))),
	}
}

// boundedSchema adds bounds, both inclusive, to a schema of numbers.
func boundedSchema(s *schema.Schema, least, most float64) *schema.Schema {
	s.Check = func(c *schema.Checker, v document.Value) {
		if n, _ := v.Float64(); n < least || n > most {
			c.Errorf(v, "", "expected a number from %v to %.0f, found %s", least, most, v.Raw())
		}
	}
	return s
}

// bytesSchema allows a number of bytes, or a string with a unit.
func bytesSchema(doc string, least int64) *schema.Schema {
	return &schema.Schema{
		Doc:    doc,
		Null:   true,
		Number: &schema.Number{Integer: true, Min: new(1.0)},
		String: &schema.String{NonBlank: true, Pattern: `^\s*[0-9.]+\s*[A-Za-z]*\s*$`},
		Check: func(c *schema.Checker, v document.Value) {
			const most = 1 << 50 // the kernel treats values near 2^63 as no limit
			switch n := parseBytes(v); {
			case v.Kind() == document.String && n == 0:
				c.Errorf(v, `such as "512m" or "2GiB"`, "%q is no number of bytes", v.Text())
			case n < least:
				c.Errorf(v, "", "%d bytes are less than the least, %d", n, least)
			case n > most:
				c.Errorf(v, "at most 1024TiB", "%d bytes are more than any host has", n)
			}
		},
	}
}

// parseBytes reads a number of bytes. Units are powers of 1024, as in Docker and
// SecureBench 0.2: k, kb and kib, and the same for m, g and t. It returns 0 for
// anything else.
func parseBytes(v document.Value) int64 {
	if n, ok := v.Int64(); ok {
		return max(n, 0)
	}
	text := strings.ToLower(strings.TrimSpace(v.Text()))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(digits):])
	shift, ok := map[string]int{
		"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40,
	}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	n = math.Ldexp(n, shift)
	if !ok || err != nil || !(n >= 1) || n >= 1<<62 || strings.ContainsAny(digits, "+-e_xp") {
		return 0
	}
	return int64(n)
}

func envSchema() *schema.Schema {
	value := schema.AnyText("")
	value.Check = checkNoNUL
	s := schema.Map("Environment variables of the sandbox. They are public.", value)
	s.Object.Named, s.Object.Misnamed = isEnvName, "is no name of an environment variable"
	return schema.Nullable(s)
}

// Environ returns variables as "NAME=value", sorted.
func Environ(vars map[string]string) []string {
	list := make([]string, 0, len(vars))
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

func isEnvName(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

// withRow returns the environment of a row of a pack with the defaults e.
func (e Environment) withRow(v document.Value) Environment {
	e = e.with(v)
	if e.Workdir != "" || !e.MaterializeWorkdirFromImage || !e.Machine {
		e.Workdir = path.Clean(cmp.Or(e.Workdir, defaultWorkdir))
	}
	return e
}

// with returns a copy of e in which the keys of v replace the values of e. v is allowed by
// environmentSchema.
func (e Environment) with(v document.Value) Environment {
	if v.Get("resources").Kind() != 0 {
		e.Resources = Resources{}
	}
	decode(v, &e)
	switch names := v.Get("capabilities"); {
	case names.Is(packagePowers):
		e.Capabilities = PackageCapabilities()
	case names.Kind() != 0:
		e.Capabilities = prefixed(stringList(names))
	}
	return e
}

// clone returns a copy that shares no memory with e.
func (e Environment) clone() Environment {
	e.Env, e.Capabilities = maps.Clone(e.Env), slices.Clone(e.Capabilities)
	e.Setup, e.Sidecars = slices.Clone(e.Setup), slices.Clone(e.Sidecars)
	return e
}
