// Package environment says what the sandboxes of a task are made of: the keys environment of manifests and rows.
package environment

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"

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
	// MaterializeWorkdirFromImage, "" for the image's; see In.
	Workdir string `key:"workdir" rule:"null workdir" doc:"The working directory in the sandbox, an absolute path; also where the workspace is mounted."`
	// Cwd is where processes start if the workspace cannot be mounted there, and is at Workdir; "" for Workdir.
	Cwd                string
	Timeout            time.Duration `key:"timeout_seconds" rule:"null" doc:"The time the harness has."`
	VerifyAfterTimeout bool          `key:"verify_after_timeout" rule:"null" doc:"Judge what the harness left even if it did not end in time or ended badly; verification.after_timeout of the tester file decides first."`

	MaterializeWorkdirFromImage bool `key:"materialize_workdir_from_image" rule:"null" doc:"terminal_task only: copy the image's workdir into the workspace before the harness runs. For a whole machine without a workdir, the image's working directory is taken."`
	// Machine says that the candidate is every change to the image, not only to the workspace.
	Machine bool `key:"candidate" is:"machine" rule:"null" enum:"workspace,machine" doc:"terminal_task only: what the harness may change and the checker sees: workspace, the default, or machine, which is all of the image."`
	// Capabilities are the capabilities of processes in the task's sandboxes; nil for none.
	Capabilities  Capabilities   `key:"capabilities" rule:"null capabilities" doc:"Capabilities in the task's sandboxes, which the tester file has to allow (runtime.allow_capabilities), or \"packages\" for those that package managers need."`
	Isolation     string         `key:"isolation" rule:"null" enum:"container,gvisor" doc:"How the task's sandboxes are kept apart from the host's kernel: container, the default, or gvisor, a kernel of their own. The tester file may ask for more."`
	Setup         []string       `key:"setup" rule:"null" items:"A command." doc:"Shell commands of root (sh -c) that change the image before the harness runs, once for all attempts. They may reach runtime.setup_domains of the tester file."`
	Entrypoint    *Entrypoint    `key:"entrypoint" rule:"null" doc:"terminal_task only: run the image's entry point beside the harness, and beside the checker."`
	Prepare       schema.Command `key:"prepare" rule:"null" doc:"terminal_task only: a command that has to succeed in the harness's sandbox before the harness starts."`
	Sidecars      []Sidecar      `key:"sidecars" rule:"null sidecars" items:"A service." doc:"terminal_task only: services in sandboxes of their own, each with the task's resources, that share the loopback interface with the harness's and the checker's sandbox."`
	KeepProcesses bool           `key:"keep_processes" rule:"null" doc:"terminal_task only: the checker runs while the processes that the harness left still run, and reaches their ports. So do the sidecars. Not with steps, gVisor or a split."`
	// SecureBench says that the pack is one of SecureBench 2.0: a patch contains files that git ignores, and an
	// image may lack the working directory.
	SecureBench bool
	Resources   Resources         `key:"resources" rule:"null resources" doc:"Bounds on a sandbox."`
	Env         map[string]string `key:"env" doc:"Environment variables of the sandbox. They are public."`
	NetworkNone bool              `key:"network" is:"none" rule:"null" enum:"none" doc:"\"none\" forbids egress whatever the tester allows."`
	User        string            `key:"user" trim:"space" rule:"null" doc:"The user in the sandbox: name, uid or uid:gid."`
	HarnessUser string            `key:"harness_user" trim:"space" rule:"null" doc:"terminal_task only: the harness's user, by default user."`
}

// An Entrypoint is the entry point of an image.
type Entrypoint struct {
	Command schema.Command `key:"command" doc:"What follows the entry point in place of the image's command, by default a command that only waits."`
	Ready   schema.Command `key:"ready" doc:"A command that succeeds as soon as what the entry point starts can be used, by default the image's HEALTHCHECK. It is tried again until then."`
	Timeout time.Duration  `key:"timeout_seconds" rule:"null" doc:"How long that may take, by default a minute."`
}

// Of returns the command line for an image with this entry point, and the command that shows that it can be used: by default
// the image's health check. args is nil if there is nothing to start.
func (e *Entrypoint) Of(entrypoint, health []string) (args, ready []string) {
	if e == nil {
		return nil, nil
	}
	command := e.Command.Args()
	if ready = e.Ready.Args(); ready == nil {
		ready = health
	}
	if len(entrypoint)+len(command)+len(ready) == 0 {
		return nil, nil
	}
	if command == nil {
		command = []string{"sh", "-c", "sleep infinity"}
	}
	return slices.Concat(entrypoint, command), ready
}

// A Sidecar is a service in a sandbox of its own.
type Sidecar struct {
	Name       string            `key:"name" rule:"required hostname" doc:"The name by which the other sandboxes reach it."`
	Aliases    []string          `key:"aliases" rule:"hostname" items:"A name." doc:"Further names of 127.0.0.1 in all sandboxes of the task."`
	Image      string            `key:"image" trim:"space" rule:"required image" doc:"The image of its sandbox."`
	Entrypoint schema.Command    `key:"entrypoint" doc:"The entry point of the service, by default the image's. It replaces the image's command, too."`
	Command    schema.Command    `key:"command" doc:"The command of the service, which follows its entry point, by default the image's."`
	Env        map[string]string `key:"env" doc:"Environment variables of the sandbox. They are public."`
	Ready      schema.Command    `key:"ready" doc:"A command that succeeds in the service's sandbox as soon as it can be used, by default the image's HEALTHCHECK. It is tried again until then."`
	Timeout    time.Duration     `key:"timeout_seconds" rule:"null" doc:"How long it may take until the service is ready, by default a minute."`
}

// Names returns all names by which the other sandboxes reach the sidecar, its own first.
func (s Sidecar) Names() []string { return append([]string{s.Name}, s.Aliases...) }

// Resources are the limits of a sandbox. Where a field is zero, the limit of the
// tester file applies. For the first three see [schema.Resources].
type Resources struct {
	Memory int64   `json:"memory,omitempty" key:"memory"` // bytes
	CPUs   float64 `json:"cpus,omitempty" key:"cpus"`     // cores
	Pids   int64   `json:"pids,omitempty" key:"pids"`     // processes and threads
	Disk   int64   `json:"disk,omitempty" key:"disk" rule:"bytes" doc:"Bytes of the workspace and of what is changed in the image, each, if that is more than the default of 2 GiB."`
	Shm    int64   `json:"shm,omitempty" key:"shm" rule:"bytes" doc:"Bytes in /dev/shm, which count as memory, too; 64 MiB by default."`
}

// Schema returns what the key environment may hold.
func Schema() *schema.Schema {
	object := &schema.Object{Unknown: schema.Accept, Fields: fields()} // other keys are kept as metadata
	known := object.Names()
	return &schema.Schema{
		Doc:    "What the task's sandboxes are made of. A row's keys replace the manifest's defaults; null removes a default.",
		Null:   true,
		Object: object,
		Check: func(c *schema.Checker, v document.Value) {
			for key := range v.Fields() {
				if !slices.ContainsFunc(known, key.Is) {
					c.Warnf(key, cmp.Or(schema.Suggest(key.Text(), known), "sbench keeps it as metadata"), "environment key %q is unused", key.Text())
				}
			}
			Warn(c, v)
		},
	}
}

// Warn warns about an image that may change, and about variables that are probably secrets.
func Warn(c *schema.Checker, v document.Value) {
	if image := v.Get("image"); image.Kind() == document.String && !strings.Contains("@"+image.Text(), "@sha256:") && !isLocal(image.Text()) {
		c.Warnf(image, "a tag may mean another image tomorrow: add @sha256:…", "image %q has no digest", image.Text())
	}
	for key := range v.Get("env").Fields() {
		if schema.IsSecret(key.Text()) {
			c.Warnf(key, "a pack's environment variables are public", "%q looks like the name of a secret", key.Text())
		}
	}
}

// isLocal reports whether an image is built where it is used, and in no registry. Another
// build of it has another digest.
func isLocal(image string) bool {
	named, err := reference.ParseDockerRef(strings.TrimSpace(image))
	return err == nil && reference.Domain(named) == "sbench.local"
}

func fields() []schema.Field {
	return schema.Fields(Environment{}, schema.Rules{
		"capabilities": capabilitiesRule,
		"bytes":        schema.As(func(doc string) *schema.Schema { return schema.Bytes(doc, 1<<20) }),
		"hostname": schema.As(func(doc string) *schema.Schema {
			return schema.Matching(doc, `^[A-Za-z0-9]([A-Za-z0-9_-]{0,61}[A-Za-z0-9])?$`, "letters, digits and, between them, - and _")
		}),
		"resources": func(s *schema.Schema) { s.Object.Fields = append(schema.Resources(), s.Object.Fields...) },
		"sidecars":  func(s *schema.Schema) { s.Check = checkSidecars },
		"workdir":   schema.As(Workdir),
	})
}

// Capabilities are names of capabilities, as in capabilities(7), sorted.
type Capabilities []string

// Decode implements what schema.Decode looks for.
func (c *Capabilities) Decode(v document.Value) {
	if *c = prefixed(schema.Strings(v)); v.Is(packagePowers) {
		*c = PackageCapabilities()
	}
}

// packagePowers in environment.capabilities stands for the capabilities that package managers need.
const packagePowers = "packages"

// capabilityNames are what environment.capabilities may list, without CAP_. They give power
// over nothing but the sandbox's own files and processes, if it has a user namespace of its
// own (user_namespaces(7)).
var capabilityNames = []string{"CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "NET_BIND_SERVICE", "SETGID", "SETUID", "SYS_CHROOT"}

func capabilitiesRule(s *schema.Schema) {
	s.Array.Items = schema.Enum("The name of a capability, without CAP_.", capabilityNames...)
	s.String = &schema.String{Pattern: "^" + packagePowers + "$"}
	s.Check = func(c *schema.Checker, v document.Value) {
		if v.Kind() == document.String && !v.Is(packagePowers) {
			c.Errorf(v, "\""+packagePowers+"\", or a list of "+strings.Join(capabilityNames, ", "), "%q names no capabilities", v.Text())
		}
	}
}

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

// Workdir allows the working directories of a sandbox.
func Workdir(doc string) *schema.Schema {
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

// Harness returns the user of the harness; "" for the image's.
func (e Environment) Harness() string { return cmp.Or(e.HarnessUser, e.User) }

// Environ returns variables as "NAME=value", sorted.
func Environ(vars map[string]string) []string {
	list := make([]string, 0, len(vars))
	for name, value := range vars {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list
}

// WithRow returns the environment of a row of a pack with the defaults e.
func (e Environment) WithRow(v document.Value) Environment {
	e = e.With(v)
	if e.Workdir != "" || !e.MaterializeWorkdirFromImage || !e.Machine {
		e.Workdir = path.Clean(cmp.Or(e.Workdir, defaultWorkdir))
	}
	return e
}

// With returns a copy of e in which the keys of v replace the values of e. v is allowed by
// Schema.
func (e Environment) With(v document.Value) Environment {
	if v.Get("resources").Kind() != 0 {
		e.Resources = Resources{}
	}
	schema.Decode(v, &e)
	return e
}

// Clone returns a copy that shares no memory with e.
func (e Environment) Clone() Environment {
	e.Env, e.Capabilities = maps.Clone(e.Env), slices.Clone(e.Capabilities)
	e.Setup, e.Sidecars = slices.Clone(e.Setup), slices.Clone(e.Sidecars)
	return e
}

// Public returns the environment's values that are set, by the keys of a row.
func (e Environment) Public() map[string]any {
	values := map[string]any{
		"image": e.Image, "workdir": e.Workdir, "timeout_seconds": float64(e.Timeout) / float64(time.Second),
		"resources": e.Resources, "env": e.Env, "user": e.Harness(),
	}
	if e.NetworkNone {
		values["network"] = "none"
	}
	maps.DeleteFunc(values, func(_ string, v any) bool { return reflect.ValueOf(v).IsZero() })
	return values
}

// Dir returns where processes start.
func (e Environment) Dir() string { return cmp.Or(e.Cwd, e.Workdir) }

// InImage returns the environment in an image with this working directory, "" if the image has none. A task that names
// a working directory keeps it. Over the root and some other directories nothing can be mounted. There, processes start
// nevertheless, and the workspace is elsewhere: if the task has files with places in the workspace (files), this is an
// error.
func (e Environment) InImage(workdir string, files bool) (Environment, error) {
	dir := path.Clean("/" + workdir)
	switch {
	case e.Workdir != "":
	case !files && slices.Contains([]string{"/", "/etc", "/opt"}, dir):
		e.Workdir, e.Cwd = defaultWorkdir, dir
	case dir == "/" || !paths.IsWorkdir(dir) || paths.IsTaken(dir):
		return e, fmt.Errorf("the image's working directory %q cannot hold a workspace: set environment.workdir", dir)
	default:
		e.Workdir = dir
	}
	return e, nil
}
