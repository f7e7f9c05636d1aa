package document

import (
	"cmp"
	"math/big"
	"regexp"
	"strings"

	"go.yaml.in/yaml/v3"
)

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
