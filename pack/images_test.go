package pack_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/pack"
)

// TestImages shows that contexts are inside the pack, whatever the file says.
func TestImages(t *testing.T) {
	tests := []struct {
		name, text string
		want       []pack.BuiltImage
		wrong      string
	}{
		{"two", `{"images": [{"ref": "a", "context": "images/a"}, {"ref": "b", "context": "images/b", "digest": "d"}]}`,
			[]pack.BuiltImage{{Ref: "a", Context: "images/a"}, {Ref: "b", Context: "images/b", Digest: "d"}}, ""},
		{"none", `{}`, nil, ""},
		{"outside", `{"images": [{"ref": "a", "context": "../images/a"}]}`, nil, "$.images[0]: no context below images"},
		{"absolute", `{"images": [{"ref": "a", "context": "/images/a"}]}`, nil, "$.images[0]"},
		{"through the parent", `{"images": [{"ref": "a", "context": "images/a/../../.."}]}`, nil, "$.images[0]"},
		{"hidden files", `{"images": [{"ref": "a", "context": "images/a"}, {"ref": "a", "context": "hidden/a"}]}`, nil, "$.images[1]"},
		{"all images", `{"images": [{"ref": "a", "context": "images"}]}`, nil, "$.images[0]"},
		{"a link", `{"images": [{"ref": "a", "context": "images/link"}]}`, nil, "$.images[0]: images/link is no directory of the pack"},
		{"without a name", `{"images": [{"context": "images/a"}]}`, nil, "$.images[0]"},
		{"no json", `{`, nil, "provenance.json: unexpected end"},
		{"no file", "", nil, "provenance.json: no import made this pack"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			dir := t.TempDir()
			if tt.text != "" {
				must.Do(t, os.WriteFile(filepath.Join(dir, "provenance.json"), []byte(tt.text), 0o644))
			}
			must.Do(t, errors.Join(os.Mkdir(filepath.Join(dir, "images"), 0o755), os.Symlink("/", filepath.Join(dir, "images", "link"))))
			got, err := pack.Images(dir)
			if tt.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), tt.wrong) {
					t.Errorf("got %v %v, want %q", got, err, tt.wrong)
				}
				return
			}
			must.Do(t, err)
			for i := range tt.want {
				tt.want[i].Context = filepath.Join(dir, tt.want[i].Context)
			}
			must.Equal(t, tt.want, got)
		})
	}
}
