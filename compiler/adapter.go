package compiler

import (
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// AdapterFormat is the format of an adapter in a pack of SecureBench 2.0. An older one only has a command.
const AdapterFormat = "securebench.adapter/v2"

// An Adapter puts one challenge to the candidate: the driver of SecureBench 2.0.
type Adapter struct {
	Format   string   `key:"format"` // "" for the older one
	Protocol string   `key:"protocol"`
	Command  []string `key:"command"`
	// Challenge and Observation are the schemas of what it reads and writes; the zero Value for the older one.
	Challenge, Observation document.Value
	Outputs                []AdapterOutput `key:"output_artifacts"`
	Maximums               struct {
		Wall      time.Duration `key:"seconds_per_challenge"`
		Challenge int64         `key:"challenge_bytes"`
		Bytes     int64         `key:"observation_bytes"`
	} `key:"maximums"`
}

// AdapterOutput is a file or tree that an adapter leaves.
type AdapterOutput struct {
	Name   string         `key:"name"`
	Path   string         `key:"path"` // relative to the workdir
	Kind   string         `key:"kind"`
	Limits ArtifactLimits `key:"maximum_limits"`
}

// An Oracle is the oracle of a pack of SecureBench 2.0.
type Oracle struct {
	Command []string      `key:"command"`
	Timeout time.Duration `key:"timeout_seconds"` // of each answer
}

func argvSchema() *schema.Schema {
	return &schema.Schema{Array: &schema.Array{Items: schema.Text("An argument."), Min: 1, Max: 32}}
}

// readProgram reads the YAML file of an adapter or oracle below the eval root.
func (p *Pack) readProgram(dir, name string, rule func(document.Value) *schema.Schema) (document.Value, Problems) {
	file := filepath.Join(p.EvalRoot, dir, name)
	doc, problems := readYAML(file)
	if len(problems) > 0 {
		return document.Value{}, problems
	}
	c := schema.Checker{File: file}
	c.Check(rule(doc.Root()), doc.Root())
	return doc.Root(), c.Problems
}

// Oracle reads the oracle of a verification of this pack.
func (p *Pack) Oracle(v *Verification) (o Oracle, problems Problems) {
	root, problems := p.readProgram(v.Resources.Host[strings.TrimPrefix(v.Oracle, "host.")].Path, "oracle.yaml", func(document.Value) *schema.Schema {
		return schema.Closed("An oracle.", required("abi", schema.Enum("", "securebench.oracle/v1")), required("command", argvSchema()), required("timeout_seconds", positiveSeconds("")))
	})
	if len(problems) == 0 {
		decode(root, &o)
	}
	return o, problems
}

// Adapter reads the adapter of a protocol check, and compares the two.
func (p *Pack) Adapter(v *Verification, check VerificationCheck) (a Adapter, problems Problems) {
	dir := v.Resources.Runtime[strings.TrimPrefix(check.Adapter, "runtime.")].Path
	root, problems := p.readProgram(dir, "adapter.yaml", adapterSchema)
	if len(problems) > 0 {
		return a, problems
	}
	decode(root, &a)
	a.Challenge, a.Observation = root.Get("challenge_schema"), root.Get("observation_schema")
	wrong := func(format string, args ...any) {
		problems = append(problems, Problem{File: filepath.Join(p.EvalRoot, dir, "adapter.yaml"), Message: fmt.Sprintf(format, args...)})
	}
	if a.Protocol != check.Protocol {
		wrong("protocol is %q, and check %q requires %q", a.Protocol, check.ID, check.Protocol)
	}
	for _, helper := range root.Get("uses_trusted_helpers").Items() {
		wrong("sbench has no trusted helper %q", helper.Get("type").Text())
	}
	if m := a.Maximums; a.Format != "" && (check.Limits.Wall > m.Wall || check.Limits.Bytes > m.Bytes || check.Challenge.MaxBytes > m.Challenge) {
		wrong("the limits of check %q exceed the maximums", check.ID)
	}
	for _, want := range check.Outputs {
		i := slices.IndexFunc(a.Outputs, func(o AdapterOutput) bool { return o.Name == want.Name })
		if i < 0 {
			wrong("there is no output artifact %q, which check %q names", want.Name, check.ID)
		} else if most := a.Outputs[i].Limits; want.Limits.MaxBytes > most.MaxBytes || want.Limits.MaxFiles > most.MaxFiles || want.Limits.MaxTotalBytes > most.MaxTotalBytes {
			wrong("the limits of output artifact %q exceed its maximum_limits", want.Name)
		}
	}
	return a, problems
}

// adapterSchema returns the schema of an adapter's file: the older form has the key abi.
func adapterSchema(root document.Value) *schema.Schema {
	command := required("command", argvSchema())
	if root.Get("abi").Kind() != 0 {
		return schema.Closed("An adapter.", required("abi", schema.Enum("", "securebench.protocol-adapter/v1")), required("protocol", schema.Text("")), command)
	}
	count := schema.PositiveInteger
	return schema.Closed("An adapter.", required("format", schema.Enum("", AdapterFormat)), required("protocol", schema.Text("")), command,
		required("challenge_schema", dataSchema(1)), required("observation_schema", dataSchema(1)),
		required("evaluation_participants", schema.List("", schema.Closed("", required("name", schema.Text("")), required("type", schema.Enum("", "candidate")), required("instances", count(""))))),
		optional("uses_trusted_helpers", schema.List("", schema.Open(""))),
		optional("output_artifacts", schema.List("", schema.Closed("", required("name", identifierSchema("")), required("path", pathSchema("")), required("kind", schema.Enum("", RegularFile, DirectoryTree)), required("maximum_limits", artifactLimitsSchema())))),
		required("maximums", schema.Closed("", required("seconds_per_challenge", positiveSeconds("")), required("challenge_bytes", count("")), required("observation_bytes", count("")))))
}

// maxDataDepth bounds the depth of a schema of data.
const maxDataDepth = 16

// dataSchema is the schema of the schemas in an adapter's file.
func dataSchema(depth int) *schema.Schema {
	s := schema.Open("A schema of data.")
	s.Check = func(c *schema.Checker, v document.Value) {
		fields := map[string][]schema.Field{
			"object": {required("properties", schema.Open("")), optional("required", schema.List("", schema.AnyText(""))), optional("allow_extra_fields", schema.Boolean("", false)), optional("max_fields", schema.PositiveInteger(""))},
			"array":  {required("items", schema.Open("")), optional("max_items", schema.PositiveInteger(""))},
			"string": {optional("max_utf8_bytes", schema.PositiveInteger(""))}, "integer": {}, "number": {}, "boolean": {}, "null": {},
		}
		own, ok := fields[v.Get("type").Text()]
		switch {
		case !ok:
			c.Errorf(v, "", "a schema of data has a type: object, array, string, integer, number, boolean or null")
		case depth > maxDataDepth:
			c.Errorf(v, "", "the schema is deeper than %d", maxDataDepth)
		default:
			c.CheckObject(&schema.Object{Fields: append(own, required("type", schema.AnyText("")))}, v)
			if items := v.Get("items"); items.Kind() != 0 {
				c.Check(dataSchema(depth+1), items)
			}
			for _, property := range v.Get("properties").Fields() {
				c.Check(dataSchema(depth+1), property)
			}
		}
	}
	return s
}

// Args returns the command line of the adapter, with its own files below mount.
func (a Adapter) Args(mount string) []string {
	args := slices.Clone(a.Command)
	for i, arg := range args {
		if name, ok := strings.CutPrefix(arg, "./"); ok {
			args[i] = path.Join(mount, name)
		}
	}
	return args
}

// securebenchPrograms returns what is wrong with the oracle and the adapters of a task of SecureBench 2.0.
func (c *Precheck) securebenchPrograms(t *Task) (all Problems) {
	v := t.Verification()
	if v == nil {
		return nil
	}
	_, all = c.pack.Oracle(v)
	for _, check := range v.Checks {
		if check.Type == ProtocolCheck {
			_, problems := c.pack.Adapter(v, check)
			all = append(all, problems...)
		}
	}
	return all
}
