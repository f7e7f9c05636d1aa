package schema

import (
	"fmt"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/distribution/reference"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/compiler/paths"
	"github.com/securebench/sbench/proxy/domain"
)

// Required returns a field that objects must have.
func Required(name string, s *Schema) Field { return Field{Name: name, Required: true, Schema: s} }

// Optional returns a field that objects may have.
func Optional(name string, s *Schema) Field { return Field{Name: name, Schema: s} }

// Command is a command to execute. At most one of its fields is set; if neither is, there is
// no command.
type Command struct {
	Shell string   // a line for sh -c
	Argv  []string // executed as it is
}

// Args returns the argument vector to execute; nil if there is no command.
func (c Command) Args() []string {
	if c.Shell != "" {
		return []string{"sh", "-c", c.Shell}
	}
	return c.Argv
}

// IsZero reports whether there is no command.
func (c Command) IsZero() bool { return c.Shell == "" && len(c.Argv) == 0 }

// CommandLine allows a shell line or an argument vector: a Command.
func CommandLine(doc string) *Schema {
	return &Schema{
		Doc:    doc + " A string is run by sh -c, an array is executed as it is.",
		String: &String{NonBlank: true},
		Array:  &Array{Items: AnyText("An argument."), Min: 1},
		Check: func(c *Checker, v document.Value) {
			NoNUL(c, v)
			for i, item := range v.Items() {
				if i == 0 && strings.TrimSpace(item.Text()) == "" {
					c.Errorf(item, "", "the command names no program")
				}
			}
		},
	}
}

// NoNUL refuses strings with a NUL byte, which execve(2) cannot pass.
func NoNUL(c *Checker, v document.Value) {
	what := "command"
	if v.Kind() == document.Array {
		what = "argument"
	}
	for _, item := range OneOrMore(v) {
		if strings.Contains(item.Text(), "\x00") {
			c.Errorf(item, "", "%s holds a NUL byte", what)
		}
	}
}

// Seconds allows a number of seconds above zero: a time.Duration.
func Seconds(doc string) *Schema {
	s := positive(doc)
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

// Image allows the reference of an image.
func Image(doc string) *Schema {
	return Checked(doc, String{NonBlank: true}, func(text string) (string, error) {
		if _, err := reference.ParseDockerRef(strings.TrimSpace(text)); err != nil {
			return `such as "docker.io/library/python:3.12@sha256:" and 64 hexadecimal digits`, fmt.Errorf("%q names no image: %w", text, err)
		}
		return "", nil
	})
}

// Bytes allows a number of bytes, or a string with a unit.
func Bytes(doc string, least int64) *Schema {
	return &Schema{
		Doc:    doc,
		Null:   true,
		Number: &Number{Integer: true, Min: new(1.0)},
		String: &String{NonBlank: true, Pattern: `^\s*[0-9.]+\s*[A-Za-z]*\s*$`},
		Check: func(c *Checker, v document.Value) {
			const most = 1 << 50 // the kernel treats values near 2^63 as no limit
			switch n := parseBytes(v); {
			case v.Kind() == document.String && n == 0:
				c.Errorf(v, `such as "512m" or "2GiB"`, "%q is no number of bytes", v.Text())
			case n < least:
				c.Errorf(v, `such as "512m" or "2GiB"`, "%d bytes are less than the least, %d", n, least)
			case n > most:
				c.Errorf(v, "at most 1024TiB", "%d bytes are more than any host has", n)
			}
		},
	}
}

// parseBytes reads a number of bytes. Units are powers of 1024, as in Docker and
// SecureBench 0.2: k, kb and kib, and the same for m, g and t. It returns 0 for
// anything else.
func parseBytes(v document.Value) int64 {
	if n, ok := v.Int64(); ok {
		return max(n, 0)
	}
	text := strings.ToLower(strings.TrimSpace(v.Text()))
	digits := strings.TrimRight(text, "abcdefghijklmnopqrstuvwxyz ")
	unit := strings.TrimSpace(text[len(digits):])
	shift, ok := map[string]int{
		"": 0, "b": 0, "k": 10, "kb": 10, "kib": 10, "m": 20, "mb": 20, "mib": 20,
		"g": 30, "gb": 30, "gib": 30, "t": 40, "tb": 40, "tib": 40,
	}[unit]
	n, err := strconv.ParseFloat(digits, 64)
	n = math.Ldexp(n, shift)
	if !ok || err != nil || !(n >= 1) || n >= 1<<62 || strings.ContainsAny(digits, "+-e_xp") {
		return 0
	}
	return int64(n)
}

// variables allows environment variables by name; null means none.
func variables(doc string) *Schema {
	value := AnyText("")
	value.Check = NoNUL
	s := Map(doc, value)
	s.Object.Named, s.Object.Misnamed = IsEnvName, "is no name of an environment variable"
	return Nullable(s)
}

// IsEnvName reports whether an environment variable may have the name.
func IsEnvName(name string) bool { return name != "" && !strings.ContainsAny(name, "=\x00") }

// IsSecret reports whether a variable with this name probably holds a secret.
func IsSecret(name string) bool { return secretName.MatchString(strings.ToUpper(name)) }

// secretName matches names of variables, in capitals, that look like secrets.
var secretName = regexp.MustCompile(`SECRET|TOKEN|PASSWORD|PASSWD|CREDENTIAL|PRIVATE|API_KEY|APIKEY|ACCESS_KEY|AUTH_|OAUTH|_(KEY|PAT|AUTH)$|^KEY$`)

// OneOrMore returns the items of an array, or the value itself.
func OneOrMore(v document.Value) []document.Value {
	if v.Kind() != document.Array {
		return []document.Value{v}
	}
	var items []document.Value
	for _, item := range v.Items() {
		items = append(items, item)
	}
	return items
}

// Strings returns the strings of an array.
func Strings(v document.Value) []string {
	var list []string
	for _, item := range v.Items() {
		list = append(list, item.Text())
	}
	return slices.Clip(list)
}

// domains allows a list of DNS names; null means none.
func domains(doc string) *Schema {
	rule := String{NonBlank: true, Pattern: `^\s*[A-Za-z0-9.-]+\s*$`}
	name := Checked("A DNS name of two or more labels, without scheme, port, path or wildcard.", rule, func(name string) (string, error) {
		_, err := domain.Parse(name)
		return domain.Suggest(name), err
	})
	return Nullable(List(doc, name))
}

// Resources are the fields with the limits of a sandbox.
func Resources() []Field {
	return []Field{
		// The OCI runtime itself needs some memory.
		Optional("memory", Bytes("Memory in bytes, or as \"512m\" or \"2GiB\"; at least 16 MiB. The default is 1 GiB.", 16<<20)),
		Optional("cpus", &Schema{Doc: "Processor cores, from 0.01 to 4096; 1 by default.", Null: true, Number: &Number{Min: new(0.01), Max: new(4096.0)}}),
		Optional("pids", &Schema{
			Doc: "The number of processes and threads, at most 4194304; 256 by default.", Null: true,
			Number: &Number{Integer: true, Min: new(1.0), Max: new(float64(1 << 22))}, // PID_MAX_LIMIT of the kernel
		}),
	}
}

// Path allows relative paths that authors may choose.
func Path(doc string) *Schema {
	return pathThat(doc, func(string) error { return nil })
}

// Absolute allows absolute paths below the root directory.
func Absolute(doc string) *Schema {
	return Checked(doc, String{NonEmpty: true, Pattern: "^/"}, func(p string) (string, error) {
		if !paths.IsWorkdir(p) || path.Clean(p) != p || p == "/" {
			return `such as "/etc/profile"`, fmt.Errorf("%q is no clean absolute path below the root", p)
		}
		return "", nil
	})
}

// Mount allows relative paths in a workspace at which an agent may see something.
func Mount(doc string) *Schema { return pathThat(doc, paths.CheckPublic) }

func pathThat(doc string, check func(clean string) error) *Schema {
	return Checked(doc, String{NonEmpty: true, Pattern: `^[^/\\][^\\]*$`}, func(p string) (string, error) {
		clean, err := paths.Parse(p)
		if err == nil {
			err = check(clean)
		}
		return "", err
	})
}
