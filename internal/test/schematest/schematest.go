// Package schematest compares JSON with JSON Schemas.
package schematest

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
)

// Misfit returns what of v, at path, a schema does not allow, or "". It knows the keywords that the schemas
// in docs/schemas use; an unknown keyword is wrong, too. Numbers of v and of the schema are json.Number.
func Misfit(s map[string]any, v any, path string) string {
	for keyword, rule := range s {
		if problem := checkKeyword(s, keyword, rule, v, path); problem != "" {
			return problem
		}
	}
	return ""
}

func checkKeyword(s map[string]any, keyword string, rule, v any, path string) string {
	text, isString := v.(string)
	number, isNumber := v.(json.Number)
	list, isList := v.([]any)
	object, isObject := v.(map[string]any)
	ok := true
	switch keyword {
	case "$schema", "title", "description", "default", "then":
	case "type":
		ok = hasType(rule, v)
	case "const":
		ok = reflect.DeepEqual(rule, v)
	case "enum":
		ok = false
		for _, allowed := range rule.([]any) {
			ok = ok || reflect.DeepEqual(allowed, v)
		}
	case "minLength":
		ok = !isString || len([]rune(text)) >= integer(rule)
	case "pattern":
		ok = !isString || regexp.MustCompile(rule.(string)).MatchString(text)
	case "minimum", "exclusiveMinimum":
		if isNumber {
			n, _ := number.Float64()
			bound, _ := rule.(json.Number).Float64()
			ok = n > bound || keyword == "minimum" && n == bound
		}
	case "minItems":
		ok = !isList || len(list) >= integer(rule)
	case "maxItems":
		ok = !isList || len(list) <= integer(rule)
	case "items":
		for _, item := range list {
			if problem := Misfit(rule.(map[string]any), item, path+"[]"); problem != "" {
				return problem
			}
		}
	case "required":
		for _, name := range rule.([]any) {
			_, has := object[name.(string)]
			ok = ok && (has || !isObject)
		}
	case "properties", "additionalProperties":
		return checkProperties(s, keyword, rule, object, path)
	case "if":
		if Misfit(rule.(map[string]any), v, path) == "" {
			return Misfit(s["then"].(map[string]any), v, path)
		}
	case "allOf":
		for _, part := range rule.([]any) {
			if problem := Misfit(part.(map[string]any), v, path); problem != "" {
				return problem
			}
		}
	default:
		return "unknown keyword " + keyword
	}
	if !ok {
		return path + ": " + keyword
	}
	return ""
}

func checkProperties(s map[string]any, keyword string, rule any, object map[string]any, path string) string {
	known, _ := s["properties"].(map[string]any)
	for name, value := range object {
		below, isKnown := known[name].(map[string]any)
		if keyword == "additionalProperties" {
			if isKnown {
				continue
			}
			if rule == false {
				return path + "." + name + ": additionalProperties"
			}
			below = rule.(map[string]any)
		} else if !isKnown {
			continue
		}
		if problem := Misfit(below, value, path+"."+name); problem != "" {
			return problem
		}
	}
	return ""
}

func hasType(rule, v any) bool {
	if list, ok := rule.([]any); ok {
		for _, one := range list {
			if hasType(one, v) {
				return true
			}
		}
		return false
	}
	switch v := v.(type) {
	case nil:
		return rule == "null"
	case bool:
		return rule == "boolean"
	case string:
		return rule == "string"
	case []any:
		return rule == "array"
	case map[string]any:
		return rule == "object"
	case json.Number:
		return rule == "number" || rule == "integer" && !strings.ContainsAny(string(v), ".eE")
	}
	return false
}

func integer(rule any) int {
	n, _ := rule.(json.Number).Int64()
	return int(n)
}
