package compiler

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/schema"
)

// commandSchema allows a shell line or an argument vector.
func commandSchema(doc string) *schema.Schema {
	return &schema.Schema{
		Doc:    doc + " A string is run by sh -c, an array is executed as it is.",
		String: &schema.String{NonBlank: true},
		Array:  &schema.Array{Items: schema.Text("An argument."), Min: 1},
		Check:  checkNoNUL,
	}
}

// checkNoNUL refuses strings with a NUL byte, which execve(2) cannot pass.
func checkNoNUL(c *schema.Checker, v document.Value) {
	what := "command"
	if v.Kind() == document.Array {
		what = "argument"
	}
	for _, item := range oneOrMore(v) {
		if strings.Contains(item.Text(), "\x00") {
			c.Errorf(item, "", "%s holds a NUL byte", what)
		}
	}
}

// secondsSchema allows a number of seconds above zero; null means absent.
func secondsSchema(doc string) *schema.Schema { return schema.Nullable(positiveSeconds(doc)) }

func positiveSeconds(doc string) *schema.Schema {
	s := schema.Positive(doc)
	s.Number.Seconds = true
	return s
}

// seconds returns a number of seconds as a duration: the longest one if the number is too
// large, and zero for anything but a number.
func seconds(v document.Value) time.Duration {
	n, ok := v.Float64()
	if !ok {
		return 0
	}
	if n >= math.MaxInt64/float64(time.Second) {
		return math.MaxInt64
	}
	return max(time.Duration(n*float64(time.Second)), 1)
}

// dangerousSchema allows a list of names of dangerous commands, which verifiers may use only
// with the tester file's permission.
func dangerousSchema(doc string) *schema.Schema {
	const hint = `the only one known is "chroot"`
	rule := schema.String{NonBlank: true, Pattern: `^\s*chroot\s*$`}
	return schema.Nullable(schema.List(doc, schema.Checked(`The only one known is "chroot".`, rule, func(text string) (string, error) {
		if name := strings.TrimSpace(text); name != "chroot" {
			return hint, fmt.Errorf("unknown dangerous command %q", name)
		}
		return "", nil
	})))
}

// dangerousList returns the names in a list of dangerous commands, each once.
func dangerousList(v document.Value) []string {
	if v.Len() == 0 {
		return nil
	}
	return []string{"chroot"} // the only name that the schema allows
}
