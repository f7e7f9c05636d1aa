package contrast

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/securebench/sbench/workspace"
)

// A Store keeps calibrations in memory and, between runs, in a directory. It is safe for
// concurrent use. Its files contain parts of hidden tests.
type Store struct {
	dir     string
	entries sync.Map // an *entry by its key
}

type entry struct {
	turn        *semaphore.Weighted // of one caller at a time
	calibration *Calibration
}

// NewStore returns a store that keeps its files in dir. If dir is "", it keeps nothing for
// later runs.
func NewStore(dir string) *Store { return &Store{dir: dir} }

// Key returns the key of a calibration. It depends on the image's digest, the parts of the
// evaluation, and the versions of this package's program and of Ask.
func Key(image string, evaluation ...string) string {
	h := sha256.New()
	for _, part := range append([]string{program, Ask, image}, evaluation...) {
		_, _ = fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}

// Get returns the calibration for key. If there is none, one call of calibrate runs at a time, and other
// callers wait for it until ctx is done. Its errors are not kept. A nil Store keeps nothing.
func (s *Store) Get(ctx context.Context, key string, calibrate func() (Calibration, error)) (Calibration, error) {
	if s == nil {
		return calibrate()
	}
	found, _ := s.entries.LoadOrStore(key, &entry{turn: semaphore.NewWeighted(1)})
	e := found.(*entry)
	if e.turn.Acquire(ctx, 1) != nil {
		return Calibration{}, context.Cause(ctx)
	}
	defer e.turn.Release(1)
	if e.calibration != nil {
		return *e.calibration, nil
	}
	c, err := s.read(key)
	if errors.Is(err, fs.ErrNotExist) {
		if c, err = calibrate(); err == nil {
			err = s.write(key, c)
		}
	}
	if err == nil {
		e.calibration = &c
	}
	return c, err
}

func (s *Store) file(key string) string { return filepath.Join(s.dir, key+".json") }

// read returns fs.ErrNotExist also for a file that holds no calibration.
func (s *Store) read(key string) (c Calibration, err error) {
	if s.dir == "" {
		return c, fs.ErrNotExist
	}
	text, err := os.ReadFile(s.file(key))
	if err == nil && json.Unmarshal(text, &c) != nil {
		err = fs.ErrNotExist
	}
	return c, err
}

func (s *Store) write(key string, c Calibration) error {
	if s.dir == "" {
		return nil
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	_, err := workspace.ReplaceFile(s.file(key), 0o600, func(w io.Writer) error { return json.NewEncoder(w).Encode(c) })
	return err
}
