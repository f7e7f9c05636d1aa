package split_test

import (
	"strings"
	"testing"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/validate"
	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
)

// TestRefused: what is wrong with a pack of SecureBench 2.0 is found before anything runs. A pack with which nothing is
// wrong is not refused.
func TestRefused(t *testing.T) {
	tests := []struct{ name, file, old, new, want string }{
		{"another version", "manifest.yaml", `"2.0"`, `"3.0"`, `expected "2.0"`},
		{"an unknown key", "manifest.yaml", "id: tiny-pack", "id: tiny-pack\nversion: 1", `unknown key "version"`},
		{"roots that overlap", "manifest.yaml", "host: host/", "host: runtime/", "overlap"},
		{"a trusted helper", "rows.jsonl", `"trusted_helpers": []`, `"trusted_helpers": [{"name": "h", "type": "securebench.process-supervisor/v1"}]`, `no trusted helper "securebench.process-supervisor/v1"`},
		{"an overlay", "rows.jsonl", `"type": "file_bundle"`, `"type": "filesystem_overlay"`, `found "filesystem_overlay" (leave the row out)`},
		{"another profile", "rows.jsonl", `"strict-split/v1"`, `"batched-split/v1"`, `found "batched-split/v1" (leave the row out)`},
		{"a writable asset", "rows.jsonl", `"environment": {`, `"assets": [{"path": "a", "mount": "/a", "read_only": false}], "environment": {`, "writable assets are refused, as SecureBench 2.0 does (remove the key)"},
		{"a patch of a terminal_task", "rows.jsonl", `"type": "file_bundle"`, `"type": "git_patch"`, `expected "file_bundle", found "git_patch"`},
		{"an entry outside the workdir", "rows.jsonl", `"path": "/app/add.py"`, `"path": "/etc/add.py"`, "is not below the workdir"},
		{"entries beyond the totals", "rows.jsonl", `"max_total_bytes": 65536`, `"max_total_bytes": 10`, "exceed"},
		{"an entry where sbench puts the task", "rows.jsonl", `"path": "/app/add.py"`, `"path": "/app/securebench/add.py"`, "where sbench puts the task"},
		{"a mount over the workdir", "rows.jsonl", `"mount": "/opt/adapter"`, `"mount": "/app"`, "overlaps the workdir"},
		{"a mount in a directory of the workdir", "rows.jsonl", `"mount": "/opt/adapter"`, `"mount": "/app/adapter"`, ""},
		{"no such resource", "rows.jsonl", `"oracle": "host.oracle"`, `"oracle": "host.other"`, `no resource of the kind host is called "host.other"`},
		{"an oracle that candidates see", "rows.jsonl", `"oracle": "host.oracle"`, `"oracle": "runtime.adapter"`, `no resource of the kind host is called "runtime.adapter"`},
		{"an output artifact that the adapter does not leave", "rows.jsonl", `"output_artifacts": []`, `"output_artifacts": [{"name": "o", "parser": "utf8-text/v1", "limits": {"max_bytes": 1}}]`, `no output artifact "o"`},
		{"limits of a tree for a file", "rows.jsonl", `"checks": [`, `"checks": [{"id": "a", "type": "artifact", "artifacts": [{"id": "a", "source": {"entry": "prog"}, "parser": "utf8-text/v1", "limits": {"max_files": 1, "max_total_bytes": 1}}]},`, "a file has the limits of a tree"},
		{"two kinds of limits", "rows.jsonl", `"checks": [`, `"checks": [{"id": "a", "type": "artifact", "artifacts": [{"id": "a", "source": {"entry": "prog"}, "parser": "utf8-text/v1", "limits": {"max_bytes": 1, "max_files": 1}}]},`, "the limits of a file are max_bytes"},
		{"a parser of trees for a file", "rows.jsonl", `"checks": [`, `"checks": [{"id": "a", "type": "artifact", "artifacts": [{"id": "a", "source": {"entry": "prog"}, "parser": "tree-manifest/v1", "limits": {"max_bytes": 1}}]},`, `"tree-manifest/v1" reads no such artifact`},
		{"a missing file", "rows.jsonl", `"path": "add/cases"`, `"path": "add/none"`, "no such file"},
		{"cases in the oracle's directory", "rows.jsonl", `"path": "add/cases"`, `"path": "add/oracle"`, ""},
		{"cases around the oracle's directory", "rows.jsonl", `"path": "add/cases"`, `"path": "add"`, ""},
		{"limits beyond the adapter's", "rows.jsonl", `"seconds_per_case": 10`, `"seconds_per_case": 11`, "exceed the maximums"},
		{"another protocol", "runtime/add/adapter.yaml", "tiny.add/v1", "tiny.sub/v1", "requires \"tiny.add/v1\""},
		{"two instances of the candidate", "runtime/add/adapter.yaml", "instances: 1", "instances: 2", "expected 1"},
		{"a schema without properties", "runtime/add/adapter.yaml", "  properties: {code: {type: integer}, out: {type: string, max_utf8_bytes: 1000}}\n  required: [code, out]\n  allow_extra_fields: false\n", "  allow_extra_fields: true\n", ""},
		{"a schema without a type", "runtime/add/adapter.yaml", "a: {type: integer}", "a: {type: int}", `or "string", found "int"`},
		{"no oracle.yaml", "rows.jsonl", `"oracle": "host.oracle"`, `"oracle": "host.cases"`, "oracle.yaml"},
		{"another abi of the oracle", "host/add/oracle/oracle.yaml", "oracle/v1", "oracle/v2", `"securebench.oracle/v1"`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			files := filetest.Archive(t, "testdata/add.txtar")
			changed := strings.Replace(files[test.file], test.old, test.new, 1)
			if changed == files[test.file] {
				t.Fatalf("%s has no %q", test.file, test.old)
			}
			files[test.file] = changed
			dir := t.TempDir()
			filetest.Write(t, dir, files)
			var found strings.Builder
			_, err := validate.Files(t.Context(), []string{dir}, nil, func(p compiler.Problem) {
				if !p.Warning {
					found.WriteString(p.String() + "\n")
				}
			})
			must.Do(t, err)
			if !strings.Contains(found.String(), test.want) || test.want == "" && found.Len() > 0 {
				t.Errorf("want %q, got:\n%s", test.want, found.String())
			}
		})
	}
}
