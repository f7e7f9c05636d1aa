package main

import (
	"context"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/securebench/sbench/internal/test/must"
	"github.com/securebench/sbench/run/record"
)

func sampleRun(t *testing.T, seal bool, key *record.Key) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "run")
	l, err := record.Create(dir, record.Manifest{RunID: "r"})
	must.Do(t, err)
	_, err = l.Append(record.Record{TaskID: "a", Attempt: 1, Try: 1, VerificationStatus: record.Passed})
	must.Do(t, err)
	if seal {
		must.Do(t, l.Seal(record.Seal{}, key))
	}
	must.Do(t, l.Close())
	return dir
}

// TestReportBelieves: the report sums up records that the key signed. It sums up unsigned records only with
// --accept-unsigned, and says so.
func TestReportBelieves(t *testing.T) {
	key, err := record.LoadKey(must.KeyFile(t))
	must.Do(t, err)
	public := key.Public()
	for _, c := range []struct {
		name, dir string
		cmd       reportCmd
		refused   bool
		says      string
	}{
		{"signed", sampleRun(t, true, key), reportCmd{runDirs: runDirs{Key: public}}, false, ""},
		{"sealed, no key", sampleRun(t, true, nil), reportCmd{}, false, ""},
		{"sealed, a key", sampleRun(t, true, nil), reportCmd{runDirs: runDirs{Key: public}}, true, "--accept-unsigned"},
		{"sealed, a key, accepted", sampleRun(t, true, nil), reportCmd{runDirs: runDirs{Key: public, AcceptUnsigned: true}}, false, "not sealed and signed"},
		{"going on", sampleRun(t, false, nil), reportCmd{}, false, "no seal"},
		{"going on, a key", sampleRun(t, false, nil), reportCmd{runDirs: runDirs{Key: public}}, true, "--accept-unsigned"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stderr strings.Builder
			c.cmd.RunDirs = []string{c.dir}
			err := c.cmd.Run(context.Background(), &app{stdout: io.Discard, stderr: &stderr})
			said := stderr.String()
			if err != nil {
				said += err.Error()
			}
			if (err != nil) != c.refused || !strings.Contains(said, c.says) || c.says == "" && said != "" {
				t.Errorf("%v, said %q", err, said)
			}
		})
	}
}

// TestVerifySays: verify says that a killed session proves less than a session that ended.
func TestVerifySays(t *testing.T) {
	for _, c := range []struct {
		name string
		seal bool
		want string
	}{
		{"killed", false, "1 records, not sealed: is what was written, but more may be missing at the end\n"},
		{"ended", true, "1 records, sealed, no signature checked: is what was written\n"},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := sampleRun(t, c.seal, nil)
			var stdout strings.Builder
			must.Do(t, (&verifyCmd{RunDir: dir}).Run(context.Background(), &app{stdout: &stdout}))
			if !strings.HasSuffix(stdout.String(), c.want) {
				t.Errorf("said %q", stdout.String())
			}
		})
	}
}
