package securebench

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/environment"
	"github.com/securebench/sbench/compiler/schema"
)

func identifierSchema(doc string) *schema.Schema {
	return schema.Matching(doc, `^[A-Za-z][A-Za-z0-9_.-]{0,127}$`, "up to 128 letters, digits and _ . -, a letter first")
}

// Manifest returns the schema of a manifest.
func Manifest() *schema.Schema {
	root := func(doc string) schema.Field { return schema.Optional(doc, schema.Path("A directory of the pack.")) }
	return schema.Closed("The manifest of a pack of SecureBench 2.0.",
		schema.Required("schema_version", schema.Enum("The version of the format.", Version)),
		schema.Required("id", &schema.Schema{String: &schema.String{NonEmpty: true}}),
		schema.Optional("resource_roots", schema.Closed("The directories of the pack that files come from.", root("public"), root("runtime"), root("host"))),
		schema.Optional("defaults", schema.Closed("What rows have that do not say otherwise.",
			schema.Optional("family", schema.Enum("", "terminal_task", "repo_patch")), schema.Optional("environment", environmentSchema()))),
		schema.Optional("asset_defaults", schema.Closed("", schema.Optional("read_only", readOnlySchema()))),
	)
}

func readOnlySchema() *schema.Schema {
	s := schema.Boolean("Whether assets are read-only: always.", true)
	s.Check = func(c *schema.Checker, v document.Value) {
		if !v.IsTrue() {
			c.Errorf(v, "remove the key", "writable assets are refused, as SecureBench 2.0 does")
		}
	}
	return s
}

func environmentSchema() *schema.Schema {
	network := schema.Closed("", schema.Required("mode", schema.Enum("", "none", "restricted", "internet")), schema.Optional("allowed_domains", schema.List("", schema.Text(""))))
	network.String = &schema.String{Enum: []string{"none", "restricted", "internet"}}
	network.Check = func(c *schema.Checker, v document.Value) {
		if domains := v.Get("allowed_domains"); domains.Kind() != 0 {
			c.Warnf(domains, "write them into harness.config.allowed_domains", "the tester file decides what agents reach")
		}
	}
	s := schema.Closed("", schema.Optional("image", schema.Image("")), schema.Optional("workdir", schema.Nullable(environment.Workdir(""))), schema.Optional("timeout_seconds", schema.Seconds("")), schema.Optional("agent_network", network))
	s.Check = environment.Warn
	return s
}

// Row returns the rule for what the rows have in common.
func Row() *schema.Object {
	return &schema.Object{Fields: []schema.Field{
		schema.Required("id", &schema.Schema{Doc: "The task's id, unique in the pack.", String: &schema.String{NonEmpty: true}}),
		schema.Optional("family", schema.Enum("", "terminal_task", "repo_patch")),
		schema.Required("input", schema.Open("What the agent sees.")),
		schema.Optional("assets", schema.List("", schema.Closed("A public file or directory.", schema.Required("path", schema.Path("")), schema.Required("mount", schema.Absolute("An absolute path.")), schema.Optional("read_only", readOnlySchema())))),
		schema.Optional("environment", environmentSchema()),
		schema.Optional("metadata", schema.Open("")),
		schema.Required("verification", schema.Open("How the candidate is judged.")),
	}}
}

// rules are what the words in the tags of this package mean.
func rules() schema.Rules {
	return schema.Rules{
		"argv": func(s *schema.Schema) { s.Array.Min, s.Array.Max = 1, 32 },
		"some": func(s *schema.Schema) { s.Array.Min = 1 },
		"id":   schema.As(identifierSchema),
		"ids": func(s *schema.Schema) {
			s.Object.Named, s.Object.Misnamed = func(name string) bool { return name != "" && !strings.ContainsAny(name, "/ ") }, "is no id"
		},
		"data":   func(s *schema.Schema) { *s = *dataSchema(maxDataDepth) },
		"limits": func(s *schema.Schema) { s.Check = checkLimits },
		"parser": func(s *schema.Schema) {
			s.Check = func(c *schema.Checker, v document.Value) {
				if !slices.Contains(Parsers(), strings.TrimPrefix(v.Text(), "securebench.")) {
					c.Errorf(v, "there are "+strings.Join(Parsers(), ", "), "unknown parser %q", v.Text())
				}
			}
		},
		"entries": func(s *schema.Schema) {
			s.Array.Items = variants("kind", "", s.Array.Items.Object.Fields, map[string]string{
				RegularFile: "id path max_bytes", DirectoryTree: "id path max_files max_total_bytes allow_internal_symlinks",
			})
		},
		"checks": func(s *schema.Schema) {
			s.Array.Items = variants("type", "", append(s.Array.Items.Object.Fields, helpers("trusted_helpers")), map[string]string{
				ArtifactCheck: "id artifacts", ProtocolCheck: "id adapter protocol trusted_helpers challenge output_artifacts limits",
			})
		},
	}
}

// checkLimits allows the limits of a file or of a tree.
func checkLimits(c *schema.Checker, v document.Value) {
	file, tree := v.Get("max_bytes").Kind() != 0, v.Get("max_files").Kind() != 0 && v.Get("max_total_bytes").Kind() != 0
	if file == tree || file && v.Len() > 1 {
		c.Errorf(v, "", "the limits of a file are max_bytes, and the limits of a tree are max_files and max_total_bytes")
	}
}

// helpers allows no trusted helpers under a key.
func helpers(key string) schema.Field {
	s := schema.List("", schema.Open(""))
	s.Check = func(c *schema.Checker, v document.Value) {
		for _, item := range v.Items() {
			c.Errorf(item, leaveOut, "sbench has no trusted helper %q", item.Get("type").Text())
		}
	}
	return schema.Optional(key, s)
}

// leaveOut is what to do about a row that sbench does not support.
const leaveOut = "leave the row out"

// variants returns the schema of an object with some of the fields: own has their keys by the value of one key, and hint
// is for a value that own has not.
func variants(key, hint string, fields []schema.Field, own map[string]string) *schema.Schema {
	values, s := slices.Sorted(maps.Keys(own)), schema.Open("")
	s.Check = func(c *schema.Checker, v document.Value) {
		keys, known := own[v.Get(key).Text()]
		object := schema.Object{Fields: []schema.Field{schema.Required(key, &schema.Schema{String: &schema.String{Enum: values, Hint: hint}})}}
		if !known {
			object.Unknown = schema.Accept
		}
		for _, f := range fields {
			if slices.Contains(strings.Fields(keys), f.Name) {
				object.Fields = append(object.Fields, f)
			}
		}
		c.CheckObject(&object, v)
	}
	return s
}

// Object returns the rule for the key verification. The candidate of a repo_patch is a patch, and the
// candidate of a terminal_task is a bundle. The format also has a filesystem_overlay, which no pack uses: it is refused.
func Object(patch bool) *schema.Object {
	kinds := map[string]string{Bundle: "max_total_files max_total_bytes files"}
	if patch {
		kinds = map[string]string{GitPatch: "max_patch_bytes max_changed_files max_changed_bytes allow_paths exclude_paths"}
	}
	all := rules()
	all["candidate"] = func(s *schema.Schema) { *s = *variants("type", leaveOut, s.Object.Fields, kinds) }
	return &schema.Object{Fields: append(schema.Fields(Verification{}, all), schema.Optional("execution_profile", &schema.Schema{String: &schema.String{Enum: []string{"strict-split/v1"}, Hint: leaveOut}}))}
}

// CheckVerification finds what the schema of a row's verification cannot express.
func CheckVerification(c *schema.Checker, eval document.Value, patch bool) {
	refer := func(v document.Value, kind string) {
		id, ok := strings.CutPrefix(v.Text(), kind+".")
		if !ok || eval.Get("resources").Get(kind).Get(id).Kind() == 0 {
			c.Errorf(v, fmt.Sprintf("write %q and the id of one of resources.%s", kind+".", kind), "no resource of the kind %s is called %q", kind, v.Text())
		}
	}
	refer(eval.Get("oracle"), "host")
	entries := checkEntries(c, eval.Get("candidate"))
	ids := map[string]bool{}
	for _, check := range eval.Get("checks").Items() {
		id := check.Get("id").Text()
		if ids[id] {
			c.Errorf(check.Get("id"), "", "two checks have the id %q", id)
		}
		if ids[id] = true; check.Get("type").Is(ProtocolCheck) {
			refer(check.Get("adapter"), "runtime")
			refer(check.Get("challenge").Get("source"), "host")
		}
		for _, a := range check.Get("artifacts").Items() {
			source, limits, parser := a.Get("source"), a.Get("limits"), a.Get("parser")
			entry, known := entries[source.Get("entry").Text()]
			tree := limits.Get("max_files").Kind() != 0
			switch {
			case patch && source.Get("path").Kind() == 0:
				c.Errorf(source, "", "key %q is missing", "path")
			case !patch && !known:
				c.Errorf(source, "", "the candidate has no entry %q", source.Get("entry").Text())
			case source.Get("subpath").Kind() != 0 && !entry.Get("kind").Is(DirectoryTree):
				c.Errorf(source, "", "only a directory_tree has a subpath")
			case !patch && tree != (entry.Get("kind").Is(DirectoryTree) && source.Get("subpath").Kind() == 0):
				c.Errorf(limits, "", "a file has the limits of a tree, or a tree has the limits of a file")
			case tree != ReadsTree(parser.Text()):
				c.Errorf(parser, "", "the parser %q reads no such artifact: a file instead of a tree, or a tree instead of a file", parser.Text())
			}
		}
	}
}

// checkEntries checks the entries of a bundle, and returns them by their ids.
func checkEntries(c *schema.Checker, candidate document.Value) map[string]document.Value {
	entries := map[string]document.Value{}
	var files, bytes int64
	for _, e := range candidate.Get("files").Items() {
		id := e.Get("id").Text()
		if entries[id].Kind() != 0 {
			c.Errorf(e, "", "two entries have the id %q", id)
		}
		entries[id] = e
		n, _ := e.Get("max_files").Int64()
		b, _ := cmp.Or(e.Get("max_total_bytes"), e.Get("max_bytes")).Int64()
		files, bytes = files+max(n, 1), bytes+b
	}
	mostFiles, _ := candidate.Get("max_total_files").Int64()
	mostBytes, _ := candidate.Get("max_total_bytes").Int64()
	if files > mostFiles || bytes > mostBytes {
		c.Errorf(candidate, "", "the bounds of the entries, %d files and %d bytes, exceed max_total_files or max_total_bytes", files, bytes)
	}
	return entries
}
