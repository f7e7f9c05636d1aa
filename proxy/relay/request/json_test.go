package request_test

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/securebench/sbench/proxy/relay/request"
)

// FuzzCheckJSON: accepted data is valid for encoding/json, too, which finds no key twice
// in an object, and as many values as the scanner.
func FuzzCheckJSON(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-0.5e+9,true,false,null,"\u00e9\n"],"b":{}}`, `[]`, ` "x" `, `{"a":1,"\u0061":2}`, `{"a":{"b":1,"b":2}}`, "\"\xff\"",
		`{"\ud83d":1}`, `{"\ud83d\ude00":1,"😀":2}`, `[1,]`, `01`, `1.`, `"\x"`, `{"a" : [ { } , [ ] ] }`, `[[[[]]]]`, `nul`, `-`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := request.CheckJSON(data)
		if err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("passed, and is no JSON: %q", data)
		}
		d := json.NewDecoder(bytes.NewReader(data))
		d.UseNumber() // 1e700 is no float64
		n, twice := walk(t, d)
		if twice {
			t.Fatalf("passed, and has a key twice: %q", data)
		}
		if got != n {
			t.Fatalf("%d values for the scanner, %d for Go, in %q", got, n, data)
		}
	})
}

// walk reads one value with the tokens of encoding/json.
func walk(t *testing.T, d *json.Decoder) (values int, twice bool) {
	t.Helper()
	tok, err := d.Token()
	if err != nil {
		t.Fatal(err)
	}
	values = 1
	open, ok := tok.(json.Delim)
	if !ok {
		return values, false
	}
	seen := map[string]bool{}
	for d.More() {
		if open == '{' {
			key, err := d.Token()
			if err != nil {
				t.Fatal(err)
			}
			twice = twice || seen[key.(string)]
			seen[key.(string)] = true
		}
		n, tw := walk(t, d)
		values, twice = values+n, twice || tw
	}
	if _, err := d.Token(); err != nil {
		t.Fatal(err)
	}
	return values, twice
}
