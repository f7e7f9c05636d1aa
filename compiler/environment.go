package compiler

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// defaultWorkdir is where the workspace is mounted unless the author says otherwise.
const defaultWorkdir = "/workspace"

// Environment describes the sandboxes of a task. All of it is public. Where the author gave no value, a field is zero.
type Environment struct {
	Image string `key:"image" trim:"space" rule:"null image" doc:"The image of the harness's and the verifier's sandbox."`
	// Workdir is absolute. If the author gave none, it is defaultWorkdir or, for a machine with
	// MaterializeWorkdirFromImage, "" for the image's; see [Task.In].
	Workdir            string        `key:"workdir" rule:"null workdir" doc:"The working directory in the sandbox, an absolute path; also where the workspace is mounted."`
	Timeout            time.Duration `key:"timeout_seconds" rule:"null" doc:"The time the harness has."`
	VerifyAfterTimeout bool          `key:"verify_after_timeout" rule:"null" doc:"Judge what the harness left even if it did not end in time or ended badly; verification.after_timeout of the tester file decides first."`

	MaterializeWorkdirFromImage bool `key:"materialize_workdir_from_image" rule:"null" doc:"terminal_task only: copy the image's workdir into the workspace before the harness runs. For a whole machine without a workdir, the image's working directory is taken (/app if that is the root)."`
	// Machine says that the candidate is every change to the image, not only to the workspace.
	Machine bool `key:"candidate" is:"machine" rule:"null" enum:"workspace,machine" doc:"terminal_task only: what the harness may change and the checker sees: workspace, the default, or machine, which is all of the image."`
	// Capabilities are the capabilities of processes in the task's sandboxes, named as in
	// capabilities(7) and sorted; nil for none.
	Capabilities  []string
	Isolation     string      `key:"isolation" rule:"null" enum:"container,gvisor" doc:"How the task's sandboxes are kept apart from the host's kernel: container, the default, or gvisor, a kernel of their own. The tester file may ask for more."`
	Setup         []string    `key:"setup" rule:"null" items:"A command." doc:"Shell commands of root (sh -c) that change the image before the harness runs, once for all attempts. They may reach runtime.setup_domains of the tester file."`
	Entrypoint    *Entrypoint `key:"entrypoint" rule:"null" doc:"terminal_task only: run the image's entry point beside the harness, and beside the checker."`
	Prepare       Command     `key:"prepare" rule:"null" doc:"terminal_task only: a command that has to succeed in the harness's sandbox before the harness starts."`
	Sidecars      []Sidecar   `key:"sidecars" rule:"null sidecars" items:"A service." doc:"terminal_task only: services in sandboxes of their own, each with the task's resources, that share the loopback interface with the harness's and the checker's sandbox."`
	KeepProcesses bool        `key:"keep_processes" rule:"null" doc:"terminal_task only: the checker runs while the processes that the harness left still run, and reaches their ports. Not with sidecars, steps, gVisor, a checker with an image or network access, or a split."`
	// SecureBench says that the pack is one of SecureBench 2.0: a patch contains files that git ignores, and an
	// image may lack the working directory.
	SecureBench bool
	Resources   Resources         `key:"resources" rule:"null resources" doc:"Bounds on a sandbox."`
	Env         map[string]string `key:"env" doc:"Environment variables of the sandbox. They are public."`
	NetworkNone bool              `key:"network" is:"none" rule:"null" enum:"none" doc:"\"none\" forbids egress whatever the tester allows."`
	User        string            `key:"user" trim:"space" rule:"null" doc:"The user in the sandbox: name, uid or uid:gid."`
}

// An Entrypoint is the entry point of an image.
type Entrypoint struct {
	Command Command       `key:"command" doc:"What follows the entry point in place of the image's command, by default a command that only waits."`
	Ready   Command       `key:"ready" doc:"A command that succeeds as soon as what the entry point starts can be used. It is tried again until then."`
	Timeout time.Duration `key:"timeout_seconds" rule:"null" doc:"How long that may take, by default a minute."`
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
	Name       string            `key:"name" rule:"required hostname" doc:"The name by which the other sandboxes reach it."`
	Image      string            `key:"image" trim:"space" rule:"required image" doc:"The image of its sandbox."`
	Entrypoint Command           `key:"entrypoint" doc:"The entry point of the service, by default the image's. It replaces the image's command, too."`
	Command    Command           `key:"command" doc:"The command of the service, which follows its entry point, by default the image's."`
	Env        map[string]string `key:"env" doc:"Environment variables of the sandbox. They are public."`
	Ready      Command           `key:"ready" doc:"A command that succeeds in the service's sandbox as soon as it can be used. It is tried again until then."`
	Timeout    time.Duration     `key:"timeout_seconds" rule:"null" doc:"How long it may take until the service is ready, by default a minute."`
}

// Resources are the limits of a sandbox. Where a field is zero, the limit of the
// tester file applies. For the first three see [schema.Resources].
type Resources struct {
	Memory int64   `json:"memory,omitempty" key:"memory"` // bytes
	CPUs   float64 `json:"cpus,omitempty" key:"cpus"`     // cores
	Pids   int64   `json:"pids,omitempty" key:"pids"`     // processes and threads
	Disk   int64   `json:"disk,omitempty" key:"disk" rule:"disk" doc:"Bytes of the workspace and of what is changed in the image, each, if that is more than the default of 2 GiB."`
}

func environmentSchema() *schema.Schema {
	return &schema.Schema{
		Doc:    "What the task's sandboxes are made of. A row's keys replace the manifest's defaults; null removes a default.",
		Null:   true,
		Object: &schema.Object{Unknown: schema.Accept, Fields: environmentFields()}, // other keys are kept as metadata
	}
}

func environmentFields() []schema.Field {
	fields := schema.Fields(Environment{}, rowRules())
	i := slices.IndexFunc(fields, func(f schema.Field) bool { return f.Name == "isolation" })
	return slices.Insert(fields, i, schema.Optional("capabilities", capabilitiesSchema()))
}

// rowRules returns the rules for the tags of Environment, Sidecar, Resources, Checker and Collect.
func rowRules() schema.Rules {
	return schema.Rules{
		"absolute": schema.As(machinePathSchema),
		"disk":     schema.As(func(doc string) *schema.Schema { return schema.Bytes(doc, 1<<20) }),
		"hostname": schema.As(func(doc string) *schema.Schema {
			return schema.Matching(doc, `^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`, "letters, digits and, between them, - and _")
		}),
		"image":     schema.As(schema.Image),
		"path":      schema.As(schema.Path),
		"resources": func(s *schema.Schema) { s.Object.Fields = append(schema.Resources(), s.Object.Fields...) },
		"sidecars":  func(s *schema.Schema) { s.Check = checkSidecars },
		"workdir":   schema.As(workdirSchema),
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

// checkSidecars checks that the services have different names.
func checkSidecars(c *schema.Checker, v document.Value) {
	seen := map[string]bool{"localhost": true}
	for _, item := range v.Items() {
		name := item.Get("name")
		if seen[name.Text()] {
			c.Errorf(name, "", "the name %q is taken", name.Text())
		}
		seen[name.Text()] = true
	}
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

func workdirSchema(doc string) *schema.Schema {
	const hint = `such as "/workspace"`
	return schema.Checked(doc, schema.String{NonEmpty: true, Pattern: `^/[^\\]*$`}, func(p string) (string, error) {
		switch {
		case path.Clean(p) == "/":
			return hint, errors.New("workdir is the root directory")
		case !paths.IsWorkdir(p):
			return hint, fmt.Errorf("workdir %q is no absolute path without %q and backslash", p, "..")
		case paths.IsTaken(path.Clean(p)):
			return hint, fmt.Errorf("workdir %q is taken by the sandbox itself", p)
		}
		return "", nil
	})
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
	schema.Decode(v, &e)
	switch names := v.Get("capabilities"); {
	case names.Is(packagePowers):
		e.Capabilities = PackageCapabilities()
	case names.Kind() != 0:
		e.Capabilities = prefixed(schema.Strings(names))
	}
	return e
}

// clone returns a copy that shares no memory with e.
func (e Environment) clone() Environment {
	e.Env, e.Capabilities = maps.Clone(e.Env), slices.Clone(e.Capabilities)
	e.Setup, e.Sidecars = slices.Clone(e.Setup), slices.Clone(e.Sidecars)
	return e
}
