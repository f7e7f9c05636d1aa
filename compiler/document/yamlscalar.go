package document

import (
	"math/big"
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
		return
	case kind == String:
		text = quoted(text)
	case kind == Number:
		var check Document
		if problems := check.ParseJSON([]byte(text), n.Line); len(problems) > 0 {
			b.fail(n.Line, "", "%s", problems[0].Message)
			return
		}
	}
	b.write(n.Line, text)
}

// resolve returns a scalar's kind and its JSON text (for a string, without the
// quotes). It reports false for a tag without an equivalent in JSON, for a value that
// does not match its tag, and for infinities and NaN.
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

// resolvePlain follows the implicit types of YAML 1.1 (https://yaml.org/type/) in the
// forms that PyYAML's safe loader accepts, because SecureBench 0.2 reads with that
// loader. Dates stay strings.
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
	if !strings.ContainsRune("+-.0123456789", rune(s[0])) {
		return String, s, true
	}
	if text, ok := yamlInteger(s); ok {
		return Number, text, true
	}
	if text, ok := yamlFloat(s); ok {
		return Number, text, true
	}
	return String, s, true
}

// yamlInteger reads 12, 1_000, 0x1f, 0b101, 017 (octal) and 1:30 (base 60).
func yamlInteger(s string) (string, bool) {
	sign, digits := cutSign(s)
	if len(digits) > maxNumber || digits == "" || digits[0] == '_' {
		return "", false
	}
	clean := strings.ReplaceAll(digits, "_", "")
	base := 10
	switch {
	case strings.HasPrefix(digits, "0x"):
		base, clean = 16, clean[2:]
	case strings.HasPrefix(digits, "0b"):
		base, clean = 2, clean[2:]
	case digits[0] == '0' && len(digits) > 1:
		base = 8
	case strings.Contains(digits, ":"):
		return sexagesimal(sign, clean)
	}
	n, ok := new(big.Int).SetString(clean, base)
	if !ok || strings.ContainsAny(clean, "+-") {
		return "", false
	}
	if sign == "-" {
		n.Neg(n)
	}
	return n.String(), true
}

// sexagesimal reads an integer in base 60, of at most 64 places.
func sexagesimal(sign, s string) (string, bool) {
	places := strings.Split(s, ":")
	if len(places) > 64 {
		return "", false
	}
	n := new(big.Int)
	for i, place := range places {
		digit, ok := new(big.Int).SetString(place, 10)
		short := len(place) == 1 || len(place) == 2 && place[0] <= '5'
		if !ok || strings.ContainsAny(place, "+-") || i > 0 && !short {
			return "", false
		}
		n.Add(n.Mul(n, big.NewInt(60)), digit)
	}
	if sign == "-" {
		n.Neg(n)
	}
	return n.String(), true
}

// yamlFloat reads 1.5, 1_0.5, .5, 1. and 1.5e+3; an exponent must have a sign and
// follow a decimal point.
func yamlFloat(s string) (string, bool) {
	sign, rest := cutSign(s)
	whole, fraction, found := strings.Cut(rest, ".")
	if !found || len(s) > maxNumber {
		return "", false
	}
	exponent := ""
	if e := strings.IndexAny(fraction, "eE"); e >= 0 {
		fraction, exponent = fraction[:e], fraction[e+1:]
		if len(exponent) < 2 || exponent[0] != '+' && exponent[0] != '-' || !isDigits(exponent[1:], "") {
			return "", false
		}
		exponent = "e" + exponent
	}
	if whole == "" && (sign != "" || !isDigits(fraction, "_") || fraction[0] == '_') {
		return "", false
	}
	if whole != "" && (!isDigits(whole, "_") || whole[0] == '_') || fraction != "" && !isDigits(fraction, "_") {
		return "", false
	}
	if sign == "+" {
		sign = ""
	}
	whole = strings.TrimLeft(strings.ReplaceAll(whole, "_", ""), "0")
	fraction = strings.ReplaceAll(fraction, "_", "")
	return sign + orZero(whole) + "." + orZero(fraction) + exponent, true
}

func cutSign(s string) (sign, rest string) {
	if s[0] == '+' || s[0] == '-' {
		return s[:1], s[1:]
	}
	return "", s
}

func isDigits(s, more string) bool {
	return s != "" && strings.Trim(s, "0123456789"+more) == ""
}

func orZero(s string) string {
	if s == "" {
		return "0"
	}
	return s
}
