package compiler

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/patch"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// This file reads packs of SecureBench 2.0, whose tasks are judged in two places; see package verifiers/split.

// securebenchVersion is the schema_version of the manifests of SecureBench 2.0.
const securebenchVersion = "2.0"

// The kinds of candidates and checks.
const (
	Bundle        = "file_bundle"
	GitPatch      = "git_patch"
	ArtifactCheck = "artifact"
	ProtocolCheck = "protocol"
	RegularFile   = "regular_file"
	DirectoryTree = "directory_tree"
)

// Parsers returns the names of the parsers of artifacts; a pack may write each after "securebench.".
func Parsers() []string {
	return []string{"opaque-bytes/v1", "utf8-text/v1", "strict-json/v1", "strict-csv/v1", "ics/v1", "strict-npy-float-summary/v1", "tree-manifest/v1", "git-repository/v1"}
}

// ReadsTree reports whether the parser reads a directory, not a file.
func ReadsTree(parser string) bool {
	name := strings.TrimPrefix(parser, "securebench.")
	return name == "tree-manifest/v1" || name == "git-repository/v1"
}

// Verification says how a task of a pack of SecureBench 2.0 is judged. It prints as "<redacted>".
type Verification struct {
	redacted
	Candidate BundleOrPatch `key:"candidate"`
	Resources struct {
		Runtime map[string]MountedFile `key:"runtime"`
		Host    map[string]MountedFile `key:"host"`
	} `key:"resources"`
	Checks []VerificationCheck `key:"checks"`
	Oracle string              `key:"oracle"` // "host." and the id of a resource
}

// MountedFile is a file or directory of the pack.
type MountedFile struct {
	Path  string `key:"path"`  // relative to Pack.EvalRoot
	Mount string `key:"mount"` // absolute; "" for a host resource
}

// BundleOrPatch says what is taken of a candidate.
type BundleOrPatch struct {
	Type            string        `key:"type"` // Bundle or GitPatch
	MaxTotalFiles   int64         `key:"max_total_files"`
	MaxTotalBytes   int64         `key:"max_total_bytes"`
	Files           []BundleEntry `key:"files"`
	MaxPatchBytes   int64         `key:"max_patch_bytes"`
	MaxChangedFiles int64         `key:"max_changed_files"`
	MaxChangedBytes int64         `key:"max_changed_bytes"`
	AllowPaths      []string      `key:"allow_paths"` // empty means all
	ExcludePaths    []string      `key:"exclude_paths"`
}

// BundleEntry is a file or a tree of a bundle.
type BundleEntry struct {
	ID            string `key:"id"`
	Path          string `key:"path"` // absolute
	Kind          string `key:"kind"` // RegularFile or DirectoryTree
	MaxBytes      int64  `key:"max_bytes"`
	MaxFiles      int64  `key:"max_files"`
	MaxTotalBytes int64  `key:"max_total_bytes"`
	Links         bool   `key:"allow_internal_symlinks"`
}

// VerificationCheck is one check: of artifacts, which are read, or by a protocol, whose adapter asks the candidate.
type VerificationCheck struct {
	ID        string           `key:"id"`
	Type      string           `key:"type"` // ArtifactCheck or ProtocolCheck
	Artifacts []ParsedArtifact `key:"artifacts"`
	Adapter   string           `key:"adapter"` // "runtime." and the id of a resource
	Protocol  string           `key:"protocol"`
	Challenge struct {
		Source   string `key:"source"`
		MaxCases int    `key:"max_cases"`
		MaxBytes int64  `key:"max_case_bytes"`
	} `key:"challenge"`
	Outputs []ParsedArtifact `key:"output_artifacts"`
	Limits  struct {
		Wall  time.Duration `key:"seconds_per_case"`
		Bytes int64         `key:"observation_bytes_per_case"`
	} `key:"limits"`
}

// ParsedArtifact is a file or tree of the candidate, or of the adapter's output, and what reads it.
type ParsedArtifact struct {
	ID     string `key:"id"`
	Name   string `key:"name"` // of an output, in place of ID
	Source struct {
		Entry   string `key:"entry"`
		Subpath string `key:"subpath"`
		Path    string `key:"path"`
	} `key:"source"`
	Parser string         `key:"parser"`
	Limits ArtifactLimits `key:"limits"`
}

// ArtifactLimits bound an artifact.
type ArtifactLimits struct {
	MaxBytes      int64 `key:"max_bytes"`
	MaxFiles      int64 `key:"max_files"`
	MaxTotalBytes int64 `key:"max_total_bytes"`
}

// Within lowers each limit to the same limit of most. A limit of 0 becomes the limit of most.
func (l ArtifactLimits) Within(most ArtifactLimits) ArtifactLimits {
	least := func(limit, most int64) int64 { return min(cmp.Or(limit, most), most) }
	return ArtifactLimits{least(l.MaxBytes, most.MaxBytes), least(l.MaxFiles, most.MaxFiles), least(l.MaxTotalBytes, most.MaxTotalBytes)}
}

// Verification returns how the task is judged if its pack is one of SecureBench 2.0; nil otherwise.
func (t *Task) Verification() *Verification {
	if t.pack.roots == nil {
		return nil
	}
	v := new(Verification)
	schema.Decode(t.eval(), v)
	for id, f := range v.Resources.Runtime {
		v.Resources.Runtime[id] = MountedFile{path.Join(t.pack.roots["runtime"], f.Path), f.Mount}
	}
	for id, f := range v.Resources.Host {
		v.Resources.Host[id] = MountedFile{path.Join(t.pack.roots["host"], f.Path), ""}
	}
	return v
}

// Kept returns the part of a patch that counts, and the files that this part changes or adds, not those that it removes.
// The error says why the patch as a whole does not count.
func (b BundleOrPatch) Kept(text string) (kept string, changed []string, err error) {
	if strings.TrimSpace(text) == "" {
		return "", nil, nil
	}
	files, err := patch.Parse(text)
	if err != nil {
		return "", nil, fmt.Errorf("the patch cannot be read: %w", err)
	}
	excluded := slices.Concat(b.ExcludePaths, []string{".git", ".securebench", "securebench"})
	var all strings.Builder
	for _, f := range files {
		if !slices.ContainsFunc(f.Paths(), func(name string) bool { return !patch.Match(excluded, name) }) {
			continue
		}
		for _, name := range f.Paths() {
			if len(b.AllowPaths) > 0 && !patch.Match(b.AllowPaths, name) {
				return "", nil, fmt.Errorf("%q is not in allow_paths", name)
			}
		}
		all.WriteString(f.Text)
		changed = append(changed, f.New)
	}
	if int64(all.Len()) > b.MaxPatchBytes || int64(len(changed)) > b.MaxChangedFiles {
		return "", nil, fmt.Errorf("the patch has more than %d bytes or %d files", b.MaxPatchBytes, b.MaxChangedFiles)
	}
	return all.String(), slices.DeleteFunc(changed, func(name string) bool { return name == "" }), nil
}

func identifierSchema(doc string) *schema.Schema {
	return schema.Matching(doc, `^[A-Za-z][A-Za-z0-9_.-]{0,127}$`, "up to 128 letters, digits and _ . -, a letter first")
}

func securebenchManifest() *schema.Schema {
	root := func(doc string) schema.Field { return schema.Optional(doc, schema.Path("A directory of the pack.")) }
	return schema.Closed("The manifest of a pack of SecureBench 2.0.",
		schema.Required("schema_version", schema.Enum("The version of the format.", securebenchVersion)),
		schema.Required("id", &schema.Schema{String: &schema.String{NonEmpty: true}}),
		schema.Optional("resource_roots", schema.Closed("The directories of the pack that files come from.", root("public"), root("runtime"), root("host"))),
		schema.Optional("defaults", schema.Closed("What rows have that do not say otherwise.",
			schema.Optional("family", schema.Enum("", "terminal_task", "repo_patch")), schema.Optional("environment", securebenchEnvironment()))),
		schema.Optional("asset_defaults", schema.Closed("", schema.Optional("read_only", readOnlySchema()))),
	)
}

func readOnlySchema() *schema.Schema {
	s := schema.Boolean("Whether assets are read-only: always.", true)
	s.Check = func(c *schema.Checker, v document.Value) {
		if !v.IsTrue() {
			c.Errorf(v, "", "writable assets are refused, as SecureBench 2.0 does")
		}
	}
	return s
}

func securebenchEnvironment() *schema.Schema {
	network := schema.Closed("", schema.Required("mode", schema.Enum("", "none", "restricted", "internet")), schema.Optional("allowed_domains", schema.List("", schema.Text(""))))
	network.String = &schema.String{Enum: []string{"none", "restricted", "internet"}}
	return schema.Closed("", schema.Optional("image", schema.Image("")), schema.Optional("workdir", schema.Nullable(workdirSchema(""))), schema.Optional("timeout_seconds", schema.Seconds("")), schema.Optional("agent_network", network))
}

// securebenchRow returns the rule for what the rows have in common.
func securebenchRow() *schema.Object {
	return &schema.Object{Fields: []schema.Field{
		schema.Required("id", &schema.Schema{Doc: "The task's id, unique in the pack.", String: &schema.String{NonEmpty: true}}),
		schema.Optional("family", schema.Enum("", "terminal_task", "repo_patch")),
		schema.Required("input", schema.Open("What the agent sees.")),
		schema.Optional("assets", schema.List("", schema.Closed("A public file or directory.", schema.Required("path", schema.Path("")), schema.Required("mount", machinePathSchema("An absolute path.")), schema.Optional("read_only", readOnlySchema())))),
		schema.Optional("environment", securebenchEnvironment()),
		schema.Optional("metadata", schema.Open("")),
		schema.Required("verification", schema.Open("How the candidate is judged.")),
	}}
}

// securebenchFamilies returns the families of a pack with these resource roots.
func securebenchFamilies(roots map[string]string) []*Family {
	terminal, repo := TerminalTask(), RepoPatch()
	for _, f := range []*Family{terminal, repo} {
		f.section, f.Eval, f.Inputs, f.Checker, f.Rules = "verification", verificationObject(f.Name == "repo_patch"), nil, nil, nil
		f.Check = func(c *schema.Checker, _, eval document.Value) { checkVerification(c, eval, f.Name == "repo_patch") }
		f.files = func(eval document.Value) (all []resource) {
			for kind, root := range map[string]string{"runtime": roots["runtime"], "host": roots["host"]} {
				for key, v := range eval.Get("resources").Get(kind).Fields() {
					ref := FileRef{Name: kind + "." + key.Text(), Lane: HiddenLane, Path: path.Join(root, v.Get("path").Text()), ReadOnly: true}
					ref.Mount = path.Join(paths.EvaluatorRoot, ref.Path)
					if kind == "runtime" {
						ref.Lane, ref.Mount = EvaluationInputs, v.Get("mount").Text()
					}
					all = append(all, resource{Value: v, name: ref.Name, lane: ref.Lane, section: "split", file: &ref})
				}
			}
			slices.SortFunc(all, func(a, b resource) int { return strings.Compare(a.name, b.name) })
			return all
		}
	}
	return []*Family{terminal, repo}
}

// artifactLimitsSchema allows the limits of a file or of a tree.
func artifactLimitsSchema() *schema.Schema {
	count := schema.PositiveInteger("")
	s := schema.Closed("", schema.Optional("max_bytes", count), schema.Optional("max_files", count), schema.Optional("max_total_bytes", count))
	s.Check = func(c *schema.Checker, v document.Value) {
		file, tree := v.Get("max_bytes").Kind() != 0, v.Get("max_files").Kind() != 0 && v.Get("max_total_bytes").Kind() != 0
		if file == tree || file && v.Len() > 1 {
			c.Errorf(v, "", "the limits of a file are max_bytes, and the limits of a tree are max_files and max_total_bytes")
		}
	}
	return s
}

// variants returns the schema of an object with shared fields and more fields, which depend on the value of one key. own
// has these fields by that value.
func variants(key string, shared []schema.Field, own map[string][]schema.Field) *schema.Schema {
	names := slices.Sorted(maps.Keys(own))
	s := schema.Open("")
	s.Check = func(c *schema.Checker, v document.Value) {
		fields, known := own[v.Get(key).Text()]
		object := schema.Object{Fields: slices.Concat(shared, fields, []schema.Field{schema.Required(key, schema.Enum("", names...))})}
		if !known {
			object.Unknown = schema.Accept
		}
		c.CheckObject(&object, v)
	}
	return s
}

// verificationObject returns the rule for the key verification. The candidate of a repo_patch is a patch, and the
// candidate of a terminal_task is a bundle. The format also has a filesystem_overlay, which no pack uses: it is refused.
func verificationObject(patch bool) *schema.Object {
	text, id, count := schema.Text(""), schema.Required("id", identifierSchema("")), func(name string) schema.Field { return schema.Required(name, schema.PositiveInteger("")) }
	parser := schema.Required("parser", schema.Checked("What reads the artifact.", schema.String{NonEmpty: true}, func(name string) (string, error) {
		if !slices.Contains(Parsers(), strings.TrimPrefix(name, "securebench.")) {
			return "there are " + strings.Join(Parsers(), ", "), fmt.Errorf("unknown parser %q", name)
		}
		return "", nil
	}))
	limits := schema.Required("limits", artifactLimitsSchema())
	helpers := schema.List("", schema.Open(""))
	helpers.Check = func(c *schema.Checker, v document.Value) {
		for _, item := range v.Items() {
			c.Errorf(item, "leave the row out", "sbench has no trusted helper %q", item.Get("type").Text())
		}
	}
	files := func(fields ...schema.Field) *schema.Schema {
		s := schema.Map("", schema.Closed("", append(fields, schema.Required("path", schema.Path("")))...))
		s.Object.Named, s.Object.Misnamed = func(name string) bool { return name != "" && !strings.ContainsAny(name, "/ ") }, "is no id"
		return s
	}
	entry := variants("kind", []schema.Field{id, schema.Required("path", machinePathSchema("An absolute path."))}, map[string][]schema.Field{
		RegularFile:   {count("max_bytes")},
		DirectoryTree: {count("max_files"), count("max_total_bytes"), schema.Optional("allow_internal_symlinks", schema.Boolean("", false))},
	})
	candidate := variants("type", nil, map[string][]schema.Field{Bundle: {count("max_total_files"), count("max_total_bytes"), schema.Required("files", &schema.Schema{Array: &schema.Array{Min: 1, Items: entry}})}})
	if patch {
		candidate = variants("type", nil, map[string][]schema.Field{GitPatch: {
			count("max_patch_bytes"), count("max_changed_files"), count("max_changed_bytes"),
			schema.Optional("allow_paths", schema.List("", text)), schema.Optional("exclude_paths", schema.List("", text)),
		}})
	}
	source := schema.Closed("", schema.Optional("entry", id.Schema), schema.Optional("subpath", schema.Path("")), schema.Optional("path", schema.Path("")))
	check := variants("type", []schema.Field{id}, map[string][]schema.Field{
		ArtifactCheck: {schema.Required("artifacts", &schema.Schema{Array: &schema.Array{Min: 1, Items: schema.Closed("", id, parser, limits, schema.Required("source", source))}})},
		ProtocolCheck: {
			schema.Required("adapter", text), schema.Required("protocol", text), schema.Optional("trusted_helpers", helpers),
			schema.Required("challenge", schema.Closed("", schema.Required("source", text), count("max_cases"), count("max_case_bytes"))),
			schema.Optional("output_artifacts", schema.List("", schema.Closed("", schema.Required("name", id.Schema), parser, limits))),
			schema.Required("limits", schema.Closed("", schema.Required("seconds_per_case", schema.Seconds("")), count("observation_bytes_per_case"))),
		},
	})
	return &schema.Object{Fields: []schema.Field{
		schema.Optional("execution_profile", schema.Enum("", "strict-split/v1")), schema.Required("candidate", candidate),
		schema.Optional("resources", schema.Closed("", schema.Optional("runtime", files(schema.Required("mount", machinePathSchema("An absolute path.")))), schema.Optional("host", files()))),
		schema.Required("checks", &schema.Schema{Array: &schema.Array{Min: 1, Items: check}}), schema.Required("oracle", text),
	}}
}

// checkVerification finds what the schema of a row's verification cannot express.
func checkVerification(c *schema.Checker, eval document.Value, patch bool) {
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
			source, limits := a.Get("source"), a.Get("limits")
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
			case tree != ReadsTree(a.Get("parser").Text()):
				c.Errorf(a.Get("parser"), "", "the parser %q reads no such artifact: a file instead of a tree, or a tree instead of a file", a.Get("parser").Text())
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

// openSecureBench reads the manifest of a pack of SecureBench 2.0. EvalRoot is the directory of the pack: the roots
// runtime and host, which agents do not see, become prefixes of the paths below EvalRoot.
func (p *Pack) openSecureBench(c *schema.Checker, root document.Value) {
	p.ID, p.Version, p.readOnly = root.Get("id").Text(), 2, true
	p.roots = map[string]string{"public": "assets/", "runtime": "evaluation_inputs/", "host": "hidden/"}
	roots := root.Get("resource_roots")
	for key, v := range roots.Fields() {
		p.roots[key.Text()] = v.Text()
	}
	actual := map[string]string{} // with symbolic links resolved, if it exists
	for name, dir := range p.roots {
		p.roots[name], _ = paths.Parse(dir) // the schema's check has passed
		actual[name] = cmp.Or(p.checkRoot(c, roots, name, path.Join(p.dir, p.roots[name])), name)
	}
	for _, pair := range [][2]string{{"public", "runtime"}, {"public", "host"}, {"runtime", "host"}} {
		if paths.Overlap(paths.Fold(p.roots[pair[0]]), paths.Fold(p.roots[pair[1]])) || paths.Overlap(actual[pair[0]], actual[pair[1]]) {
			c.Errorf(roots, "agents would see hidden files", "the roots %q and %q overlap", pair[0], pair[1])
		}
	}
	p.families = securebenchFamilies(p.roots)
	p.publicRel, p.evalRel = p.roots["public"], "."
	p.PublicRoot, p.EvalRoot = path.Join(p.dir, p.publicRel), p.dir
	defaults := root.Get("defaults")
	p.defaultFamily = familyNamed(p.families, defaults.Get("family").Text())
	p.environment = Environment{}.with(defaults.Get("environment"))
}

// securebenchTask returns the environment of a row, and reports what it lacks or what collides.
func (r *rowReader) securebenchTask(root document.Value, f *Family) Environment {
	defaults := r.pack.manifest.Root().Get("defaults").Get("environment")
	own := root.Get("environment")
	for _, key := range []string{"image", "workdir", "timeout_seconds", "agent_network"} {
		if own.Get(key).Kind() == 0 && defaults.Get(key).Kind() == 0 {
			r.checker.Errorf(root, "in the row's environment or in the manifest's defaults", "environment has no %q", key)
		}
	}
	env := r.pack.environment.withRow(own)
	network := cmp.Or(own.Get("agent_network"), defaults.Get("agent_network"))
	env.NetworkNone = network.Is("none") || network.Get("mode").Is("none")
	env.MaterializeWorkdirFromImage, env.SecureBench = f.Name == "terminal_task", true
	var taken []document.Value
	reserved := path.Join(env.Workdir, path.Dir(paths.PublicRoot))
	place := func(v document.Value, candidate bool) {
		inside := v.Text() != env.Workdir && paths.IsBelow(v.Text(), env.Workdir)
		switch {
		case v.Kind() == 0: // which the schema reports
			return
		case candidate && !inside:
			r.checker.Errorf(v, "", "%q is not below the workdir %q", v.Text(), env.Workdir)
		case !candidate && (paths.IsBelow(env.Workdir, v.Text()) || inside && f.Name == "repo_patch"):
			r.checker.Errorf(v, "", "the mount %q overlaps the workdir %q", v.Text(), env.Workdir)
		case paths.Overlap(v.Text(), reserved):
			r.checker.Errorf(v, "", "%q overlaps %q, where sbench puts the task", v.Text(), reserved)
		}
		for _, other := range taken {
			if paths.Overlap(v.Text(), other.Text()) {
				r.checker.Errorf(v, "", "the mounts %q and %q overlap", v.Text(), other.Text())
			}
		}
		taken = append(taken, v)
	}
	for _, e := range root.Get("verification").Get("candidate").Get("files").Items() {
		place(e.Get("path"), true)
	}
	for _, a := range root.Get("assets").Items() {
		place(a.Get("mount"), false)
	}
	for _, v := range root.Get("verification").Get("resources").Get("runtime").Fields() {
		place(v.Get("mount"), false)
	}
	return env
}
