package providertest_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/securebench/sbench/internal/test/providertest"
)

func TestParseText(t *testing.T) {
	for _, c := range []struct {
		name, src string
		want      []providertest.Step
		err       string
	}{
		{"steps", "# comment\n\nsay hello there\n  shell ls -l | wc\nwrite a/b c.txt <<END\nx\n  y\nEND\n", []providertest.Step{
			{Say: "hello there"}, {Shell: "ls -l | wc"}, {Write: &providertest.File{Path: "a/b c.txt", Content: "x\n  y\n"}},
		}, ""},
		{"here-documents", "say <<E\na\n# b\nE\nshell <<E\nls\nE\nthink <<E\nhm\nE\nsay x\n", []providertest.Step{
			{Say: "a\n# b"}, {Shell: "ls"}, {Think: "hm", Say: "x"},
		}, ""},
		{"about a step", "think hm\ntokens in=10 cached=4 out=3 reasoning=1\ndelay 20ms\nfail 429 2 after=1\nfail 500 forever\ncut 3\ngarble 2\nerror overloaded_error\nsay x\nsay y\n", []providertest.Step{{
			Say: "x", Think: "hm", Usage: &providertest.Usage{Input: 10, Cached: 4, Output: 3, Reasoning: 1}, Delay: 20 * time.Millisecond,
			Faults: []*providertest.Fault{
				{Status: 429, Times: 2, RetryAfter: 1}, {Status: 500, Times: -1}, {Cut: 3}, {Garble: true, Times: 2}, {Error: "overloaded_error"},
			},
		}, {Say: "y"}}, ""},
		{"empty", "\n# nothing\n", nil, "no steps"},
		{"unknown word", "say x\nshout y\n", nil, `line 2: "shout"`},
		{"no end", "say <<END\nx\n", nil, "line 1: no line is END"},
		{"nothing follows", "say x\nfail 500\n", nil, "no step follows"},
		{"bad status", "fail 200\nsay x\n", nil, "error's"},
		{"fail of what", "fail\nsay x\n", nil, "line 1: fail"},
		{"bad number", "cut x\nsay x\n", nil, "line 1"},
		{"bad tokens", "tokens up=3\nsay x\n", nil, `"up"`},
		{"bad delay", "delay soon\nsay x\n", nil, "line 1"},
		{"write of nothing", "write x\n", nil, "here-document"},
		{"empty step", "say\n", nil, "line 1: say"},
		{"empty here-document", "shell <<E\nE\n", nil, "line 1: shell"},
		{"no event", "cut 0\nsay x\n", nil, "line 1: must be"},
		{"write without a path", "write <<E\nx\nE\n", nil, "here-document"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := providertest.ParseText(c.src)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Errorf("error %v, want one with %q", err, c.err)
				}
				return
			}
			if diff := cmp.Diff(c.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
}

// TestExamples parses the scripts in testdata.
func TestExamples(t *testing.T) {
	names, err := filepath.Glob("testdata/*.script")
	if err != nil || len(names) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := providertest.ParseText(string(data)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}
