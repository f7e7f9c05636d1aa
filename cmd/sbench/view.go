package main

import (
	"context"
	"crypto/rand"
	"errors"
	"net"

	"github.com/securebench/sbench/report"
	"github.com/securebench/sbench/report/page"
)

type viewCmd struct{ runDirs }

// Run serves the HTML report on loopback until it is interrupted.
func (cmd *viewCmd) Run(ctx context.Context, a *app) error {
	sources, err := cmd.open(ctx)
	if err := errors.Join(err, report.CloseAll(sources)); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	pages := &page.Server{Open: cmd.open, Dirs: cmd.RunDirs, Secret: rand.Text()}
	if err := a.printf("http://%s/%s/\n", l.Addr(), pages.Secret); err != nil {
		return errors.Join(err, l.Close())
	}
	return pages.Serve(ctx, l)
}
