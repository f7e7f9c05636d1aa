package compiler_test

import (
	"os"
	"testing"

	"github.com/securebench/sbench/compiler/family"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// TestRootsThatAreLinks: asset roots stay in the pack and apart where they are symbolic links, too.
func TestRootsThatAreLinks(t *testing.T) {
	const overlap = ` overlap, or lead to one directory (agents would see hidden files)`
	for _, tt := range []struct{ name, manifest, link, target, want string }{
		{"sound", "id: p\nversion: 1\n", "assets", "files", ""},
		{"missing", "id: p\nversion: 1\n", "assets", "nowhere", ""},
		{"outside", "id: p\nversion: 1\n", "assets", "/usr", `manifest.yaml: $.asset_roots.public: directory leads outside the pack`},
		{"overlap", "id: p\nversion: 1\n", "assets", "hidden/part", `manifest.yaml: $.asset_roots: eval root "hidden" and public root "assets"` + overlap},
		{"outside in SecureBench 2.0", "id: p\nschema_version: '2.0'\n", "assets", "/usr", `manifest.yaml: $.resource_roots.public: directory leads outside the pack`},
		{"overlap in SecureBench 2.0", "id: p\nschema_version: '2.0'\n", "evaluation_inputs", "hidden/part", `manifest.yaml: $.resource_roots: host root "hidden" and runtime root "evaluation_inputs"` + overlap},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			filetest.Write(t, ".", map[string]string{"manifest.yaml": tt.manifest, "tasks.jsonl": "", "files/x": "", "hidden/part/x": ""})
			must.Do(t, os.Symlink(tt.target, tt.link))
			_, err := family.OpenPack("manifest.yaml", "tasks.jsonl")
			got := ""
			if err != nil {
				got = err.Error()
			}
			must.Equal(t, tt.want, got)
		})
	}
}
