package run

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/securebench/sbench/compiler"
	"github.com/securebench/sbench/compiler/testerfile"
	"github.com/securebench/sbench/harness"
	"github.com/securebench/sbench/run/record"
	"github.com/securebench/sbench/run/secrets"
	"github.com/securebench/sbench/run/standin"
	"github.com/securebench/sbench/runtime"
)

// producer returns the identity of what makes the candidates; zero if the run only judges them.
func (c config) producer() harness.Identity {
	switch {
	case c.StandIn != "":
		return standin.Producer{Kind: c.StandIn}.Identity()
	case c.Producer == nil:
		return harness.Identity{}
	}
	return c.Producer.Identity()
}

// provenance returns the provenance that all records of a run share.
func (c config) provenance() (record.Provenance, error) {
	producer := c.producer()
	h := record.Harness{Type: cmp.Or(producer.Type, c.Tester.Harness.Type), Version: producer.Version}
	// The values of the variables are secrets and not part of the digest: it is up to the operator
	// not to change them.
	config := struct {
		Env    []string
		Config testerfile.HarnessConfig
		Files  string `json:",omitempty"` // digest of their contents
	}{Env: c.Tester.Harness.Env, Config: c.Tester.Harness.Config}
	config.Config.MaxRequestsMinute = 0 // pacing changes no outcome
	if config.Config.MaxCostUSD == 0 {  // prices alone change no outcome
		config.Config.Prices = nil
	}
	config.Config.Version = cmp.Or(producer.Version, config.Config.Version)
	if producer.Type == "" {
		config.Files = producer.Digest
	}
	data, err := json.Marshal(config)
	h.Config = record.Digest(data)
	if producer.Type != "" {
		h.Config = cmp.Or(producer.Digest, h.Config)
	}
	if c.original != nil {
		h = c.original.harness
	}
	return record.Provenance{
		Sbench: c.Version, Host: c.Host, Harness: h,
		Pack: record.Pack{ID: c.Pack.ID, Version: c.Pack.Version, Manifest: c.Pack.ManifestDigest()},
	}, err
}

// settings returns the settings of the tester file without secrets.
func (c config) settings(secrets secrets.Redactor) map[string]string {
	all := make(map[string]string, len(c.Tester.Settings))
	for _, s := range c.Tester.Settings {
		if all[s.Key] = secrets.Text(s.Value); s.Key == "harness.config.command" { // as in record.Harness
			all[s.Key] = record.Digest([]byte(s.Value))
		}
	}
	return all
}

func (s *session) manifest(ctx context.Context) (record.Manifest, error) {
	c := s.cfg
	m := record.Manifest{
		RunID: c.Tester.Run.ID, StartedAt: time.Now().UTC(), Sbench: c.Version, Host: c.Host, Pack: s.common.Pack,
		Harness: s.common.Harness, Settings: s.common.Settings, Jobs: c.Jobs, Attempts: c.Attempts, Planned: s.totalPlanned(), Inputs: map[string]record.Input{}, Shard: s.cfg.shard,
	}
	for name, path := range map[string]string{"tester": c.Tester.Path, "manifest": c.Pack.ManifestPath, "tasks": c.Pack.TasksPath} {
		if path == "" { // no tester file, as in a pack check
			continue
		}
		data, err := os.ReadFile(path)
		if err == nil {
			path, err = filepath.Abs(path)
		}
		if err != nil {
			return m, err
		}
		m.Inputs[name] = record.Input{Path: path, Digest: record.Digest(data)}
	}
	var err error
	if s.cfg.whole {
		m.Pack.Digest, err = c.Pack.Digest(ctx)
	}
	return m, err
}

// provenance adds to the shared provenance what is specific to the task.
func (s *shared) provenance(task *compiler.Task) (record.Provenance, error) {
	p := s.common
	digests, err := task.Digests()
	if err != nil {
		return p, err
	}
	p.Row, p.Evaluation, p.Assets = digests.Row, digests.Evaluation, digests.Assets
	p.Policy = s.cfg.policy(task)
	if p.Policy.Isolation == runtime.GVisor {
		p.Host.Runtime = s.cfg.GVisor
	}
	image := s.images.image(task)
	checkers := ""
	for _, step := range task.Steps() {
		checkers += s.cfg.checkerImage(s.images, step).Digest
	}
	original := "" // digest of the last record of the run that made the candidates
	if s.cfg.original != nil {
		original = s.cfg.original.seal.Last
	}
	// The host is recorded but not included: a run may be resumed on another one.
	data, err := json.Marshal(struct {
		Sbench                  record.Version
		Pack                    record.Pack
		Row, Evaluation, Assets string
		Harness                 record.Harness
		Policy                  record.Policy
		Image, Layers           string
		Sidecars                map[string]string `json:",omitempty"`
		Kept                    string            `json:",omitempty"`
		Checker                 string            `json:",omitempty"`
	}{p.Sbench, p.Pack, p.Row, p.Evaluation, p.Assets, p.Harness, p.Policy, image.Digest, image.ChainID, s.images.sidecarImages(task), original, checkers})
	if err != nil {
		return p, fmt.Errorf("provenance of task %q: %w", task.ID(), err)
	}
	p.Inputs = record.Digest(data)
	return p, nil
}
