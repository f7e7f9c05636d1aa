package securebench

import (
	"cmp"
	"fmt"
	"math"
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
	Protocol string `key:"protocol" doc:"" rule:"required"`
	Command  argv   `key:"command" doc:"" rule:"required argv"`
	Format   string `key:"format"` // "" for the older one, which has no more keys
	// Challenge and Observation are the schemas of what it reads and writes.
	Challenge   DataSchema `key:"challenge_schema" doc:"" rule:"required data"`
	Observation DataSchema `key:"observation_schema" doc:"" rule:"required data"`
	Outputs     []Output   `key:"output_artifacts" doc:""`
	Maximums    struct {
		Wall      time.Duration `key:"seconds_per_challenge" doc:"" rule:"required"`
		Challenge int64         `key:"challenge_bytes" doc:"" rule:"required"`
		Bytes     int64         `key:"observation_bytes" doc:"" rule:"required"`
	} `key:"maximums" doc:"" rule:"required"`
}

// Output is a file or tree that an adapter leaves.
type Output struct {
	Name   string `key:"name" doc:"" rule:"required id"`
	Path   string `key:"path" doc:"" rule:"required path"` // relative to the workdir
	Kind   string `key:"kind" doc:"" rule:"required" enum:"regular_file,directory_tree"`
	Limits Limits `key:"maximum_limits" doc:"" rule:"required limits"`
}

type argv []string

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
	Command argv          `key:"command" doc:"" rule:"required argv"`
	Timeout time.Duration `key:"timeout_seconds" doc:"" rule:"required"` // of each answer
}

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
	rule := schema.Closed("An oracle.", append(schema.Fields(Oracle{}, rules()), schema.Required("abi", schema.Enum("", "securebench.oracle/v1")))...)
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
	if m := a.Maximums; a.Format != "" && (check.Limits.Wall > m.Wall || check.Limits.Bytes > m.Bytes || check.Challenge.MaxBytes > m.Challenge) {
		wrong("the limits of check %q exceed the maximums", check.ID)
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

func adapterSchema() *schema.Schema {
	instances := schema.PositiveInteger("")
	instances.Check = func(c *schema.Checker, v document.Value) {
		if n, _ := v.Int64(); n != 1 {
			c.Errorf(v, "", "expected 1, the only number of instances that there is, found %d", n)
		}
	}
	participant := schema.Closed("", schema.Required("name", schema.Text("")), schema.Required("type", schema.Enum("", "candidate")), schema.Required("instances", instances))
	newer := append(schema.Fields(Adapter{}, rules()), helpers("uses_trusted_helpers"), schema.Required("format", schema.Enum("", Format)),
		schema.Required("evaluation_participants", &schema.Schema{Array: &schema.Array{Min: 1, Max: 1, Items: participant}}))
	older := []schema.Field{newer[0], newer[1], schema.Required("abi", schema.Enum("", "securebench.protocol-adapter/v1"))}
	s := schema.Open("An adapter.")
	s.Check = func(c *schema.Checker, v document.Value) {
		fields := newer
		if v.Get("abi").Kind() != 0 {
			fields = older
		}
		c.CheckObject(&schema.Object{Fields: fields}, v)
	}
	return s
}

// A DataSchema says which data an adapter reads or writes. The zero DataSchema allows all.
type DataSchema struct {
	Type       string                `key:"type"` // object, array, string, integer, number, boolean or null
	Properties map[string]DataSchema `key:"properties"`
	Required   []string              `key:"required" doc:""`
	Extra      bool                  `key:"allow_extra_fields" doc:""`
	Items      *DataSchema           `key:"items"`
	MaxFields  int64                 `key:"max_fields" doc:""`
	MaxItems   int64                 `key:"max_items" doc:""`
	MaxBytes   int64                 `key:"max_utf8_bytes" doc:""`
}

// Check reports where v does not conform. The error quotes nothing of v but the names that the schema knows.
func (s DataSchema) Check(v document.Value) error {
	kind, most := s.Type, cmp.Or(s.MaxFields, s.MaxItems, s.MaxBytes, math.MaxInt64)
	if kind == "integer" {
		kind = "number"
	}
	bad := !strings.HasSuffix(v.Kind().String(), kind) || s.Type == "integer" && !v.IsInteger() || int64(max(v.Len(), len(v.Text()))) > most
	for _, name := range s.Required {
		bad = bad || v.Get(name).Kind() == 0
	}
	for key, value := range v.Fields() {
		property, known := s.Properties[key.Text()]
		if bad = bad || !known && !s.Extra && s.Type != ""; bad {
			break
		}
		if err := property.Check(value); err != nil {
			return err
		}
	}
	if bad {
		return fmt.Errorf("%s is not as its schema says", v.Path())
	}
	for _, item := range v.Items() {
		if s.Items == nil {
			break
		}
		if err := s.Items.Check(item); err != nil {
			return err
		}
	}
	return nil
}

// maxDataDepth bounds the depth of a DataSchema.
const maxDataDepth = 16

// dataSchema returns the schema of a DataSchema that is at most this deep.
func dataSchema(depth int) *schema.Schema {
	if depth == 0 {
		s := schema.Open("")
		s.Check = func(c *schema.Checker, v document.Value) {
			c.Errorf(v, "", "the schema is deeper than %d", maxDataDepth)
		}
		return s
	}
	below := dataSchema(depth - 1)
	fields := append(schema.Fields(DataSchema{}, nil), schema.Optional("properties", schema.Map("", below)), schema.Required("items", below))
	return variants("type", "", fields, map[string]string{
		"object": "properties required allow_extra_fields max_fields", "array": "items max_items", "string": "max_utf8_bytes", "integer": "", "number": "", "boolean": "", "null": "",
	})
}
