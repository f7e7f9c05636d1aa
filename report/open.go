package report

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"

	"github.com/securebench/sbench/run/record"
)

// ErrUntrusted means that the records of a run are damaged, or not signed as they have to be.
var ErrUntrusted = errors.New("the records cannot be trusted")

// OpenOptions say what records must prove, and what is shown.
type OpenOptions struct {
	Key            ed25519.PublicKey // must have signed the records; nil requires no signature
	AcceptUnsigned bool              // what records do not prove is a Problem of the source, and no error
	Private        bool              // show what verifiers printed
}

// OpenAll opens the directories of runs. Without a key, a missing seal is no error: a run in progress has none yet. The
// caller closes the sources, also after an error.
func OpenAll(ctx context.Context, dirs []string, o OpenOptions) (sources []*Source, err error) {
	for _, dir := range dirs {
		s, err := Open(ctx, dir)
		if err != nil {
			return sources, err
		}
		s.Private = o.Private
		sources = append(sources, s)
		seal, err := record.Read(dir, record.Trust{Key: o.Key}, func(record.Record) error { return nil })
		switch {
		case err == nil && seal.AcceptedUnsigned > 0:
			err = fmt.Errorf("the first %d records were accepted unsigned", seal.AcceptedUnsigned)
		case err == nil:
			continue
		case !o.AcceptUnsigned && (o.Key != nil || !errors.Is(err, record.ErrUnsigned)):
			return sources, fmt.Errorf("%w: %s: %w", ErrUntrusted, dir, err)
		}
		s.Problems = append(s.Problems, Problem{Finding: record.Finding{File: record.RecordsFile, Message: err.Error()}, Unverified: true})
	}
	return sources, nil
}

// CloseAll closes the sources.
func CloseAll(sources []*Source) error {
	var errs []error
	for _, s := range sources {
		errs = append(errs, s.Close())
	}
	return errors.Join(errs...)
}

// Below describes the runs in which less than percent of the attempts passed. Attempts without a verdict or
// without a record count as not passed. For nil it returns nothing.
func (r Report) Below(percent *float64) (runs []string) {
	if percent == nil {
		return nil
	}
	for _, run := range r.Runs {
		all := run.Counts.Attempts + run.Missing()
		if share := 100 * float64(run.Counts.Passed) / float64(max(1, all)); all == 0 || share < *percent {
			runs = append(runs, fmt.Sprintf("%q: %d of %d attempts passed (%.1f %%), %d have no verdict", run.Dir, run.Counts.Passed, all, share, all-run.Counts.Scored()))
		}
	}
	return runs
}
