package document

import (
	// "Dependencies" in CONTRIBUTING.md says why not sigs.k8s.io/yaml.
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/securebench/sbench/workspace/foreign"
)

// Bounds on a YAML text and on what its aliases may expand to.
const (
	maxYAMLText  = 16 << 20 // bytes
	maxYAMLNodes = 200_000
	maxYAMLDepth = 100

	maxYAMLProblems = 100
)

// ParseYAML reads one YAML document as SecureBench 0.2 did, with the scalars of YAML 1.1
// (yes is a boolean, 0o17 a string), into values that JSON can express. It expands aliases
// and merge keys. An empty text is null. The returned problems have no File.
func (d *Document) ParseYAML(text []byte) Problems {
	d.text, d.nodes = nil, d.nodes[:0]
	root, problem := decodeYAML(text)
	if problem != nil {
		return Problems{*problem}
	}
	var b yamlBuilder
	b.value(root, 1)
	if problem := d.parse(b.text, 1); problem != nil {
		return Problems{*problem}
	}
	for i := range d.nodes {
		d.nodes[i].line = b.lines[i]
	}
	for i, at := range b.places {
		b.problems[i].Path = Value{d, at}.Path()
	}
	problems := append(b.problems, d.duplicates()...)
	if len(b.problems) > 0 {
		d.nodes = d.nodes[:0]
	}
	return problems
}

func decodeYAML(text []byte) (*yaml.Node, *Problem) {
	if len(text) > maxYAMLText {
		return nil, &Problem{Message: fmt.Sprintf("file has more than %d bytes", maxYAMLText)}
	}
	if problem := Encoded(bytes.NewReader(text)); problem != nil {
		return nil, problem
	}
	n := 0
	for line := range bytes.Lines(text) {
		if n++; !utf8.Valid(line) {
			return nil, &Problem{Line: n, Message: "invalid UTF-8", Hint: "save the file as UTF-8"}
		}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, second yaml.Node
	err := decoder.Decode(&root)
	if err == nil {
		if err = decoder.Decode(&second); err == nil {
			return nil, &Problem{Line: second.Line, Message: "second document", Hint: "a file holds one"}
		}
	}
	if !errors.Is(err, io.EOF) {
		m := yamlMessage.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(m[1])
		p := Problem{Line: line, Message: "invalid YAML: " + m[2], Hint: "here or above: a colon without a space after it, an open quote, or wrong indentation"}
		if at := tabNear(text, line); at > 0 {
			p.Line, p.Hint = at, "a tab: YAML is indented by spaces only"
		}
		return nil, &p
	}
	return &root, nil
}

// tabNear returns the line indented by a tab that is nearest to the given one, which may be
// off by one; 0 if there is none.
func tabNear(text []byte, line int) (at int) {
	n := 0
	for l := range bytes.Lines(text) {
		n++
		indent := l[:len(l)-len(bytes.TrimLeft(l, " \t-"))]
		if bytes.IndexByte(indent, '\t') >= 0 && n >= line-1 && n <= line+1 && (at == 0 || n == line) {
			at = n
		}
	}
	return at
}

// yamlMessage matches the errors of the YAML module, most of which name a line.
var yamlMessage = regexp.MustCompile(`^(?s:(?:yaml: )?(?:line (\d+): )?(.*))$`)

// yamlBuilder writes YAML nodes as JSON, with null for a value that JSON lacks.
type yamlBuilder struct {
	text     []byte
	lines    []int32 // of the values and keys, in order
	problems Problems
	places   []uint32 // of the problems, as indexes of values; the last may have none
	steps    int      // nodes visited; those behind an alias count at every visit
	stopped  bool
}

// step counts a visited node and reports whether the bounds allow going on.
func (b *yamlBuilder) step(line, depth int) bool {
	if b.stopped {
		return false
	}
	b.steps++
	if depth <= maxYAMLDepth && b.steps <= maxYAMLNodes && len(b.text) <= maxYAMLText && len(b.problems) < maxYAMLProblems {
		return true
	}
	b.stopped = true
	if len(b.problems) < maxYAMLProblems {
		b.problems = append(b.problems, Problem{
			Line: line, Message: "document is too deep or too big", Hint: "aliases may expand to very much",
		})
	}
	return false
}

// fail records what is wrong with the value that is written next.
func (b *yamlBuilder) fail(line int, hint, format string, args ...any) {
	b.problems = append(b.problems, Problem{Line: line, Message: fmt.Sprintf(format, args...), Hint: hint})
	b.places = append(b.places, uint32(len(b.lines)))
}

// write appends a key, a scalar or the opening bracket of a value, and records its line.
func (b *yamlBuilder) write(line int, text string) {
	b.lines = append(b.lines, int32(line))
	b.text = append(b.text, text...)
}

func quoted(s string) string { return string(AppendQuoted(nil, []byte(s))) }

func (b *yamlBuilder) value(n *yaml.Node, depth int) {
	if !b.step(n.Line, depth) {
		b.write(n.Line, "null")
		return
	}
	switch n.Kind {
	case yaml.DocumentNode:
		b.value(n.Content[0], depth)
	case yaml.AliasNode:
		b.value(n.Alias, depth+1)
	case yaml.SequenceNode:
		b.sequence(n, depth)
	case yaml.MappingNode:
		b.mapping(n, depth)
	case yaml.ScalarNode:
		b.scalar(n)
	default:
		b.write(max(n.Line, 1), "null")
	}
}

func (b *yamlBuilder) sequence(n *yaml.Node, depth int) {
	b.checkTag(n, "!!seq")
	b.write(n.Line, "[")
	for i, item := range n.Content {
		if i > 0 {
			b.text = append(b.text, ',')
		}
		b.value(item, depth+1)
	}
	b.text = append(b.text, ']')
}

// checkTag refuses an explicit tag other than own.
func (b *yamlBuilder) checkTag(n *yaml.Node, own string) {
	if n.Style&yaml.TaggedStyle != 0 && n.ShortTag() != own {
		b.fail(n.Line, "", "unsupported tag %q", n.Tag)
	}
}

func (b *yamlBuilder) mapping(n *yaml.Node, depth int) {
	b.checkTag(n, "!!map")
	pairs := b.pairs(n, depth)
	b.write(n.Line, "{")
	for i, p := range pairs {
		if i > 0 {
			b.text = append(b.text, ',')
		}
		b.write(p.line, quoted(p.key))
		b.text = append(b.text, ':')
		b.value(p.value, depth+1)
	}
	b.text = append(b.text, '}')
}

type yamlPair struct {
	key   string
	line  int
	value *yaml.Node
}

// pairs returns a mapping's own fields, then the fields that only its merge keys define.
func (b *yamlBuilder) pairs(n *yaml.Node, depth int) []yamlPair {
	var own, merged []yamlPair
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content) && b.step(n.Line, depth); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		if key.Kind == yaml.AliasNode && key.Alias != nil {
			key = key.Alias
		}
		if key.Kind == yaml.ScalarNode && key.Value == "<<" && isPlain(key) {
			merged = append(merged, b.merge(value, depth+1)...)
			continue
		}
		if name, ok := b.key(key); ok {
			seen[name] = true
			own = append(own, yamlPair{name, n.Content[i].Line, value})
		}
	}
	for _, p := range merged {
		if !seen[p.key] {
			seen[p.key] = true
			own = append(own, p)
		}
	}
	return own
}

// merge returns the fields that a merge key adds. Its value is a mapping or a list of mappings, in which an
// earlier mapping takes precedence.
func (b *yamlBuilder) merge(n *yaml.Node, depth int) []yamlPair {
	if !b.step(n.Line, depth) {
		return nil
	}
	switch n.Kind {
	case yaml.AliasNode:
		return b.merge(n.Alias, depth+1)
	case yaml.MappingNode:
		return b.pairs(n, depth)
	case yaml.SequenceNode:
		var all []yamlPair
		for _, item := range n.Content {
			all = append(all, b.merge(item, depth+1)...)
		}
		return all
	default:
		b.fail(n.Line, "<<: needs a mapping or a list of mappings", "merge key without a mapping")
		return nil
	}
}

func (b *yamlBuilder) key(n *yaml.Node) (string, bool) {
	if n.Kind != yaml.ScalarNode {
		b.fail(n.Line, "", "key is no string")
		return "", false
	}
	if kind, _, _ := resolve(n); kind != String {
		b.fail(n.Line, "put it in quotes", "key %q is no string in YAML 1.1 but %s", n.Value, kind)
		return "", false
	}
	return n.Value, true
}

func isPlain(n *yaml.Node) bool {
	const quoted = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle
	return n.Style&(quoted|yaml.TaggedStyle) == 0
}

func (b *yamlBuilder) scalar(n *yaml.Node) {
	kind, text, ok := resolve(n)
	switch {
	case !ok:
		b.fail(n.Line, "use a string, number, boolean or null", "unsupported value %q of tag %q", n.Value, n.Tag)
		text = "null"
	case kind == String:
		text = quoted(text)
	case kind == Number:
		var check Document
		if problems := check.ParseJSON([]byte(text), n.Line); len(problems) > 0 {
			b.fail(n.Line, "", "%s", problems[0].Message)
			text = "null"
		}
	}
	b.write(n.Line, text)
}

// resolve returns a scalar's kind and its JSON text (without the quotes of a string). ok is
// false for a tag without an equivalent in JSON, a value that does not match its tag, an
// infinity or NaN.
func resolve(n *yaml.Node) (kind Kind, text string, ok bool) {
	if n.Style&yaml.TaggedStyle != 0 {
		kind, text, ok = resolvePlain(n.Value)
		want, known := map[string]Kind{"!!str": String, "!!int": Number, "!!float": Number, "!!bool": Bool, "!!null": Null}[n.ShortTag()]
		if want == String {
			return String, n.Value, true
		}
		return want, text, known && ok && kind == want
	}
	if !isPlain(n) {
		return String, n.Value, true
	}
	return resolvePlain(n.Value)
}

// resolvePlain follows the implicit types of YAML 1.1 (https://yaml.org/type/) in the forms
// that PyYAML's safe loader accepts, since SecureBench 0.2 uses that. Dates stay strings.
func resolvePlain(s string) (kind Kind, text string, ok bool) {
	switch s {
	case "", "~", "null", "Null", "NULL":
		return Null, "null", true
	case "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON":
		return Bool, "true", true
	case "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF":
		return Bool, "false", true
	case ".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF", "-.inf", "-.Inf", "-.INF", ".nan", ".NaN", ".NAN":
		return Number, s, false
	}
	digits := strings.TrimLeft(s, "+-")
	clean := strings.ReplaceAll(digits, "_", "")
	sign := ""
	if s[0] == '-' {
		sign = "-"
	}
	switch {
	case len(digits) > maxNumber:
	case yamlInteger.MatchString(s):
		if n, ok := new(big.Int).SetString(sign+clean, 0); ok {
			return Number, n.String(), true
		}
	case yamlSexagesimal.MatchString(s):
		n := new(big.Int)
		for place := range strings.SplitSeq(clean, ":") {
			digit, _ := new(big.Int).SetString(place, 10)
			n.Add(n.Mul(n, big.NewInt(60)), digit)
		}
		return Number, sign + n.String(), true
	case yamlFloat.MatchString(s):
		whole, fraction, _ := strings.Cut(strings.ToLower(clean), ".")
		whole = strings.TrimLeft(whole, "0")
		if fraction == "" || fraction[0] == 'e' {
			fraction = "0" + fraction
		}
		return Number, sign + cmp.Or(whole, "0") + "." + fraction, true
	}
	return String, s, true
}

// The forms of numbers: 12, 1_000, 0x1f, 0b101, 017 (octal), 1:30 (base 60), and 1.5,
// 1_0.5, .5, 1. and 1.5e+3, where an exponent has a sign and follows a decimal point.
var (
	yamlInteger     = regexp.MustCompile(`^[-+]?(0x[0-9a-fA-F_]+|0b[01_]+|0[0-7_]*|[1-9][0-9_]*)$`)
	yamlSexagesimal = regexp.MustCompile(`^[-+]?[1-9][0-9_]*(:[0-5]?[0-9]){1,63}$`)
	yamlFloat       = regexp.MustCompile(`^([-+]?[0-9][0-9_]*\.[0-9_]*|\.[0-9][0-9_]*)([eE][-+][0-9]+)?$`)
)

// maxFile bounds a file in bytes.
const maxFile = 4 << 20

// ReadYAML reads a file, such as a manifest. The document is nil if the file is unreadable.
func ReadYAML(name string) (*Document, Problems) {
	text, err := foreign.ReadPath(name, maxFile)
	if err != nil {
		return nil, ProblemsOf(name, err)
	}
	doc := new(Document)
	return doc, doc.ParseYAML(text).In(name)
}
