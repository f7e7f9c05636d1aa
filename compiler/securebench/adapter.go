package securebench

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

// Format is the format of an adapter in a pack of SecureBench 2.0. An older one only has a command.
const Format = "securebench.adapter/v2"

// An Adapter puts one challenge to the candidate: the driver of SecureBench 2.0.
type Adapter struct {
	Format   string   `key:"format"` // "" for the older one
	Protocol string   `key:"protocol"`
	Command  []string `key:"command"`
	// Challenge and Observation are the schemas of what it reads and writes.
	Challenge, Observation DataSchema
	Outputs                []Output `key:"output_artifacts"`
	Maximums               struct {
		Wall      time.Duration `key:"seconds_per_challenge"`
		Challenge int64         `key:"challenge_bytes"`
		Bytes     int64         `key:"observation_bytes"`
	} `key:"maximums"`
}

// Output is a file or tree that an adapter leaves.
type Output struct {
	Name   string `key:"name"`
	Path   string `key:"path"` // relative to the workdir
	Kind   string `key:"kind"`
	Limits Limits `key:"maximum_limits"`
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

// An Oracle is the oracle of a pack of SecureBench 2.0.
type Oracle struct {
	Command []string      `key:"command"`
	Timeout time.Duration `key:"timeout_seconds"` // of each answer
}

func argvSchema() *schema.Schema {
	return &schema.Schema{Array: &schema.Array{Items: schema.Text("An argument."), Min: 1, Max: 32}}
}

// readProgram reads the YAML file of an adapter or oracle.
func readProgram(c *schema.Checker, file string, rule *schema.Schema) document.Value {
	c.File = file
	doc, problems := document.ReadYAML(file)
	if c.Problems = problems; len(problems) > 0 {
		return document.Value{}
	}
	c.Check(rule, doc.Root())
	return doc.Root()
}

// ReadOracle reads the oracle of a verification. dir is the directory of the pack.
func ReadOracle(dir string, v *Verification) (o Oracle, problems document.Problems) {
	var c schema.Checker
	rule := schema.Closed("An oracle.", schema.Required("abi", schema.Enum("", "securebench.oracle/v1")), schema.Required("command", argvSchema()), schema.Required("timeout_seconds", schema.Seconds("")))
	root := readProgram(&c, filepath.Join(dir, v.Resources.Host[strings.TrimPrefix(v.Oracle, "host.")].Path, "oracle.yaml"), rule)
	if len(c.Problems) == 0 {
		schema.Decode(root, &o)
	}
	return o, c.Problems
}

// ReadAdapter reads the adapter of a protocol check, and compares the two. dir is the directory of the pack.
func ReadAdapter(dir string, v *Verification, check Check) (a Adapter, problems document.Problems) {
	var c schema.Checker
	root := readProgram(&c, filepath.Join(dir, v.Resources.Runtime[strings.TrimPrefix(check.Adapter, "runtime.")].Path, "adapter.yaml"), adapterSchema())
	if len(c.Problems) > 0 {
		return a, c.Problems
	}
	schema.Decode(root, &a)
	wrong := func(format string, args ...any) { c.Errorf(root, "", format, args...) }
	if a.Protocol != check.Protocol {
		wrong("protocol is %q, and check %q requires %q", a.Protocol, check.ID, check.Protocol)
	}
	for _, helper := range root.Get("uses_trusted_helpers").Items() {
		wrong("sbench has no trusted helper %q", helper.Get("type").Text())
	}
	if a.Format != "" {
		a.Challenge = dataSchema(&c, root.Get("challenge_schema"), 1)
		a.Observation = dataSchema(&c, root.Get("observation_schema"), 1)
		if m := a.Maximums; check.Limits.Wall > m.Wall || check.Limits.Bytes > m.Bytes || check.Challenge.MaxBytes > m.Challenge {
			wrong("the limits of check %q exceed the maximums", check.ID)
		}
	}
	for _, want := range check.Outputs {
		i := slices.IndexFunc(a.Outputs, func(o Output) bool { return o.Name == want.Name })
		if i < 0 {
			wrong("there is no output artifact %q, which check %q names", want.Name, check.ID)
		} else if tree := a.Outputs[i].Kind == DirectoryTree; tree != (a.Outputs[i].Limits.MaxFiles > 0) || tree != (want.Limits.MaxFiles > 0) || tree != ReadsTree(want.Parser) {
			wrong("output artifact %q is a %s, and its limits, or its parser in check %q, are for something else", want.Name, a.Outputs[i].Kind, check.ID)
		} else if most := a.Outputs[i].Limits; want.Limits.MaxBytes > most.MaxBytes || want.Limits.MaxFiles > most.MaxFiles || want.Limits.MaxTotalBytes > most.MaxTotalBytes {
			wrong("the limits of output artifact %q exceed its maximum_limits", want.Name)
		}
	}
	return a, c.Problems
}

// adapterSchema returns the schema of an adapter's file: the older form has the key abi.
func adapterSchema() *schema.Schema {
	count := schema.PositiveInteger
	shared := []schema.Field{schema.Required("protocol", schema.Text("")), schema.Required("command", argvSchema())}
	older := schema.Closed("", append(shared, schema.Required("abi", schema.Enum("", "securebench.protocol-adapter/v1")))...)
	newer := schema.Closed("", append(shared, schema.Required("format", schema.Enum("", Format)),
		schema.Required("challenge_schema", schema.Open("")), schema.Required("observation_schema", schema.Open("")),
		schema.Required("evaluation_participants", schema.List("", schema.Closed("", schema.Required("name", schema.Text("")), schema.Required("type", schema.Enum("", "candidate")), schema.Required("instances", count(""))))),
		schema.Optional("uses_trusted_helpers", schema.List("", schema.Open(""))),
		schema.Optional("output_artifacts", schema.List("", schema.Closed("", schema.Required("name", identifierSchema("")), schema.Required("path", schema.Path("")), schema.Required("kind", schema.Enum("", RegularFile, DirectoryTree)), schema.Required("maximum_limits", artifactLimitsSchema())))),
		schema.Required("maximums", schema.Closed("", schema.Required("seconds_per_challenge", schema.Seconds("")), schema.Required("challenge_bytes", count("")), schema.Required("observation_bytes", count("")))))...)
	s := schema.Open("An adapter.")
	s.Check = func(c *schema.Checker, v document.Value) {
		if v.Get("abi").Kind() != 0 {
			c.Check(older, v)
		} else {
			c.Check(newer, v)
		}
	}
	return s
}

// A DataSchema says which data an adapter reads or writes. The zero DataSchema allows all.
type DataSchema struct{ rule *schema.Schema }

// Check reports where v does not conform. The error quotes nothing of v but the names that the schema knows.
func (s DataSchema) Check(v document.Value) error {
	var c schema.Checker
	if s.rule != nil && !c.Check(s.rule, v) {
		return fmt.Errorf("%s is not as its schema says", c.Problems[0].Path)
	}
	return nil
}

// maxDataDepth bounds the depth of a schema of data.
const maxDataDepth = 16

// dataSchema reads a schema in an adapter's file.
func dataSchema(c *schema.Checker, v document.Value, depth int) DataSchema {
	if depth > maxDataDepth {
		c.Errorf(v, "", "the schema is deeper than %d", maxDataDepth)
		return DataSchema{}
	}
	var rule schema.Schema
	var keys []schema.Field
	kind, most := v.Get("type").Text(), ""
	switch kind {
	case "object":
		rule.Object, most = &schema.Object{Unknown: schema.Accept}, "max_fields"
		keys = []schema.Field{schema.Required("properties", schema.Open("")), schema.Optional("required", schema.List("", schema.AnyText(""))), schema.Optional("allow_extra_fields", schema.Boolean("", false))}
	case "array":
		rule.Array, most = &schema.Array{}, "max_items"
		keys = []schema.Field{schema.Required("items", schema.Open(""))}
	case "string":
		rule.String, most = &schema.String{}, "max_utf8_bytes"
	case "integer", "number":
		rule.Number = &schema.Number{}
	case "boolean":
		rule.Boolean = true
	case "null":
		rule.Null = true
	default:
		c.Errorf(v, "", "a schema of data has a type: object, array, string, integer, number, boolean or null")
		return DataSchema{}
	}
	if most != "" {
		keys = append(keys, schema.Optional(most, schema.PositiveInteger("")))
	}
	if !c.CheckObject(&schema.Object{Fields: append(keys, schema.Required("type", schema.AnyText("")))}, v) {
		return DataSchema{}
	}
	if kind == "array" {
		rule.Array.Items = dataSchema(c, v.Get("items"), depth+1).rule
	}
	for key, property := range v.Get("properties").Fields() {
		rule.Object.Fields = append(rule.Object.Fields, schema.Optional(key.Text(), dataSchema(c, property, depth+1).rule))
	}
	limit, limited := v.Get(most).Int64()
	rule.Check = func(c *schema.Checker, data document.Value) {
		bad := limited && int64(max(data.Len(), len(data.Text()))) > limit || kind == "integer" && !data.IsInteger()
		for key := range data.Fields() {
			bad = bad || v.Get("properties").Get(key.Text()).Kind() == 0 && !v.Get("allow_extra_fields").IsTrue()
		}
		for _, name := range v.Get("required").Items() {
			bad = bad || data.Get(name.Text()).Kind() == 0
		}
		if bad {
			c.Errorf(data, "", "not as the schema says")
		}
	}
	return DataSchema{&rule}
}
