package main

import (
	"context"
	"crypto/ed25519"
	"errors"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/text"
)

type showCmd struct {
	RunDir  string            `arg:"" name:"run-dir" help:"Output directory of a run."`
	Task    string            `arg:"" help:"Id of the task, or a pattern that matches one."`
	Attempt int               `placeholder:"N" help:"Attempt of the task. Default: the first that did not pass, else the first."`
	Key     ed25519.PublicKey `placeholder:"FILE" help:"Public key (PKIX, PEM) that must have signed the records."`
	jsonFlag

	Private        bool `help:"Show what the verifier printed, where the private part of the run is there. It can contain hidden tests."`
	AcceptUnsigned bool `help:"Show records even if they are damaged, or not signed by --key."`
}

// Bytes of an attempt's texts that are shown.
const (
	shownInTerminal = 48 << 10
	shownAsJSON     = 4 << 20
)

func (cmd *showCmd) Run(ctx context.Context, a *app) (err error) {
	sources, err := (&runDirs{RunDirs: []string{cmd.RunDir}, Key: cmd.Key, Private: cmd.Private, AcceptUnsigned: cmd.AcceptUnsigned}).open(ctx)
	defer func() { err = errors.Join(err, report.CloseAll(sources)) }()
	if err = errors.Join(err, notNegative("--attempt", cmd.Attempt)); err != nil {
		return err
	}
	s := sources[0]
	sayAll(a, s.Dir, s.Problems)
	at, of, err := s.Find(cmd.Task, cmd.Attempt)
	if err != nil {
		return marked(errUsage, err)
	}
	most := shownInTerminal
	if cmd.JSON {
		most = shownAsJSON
	}
	d, err := s.Detail(ctx, at, most)
	if err != nil {
		return err
	}
	t := s.Attempts[at]
	v := text.Attempt{Task: t.Task, Attempt: t.Number, Of: of, Status: t.Status, Reason: t.Reason, Phase: t.Phase, Detail: d}
	if cmd.JSON {
		return a.json(v)
	}
	return v.Write(a.stdout)
}
