package run_test

import (
	"context"
	"errors"
	"testing"
	"os"
	"path/filepath"

	"github.com/securebench/sbench/run"
	"github.com/securebench/sbench/run/record"
)

func TestAtkRetryVerify(t *testing.T) {
	cfg, e := config(t, row("one", "tell", ""))
	cfg.Env["TOKEN"] = secret
	cfg.Retries = 1
	e.broken[2] = errors.New("no space") // the verifier of the first try
	tries := 0
	cfg.Progress = func(ev run.Event) {
		if ev.Kind == run.ProducerStart {
			tries++
		}
		if ev.Kind == run.ProducerDone && tries == 1 {
			// what the agent left differs from try to try
			_ = filepath.WalkDir(cfg.Output, func(p string, d os.DirEntry, err error) error { return err })
		}
	}
	s, err := run.Run(context.Background(), cfg)
	t.Log(s, err, outcomes(records(t, cfg)))
	for _, r := range records(t, cfg) { t.Log(r.Try, *r.CandidateWorkspace, r.WorkspaceDigest) }
	v, err := record.Verify(context.Background(), cfg.Output, nil)
	t.Logf("%+v %v", v, err)
}
