package document_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/compiler/document"
	"github.com/securebench/sbench/internal/test/corpus"
	"github.com/securebench/sbench/internal/test/must"
)

func parse(t testing.TB, text string) document.Value {
	t.Helper()
	var d document.Document
	if problems := d.ParseJSON([]byte(text), 1); len(problems) > 0 {
		t.Fatal(problems)
	}
	return d.Root()
}

func TestCanonical(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"keys by bytes", `{"b":1,"a":2,"B":3,"é":4,"\ud83d\ude00":5,"\uffff":6}`, `{"B":3,"a":2,"b":1,"é":4,"` + "\uffff" + `":6,"😀":5}`},
		{"white space", " [ 1 , {\t} , [ ] ]\r\n", `[1,{},[]]`},
		{"escapes", `"\u0041\/\u000a\u001f\u007f\u2028<>&\"\\"`, "\"A/\\n\\u001f\x7f\u2028<>&\\\"\\\\\""},
		{"words", `[true,false,null]`, `[true,false,null]`},
		{"integers", `[0,-0,12,-345,123456789012345678901234567890]`, `[0,0,12,-345,123456789012345678901234567890]`},
		{"one is not one point zero", `[1,1.0,1e0,10e-1]`, `[1,1e0,1e0,1e0]`},
		{"decimals", `[1.50,15E-1,0.015,-100.0,0.0,-0.0,5e-324,1.7976931348623157e+308]`, `[15e-1,15e-1,15e-3,-1e2,0e0,0e0,5e-324,17976931348623157e292]`},
		{"beyond float64", `[9007199254740993,0.1000000000000000055511151231257827]`, `[9007199254740993,1000000000000000055511151231257827e-34]`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			got := string(document.Canonical(parse(t, test.text)))
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Fatal(diff)
			}
			must.Equal(t, got, string(document.Canonical(parse(t, got)))) // numbers such as 15e-1 stay as they are
		})
	}
}

func TestIndented(t *testing.T) {
	got := string(document.Indented(parse(t, `{"b":[1.50,{}],"a":"x","c":[]}`)))
	want := "{\n  \"a\": \"x\",\n  \"b\": [\n    1.50,\n    {}\n  ],\n  \"c\": []\n}"
	must.Equal(t, want, got)
}

func TestValue(t *testing.T) {
	v := parse(t, "{\"s\":\"a\\u00e9b\",\n\"n\":[1,2.5,9223372036854775808],\"t\":true}")
	if got := v.Get("s"); got.Text() != "aéb" || !got.Is("aéb") || got.Is("a") || got.Line() != 1 {
		t.Errorf("string %q on line %d", got.Text(), got.Line())
	}
	if got := v.Get("n"); got.Line() != 2 || got.Len() != 3 {
		t.Errorf("array of %d on line %d", got.Len(), got.Line())
	}
	var ints []bool
	for _, item := range v.Get("n").Items() {
		_, ok := item.Int64()
		ints = append(ints, ok)
	}
	must.Equal(t, []bool{true, false, false}, ints)
	absent := v.Get("x").Get("y")
	if absent.Kind() != 0 || absent.Text() != "" || absent.Len() != 0 || absent.Line() != 0 || absent.IsTrue() {
		t.Error("absent value is not nothing")
	}
}

// TestYAMLScalars: plain scalars are read as PyYAML's safe loader reads them.
func TestYAMLScalars(t *testing.T) {
	tests := []struct{ yaml, want string }{
		{"yes", "true"}, {"Off", "false"}, {"y", `"y"`}, {"true", "true"}, {"TRUE", "true"}, {"tRue", `"tRue"`},
		{"~", "null"}, {"", "null"}, {"null", "null"}, {"nil", `"nil"`},
		{"0", "0"}, {"-7", "-7"}, {"+7", "7"}, {"1_000", "1000"}, {"0x1F", "31"}, {"-0x10", "-16"}, {"0b101", "5"}, {"017", "15"}, {"08", `"08"`}, {"0o17", `"0o17"`},
		{"1:30", "90"}, {"1:30:15", "5415"}, {"1:60", `"1:60"`}, {"8080:80", `"8080:80"`}, {"0:30", `"0:30"`},
		{"1.5", "1.5"}, {".5", "0.5"}, {"1.", "1.0"}, {"+1.5", "1.5"}, {"-01.50", "-1.50"}, {"1_0.5_0", "10.50"}, {"1.5e+3", "1.5e+3"},
		{"1e3", `"1e3"`}, {"1.5e3", `"1.5e3"`}, {"1e+3", `"1e+3"`}, {"-.5", `"-.5"`}, {".", `"."`}, {"-", "[null]"}, {"1.2.3", `"1.2.3"`},
		{"2024-01-01", `"2024-01-01"`}, {"'yes'", `"yes"`}, {`"1"`, `"1"`}, {"!!str 1", `"1"`}, {"!!int '1'", "1"}, {"|\n  a\n  b\n", `"a\nb\n"`},
		{"_1", `"_1"`}, {"1__0", "10"}, {"0x", `"0x"`}, {"0b2", `"0b2"`}, {"12345678901234567890123", "12345678901234567890123"},
	}
	for _, test := range tests {
		t.Run(test.yaml, func(t *testing.T) {
			var d document.Document
			if problems := d.ParseYAML([]byte(test.yaml)); len(problems) > 0 {
				t.Fatal(problems)
			}
			must.Equal(t, test.want, string(d.Root().Raw()))
		})
	}
}

func TestYAMLMerge(t *testing.T) {
	text := "base: &b {x: 1, y: 2}\nother: &o {y: 3, z: 4}\nall:\n  y: 9\n  <<: [*b, *o]\ncopy: *b\n"
	var d document.Document
	if problems := d.ParseYAML([]byte(text)); len(problems) > 0 {
		t.Fatal(problems)
	}
	must.Equal(t, `{"x":1,"y":9,"z":4}`, string(document.Canonical(d.Root().Get("all"))))
	must.Equal(t, `{"x":1,"y":2}`, string(d.Root().Get("copy").Raw()))
}

// plain returns a value as encoding/json decodes it, by way of the nodes.
func plain(v document.Value) any {
	switch v.Kind() {
	case document.Bool:
		return v.IsTrue()
	case document.Number:
		return json.Number(v.Raw())
	case document.String:
		return v.Text()
	case document.Array:
		items := []any{}
		for _, item := range v.Items() {
			items = append(items, plain(item))
		}
		return items
	case document.Object:
		fields := map[string]any{}
		for key, value := range v.Fields() {
			fields[key.Text()] = plain(value)
		}
		return fields
	}
	return nil
}

func FuzzJSON(f *testing.F) {
	corpus.Seed[[]byte](f)
	for _, seed := range []string{`{"a":[1,2.5e3,"x\u00e9",null,true],"b":{}}`, `"\ud83d\ude00"`, `[[]]`, `{"a":1,"a":2}`, "-0.0", `{"":""}`, "\"\x80\"", "1e400"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d document.Document
		problems := d.ParseJSON(bytes.Clone(text), 1)
		var want any
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.UseNumber()
		err := decoder.Decode(&want)
		if len(problems) > 0 {
			return // being stricter than encoding/json is the point
		}
		if err != nil || decoder.More() {
			t.Fatalf("accepted what encoding/json refuses: %v", err)
		}
		if diff := cmp.Diff(want, plain(d.Root())); diff != "" {
			t.Fatal(diff)
		}
		canonical := document.Canonical(d.Root())
		var again document.Document
		if problems := again.ParseJSON(canonical, 1); len(problems) > 0 {
			t.Fatalf("canonical form %s: %v", canonical, problems)
		}
		if twice := document.Canonical(again.Root()); !bytes.Equal(twice, canonical) {
			t.Fatalf("canonical form %s of canonical form %s", twice, canonical)
		}
		indented := document.Indented(d.Root())
		if problems := again.ParseJSON(indented, 1); len(problems) > 0 || !bytes.Equal(document.Canonical(again.Root()), canonical) {
			t.Fatalf("indented form %s: %v", indented, problems)
		}
		if clone := d.Clone(); !bytes.Equal(document.Canonical(clone.Root()), canonical) {
			t.Fatal("clone differs")
		}
	})
}

func FuzzYAML(f *testing.F) {
	corpus.Seed[[]byte](f)
	for _, seed := range []string{"a: 1\nb: [yes, 0x10, ~]\n", "&a [*a]", "<<: {a: 1}", "a: &x {b: *x}", "- - - 1", "? a\n: b", "!!binary x", "a: |\n  b\n", "{a: 1, a: 2}", "1:30", "\xff"} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var d document.Document
		problems := d.ParseYAML(text)
		for _, p := range problems {
			if strings.TrimSpace(p.Message) == "" {
				t.Fatalf("problem without a message: %+v", p)
			}
		}
		if len(problems) > 0 {
			return
		}
		var again document.Document
		if problems := again.ParseJSON(d.Root().Raw(), 1); len(problems) > 0 {
			t.Fatalf("YAML %q became %s: %v", text, d.Root().Raw(), problems)
		}
		if got, want := document.Canonical(again.Root()), document.Canonical(d.Root()); !bytes.Equal(got, want) {
			t.Fatalf("nodes say %s, text says %s", want, got)
		}
	})
}
