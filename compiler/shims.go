package compiler

import (
	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/compiler/schema"
)

// Names of package schema and paths that files of this package still use.

// ParsePath is paths.Parse.
func ParsePath(p string) (string, error) { return paths.Parse(p) }

const (
	EvaluatorRoot = paths.EvaluatorRoot
	CheckerMount  = paths.CheckerMount
)

func required(name string, s *schema.Schema) schema.Field { return schema.Required(name, s) }
func optional(name string, s *schema.Schema) schema.Field { return schema.Optional(name, s) }
func decode(v document.Value, target any)                 { schema.Decode(v, target) }
func commandSchema(doc string) *schema.Schema             { return schema.CommandLine(doc) }
func positiveSeconds(doc string) *schema.Schema           { return schema.Seconds(doc) }
func secondsSchema(doc string) *schema.Schema             { return schema.Nullable(schema.Seconds(doc)) }
func imageSchema(doc string) *schema.Schema               { return schema.Image(doc) }
func pathSchema(doc string) *schema.Schema                { return schema.Path(doc) }
func isBelow(p, root string) bool                         { return paths.IsBelow(p, root) }
func overlap(a, b string) bool                            { return paths.Overlap(a, b) }
func isWorkdir(p string) bool                             { return paths.IsWorkdir(p) }
func readYAML(name string) (*document.Document, Problems) { return document.ReadYAML(name) }

// FoldPath is paths.Fold.
func FoldPath(p string) string { return paths.Fold(p) }

// Bare is document.Bare.
func Bare(err error) error { return document.Bare(err) }

func workdirSchema() *schema.Schema {
	return schema.Nullable(workdirRule("The working directory in the sandbox, an absolute path; also where the workspace is mounted."))
}
