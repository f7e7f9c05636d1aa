package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/securebench/sbench/run"
)

type gcCmd struct{ jsonFlag }

func (cmd *gcCmd) Run(ctx context.Context, a *app) error {
	c, err := a.open(ctx, nil)
	if err != nil {
		return err
	}
	gone, err := c.GC(ctx)
	err = errors.Join(err, c.Close(ctx))
	if len(gone.Left) > 0 {
		err = errors.Join(err, fmt.Errorf("%w: not all could be removed: %w", run.ErrInfrastructure, errors.Join(gone.Left...)))
	}
	if cmd.JSON {
		return errors.Join(err, a.json(map[string]any{"removed": append([]string{}, gone.Removed...)}))
	}
	return errors.Join(err, printTable(a, gone.Removed, func(id string) string { return "removed what run " + id + " left" }))
}
