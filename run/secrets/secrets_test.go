package secrets_test

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/secrets"
	"github.com/securebench/sbench/runtime"
)

// TestRedactor: secrets are replaced, and nothing else.
func TestRedactor(t *testing.T) {
	const first, second = "the first of the lines", "and the second of them"
	for _, c := range []struct {
		name    string
		secrets []string
		text    string
		want    string
	}{
		{"none", nil, "text", "text"},
		{"short ones", []string{"four5", ""}, "four5", "four5"},
		{"one", []string{"secret"}, "a secret, secre", "a <redacted>, secre"},
		{"two beside each other", []string{"secret"}, "secretsecret", "<redacted><redacted>"},
		{"two that overlap", []string{"secret", "crets!"}, "secrets!", "<redacted>"},
		{"one in another", []string{"secret", "a secret indeed"}, "a secret indeed, a secret", "<redacted>, a <redacted>"},
		{"the same beginning", []string{"secret-1", "secret-22", "secret-333"}, "secret-22 secret-333 secret-4", "<redacted> <redacted> secret-4"},
		{"lines", []string{first + "\n\n  " + second + "\n"}, "+" + second + "\n" + first + ".", "+<redacted>\n<redacted>."},
		{"all lines", []string{first + "\nx\n" + second}, first + "\nx\n" + second, "<redacted>"},
		{"nothing but one", []string{"secret"}, "secret", "<redacted>"},
	} {
		t.Run(c.name, func(t *testing.T) {
			must.Equal(t, c.want, secrets.New(c.secrets...).Text(c.text))
		})
	}
	const secret = "s3cret-token-value+/ü\"\\&"
	quoted, _ := json.Marshal(secret)
	encoded := []string{
		secret, url.QueryEscape(secret), url.PathEscape(secret), string(quoted), hex.EncodeToString([]byte(secret)), base64.StdEncoding.EncodeToString([]byte(secret)),
		base64.StdEncoding.EncodeToString([]byte("x" + secret + "yz")), base64.URLEncoding.EncodeToString([]byte("xy" + secret + "z")),
	}
	for _, e := range encoded {
		if got := secrets.New(secret).Text("x " + e + " y"); strings.Contains(got, e) || !strings.Contains(got, "<redacted>") {
			t.Errorf("%q is %q", e, got)
		}
	}
}

// TestRedactedRecord: no text of a record keeps a secret.
func TestRedactedRecord(t *testing.T) {
	got := secrets.New("secret").Record(record.Record{CandidateText: new("a secret"), VerifierMetadata: record.Metadata{"read": "a secret", "secret": 1}})
	if *got.CandidateText != "a <redacted>" || got.VerifierMetadata["read"] != "a <redacted>" || got.VerifierMetadata["<redacted>"] == nil {
		t.Errorf("%v %v", *got.CandidateText, got.VerifierMetadata)
	}
}

// TestRedactedEdges: if the middle of an output is missing, no part of a secret is left
// next to it, wherever the output was cut.
func TestRedactedEdges(t *testing.T) {
	const word = "0123456789abcdef"
	text := strings.Repeat("x", 400) + strings.Repeat(word, 5) + strings.Repeat("y", 400)
	r := secrets.New(word)
	for at := range len(text) {
		o := runtime.Output{Head: []byte(text[:at]), Tail: []byte(text[at:]), Total: int64(len(text) + 7)}
		got := r.Output(o)
		if i := strings.IndexAny(strings.ReplaceAll(strings.ReplaceAll(got, "<redacted>", ""), "[sbench: 7 bytes cut]", ""), word); i >= 0 {
			t.Fatalf("cut at %d: %q", at, got)
		}
		if !strings.Contains(got, "[sbench: 7 bytes cut]") {
			t.Fatalf("cut at %d: %q", at, got)
		}
	}
}

// TestIn: a secret is found wherever pieces of a file meet.
func TestIn(t *testing.T) {
	r := secrets.New("the secret of the run")
	for _, at := range []int{0, 1<<20 - 30, 1<<20 - 5, 1 << 20, 1<<20 + 1, 2<<20 - 21, 2<<20 - 1, 3 << 20} {
		text := strings.Repeat(".", at) + "the secret of the run" + strings.Repeat(".", 17)
		for want, text := range map[bool]string{true: text, false: strings.Replace(text, "secret", "report", 1)} {
			for _, size := range []int64{0, int64(len(text))} {
				if got, err := r.In(strings.NewReader(text), size); got != want || err != nil {
					t.Errorf("at %d: %t, %v", at, got, err)
				}
			}
		}
	}
}
