package page_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/securebench/sbench/internal/test/filetest"
	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

// An example is a run that is made of testdata/run.txtar.
type example struct {
	RunID   string
	Agent   string // codex or claude_code
	Copies  int    // of each task of the file
	Planned int    // attempts that run.json plans; 0: it does not say
	Hostile string // is put into every field that a candidate or a pack can fill
	Noise   int    // bytes of the long outputs
}

// quoted returns a text as it stands in a string of JSON.
func quoted(text string) string {
	data, _ := json.Marshal(text) // a text has a JSON form
	return string(data[1 : len(data)-1])
}

// write writes the files of the run to a new directory.
func (e example) write(t *testing.T) (dir string) {
	t.Helper()
	archive, err := txtar.ParseFile("testdata/run.txtar")
	must.Do(t, err)
	const line = "collecting package metadata: 0123456789abcdef0123456789abcdef\n"
	in, files := map[string]string{}, map[string]string{"workspaces/a/bin/blob": "\x7fELF\x02\x01\x00\x00"}
	for _, f := range archive.Files {
		hostile, noise := e.Hostile, strings.Repeat(line, e.Noise/len(line))
		if strings.HasPrefix(path.Ext(f.Name), ".json") {
			hostile, noise = quoted(hostile), quoted(noise)
		}
		in[f.Name] = strings.NewReplacer("@H@", hostile, "@NOISE@", noise).Replace(string(f.Data))
		if strings.Contains(f.Name, "/") {
			files[f.Name] = in[f.Name]
		}
	}
	m := must.Decode[record.Manifest](t, []byte(in["run.json"]))
	m.RunID, m.Planned = e.RunID, e.Planned
	manifest := must.JSON(t, m)
	files[record.ManifestFile], files["logs/a/"+record.TraceFile] = string(manifest), in[e.Agent+".jsonl"]+e.Hostile
	dir = t.TempDir()
	filetest.Write(t, dir, files)
	must.Do(t, os.Symlink("/etc/passwd", filepath.Join(dir, "workspaces/a/etc/current")))
	root := must.OpenRoot(t, dir)
	var records, egress strings.Builder
	for n := range e.Copies {
		at := 0
		for line := range strings.Lines(in["records.jsonl"]) {
			var r record.Record
			must.Do(t, errors.Join(json.Unmarshal([]byte(in["common.json"]), &r), json.Unmarshal([]byte(line), &r)))
			e.vary(&r, n, at)
			if at++; r.VerifierMetadata != nil {
				var p record.Private
				must.Do(t, errors.Join(json.Unmarshal([]byte(in["private.json"]), &p), record.WritePrivate(root, &r, p)))
			}
			must.Do(t, json.NewEncoder(&records).Encode(r))
			if r.VerificationStatus != record.Error {
				egress.WriteString(strings.ReplaceAll(in["egress.jsonl"], "@TASK@", fmt.Sprintf(`"%s","attempt":%d`, quoted(r.TaskID), r.Attempt)))
			}
		}
	}
	filetest.Write(t, dir, map[string]string{record.RecordsFile: records.String(), record.EgressFile: egress.String()})
	return dir
}

// vary makes the n-th copy of a record, which is at that place of the file, differ from the other copies.
func (e example) vary(r *record.Record, n, at int) {
	r.RunID, r.TaskID, r.Agent.Name, r.Provenance.Harness.Type = e.RunID, strings.TrimSpace(fmt.Sprintf("%s-%03d %s", r.TaskID, n+1, e.Hostile)), e.Agent, e.Agent
	usage, share := &r.Egress.Relay.Usage, float64(1+(7*n+5*at)%11)/8
	usage.Input, usage.Output, r.Times.Producer = int64(share*float64(usage.Input)), int64(share*float64(usage.Output)), share*r.Times.Producer
	r.StartedAt = r.StartedAt.Add(time.Duration(20*n+at) * time.Second)
	r.EndedAt = r.StartedAt.Add(time.Duration((r.Times.Producer + r.Times.Verifier) * float64(time.Second)))
	if e.Hostile != "" {
		r.TaskType += "<b>"
		r.ProducerMetadata[e.Hostile], r.Degraded, r.Provenance.Specs[e.Hostile] = e.Hostile, []string{e.Hostile}, e.Hostile
	}
}
