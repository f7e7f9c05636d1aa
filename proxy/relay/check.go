package relay

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
)

// Errors of [Check].
var (
	// ErrRefused means that the provider does not accept the key.
	ErrRefused = errors.New("the provider does not accept the key")
	// ErrUnreachable means that there was no connection to the provider.
	ErrUnreachable = errors.New("the provider cannot be reached")
)

const (
	checkTimeout = 10 * time.Second
	checkAgain   = time.Second // after which a provider that cannot be reached is tried again
)

// Check asks the provider for the list of its models, which costs nothing, and so finds out
// before the first attempt that nothing can come of any. Of the answer only the status 401
// counts, since gateways may not have the list, and keys may not be allowed to read it. No
// error contains the key.
func Check(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return fmt.Errorf("provider relay: %w", err)
	}
	cfg.Limits = cfg.Limits.withDefaults()
	err := check(ctx, cfg)
	if errors.Is(err, ErrUnreachable) {
		select {
		case <-time.After(checkAgain):
			err = check(ctx, cfg)
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

func check(ctx context.Context, cfg Config) error {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	base := cmp.Or(cfg.BaseURL, cfg.Provider.publicURL())
	models := route{path: "/v1/models"}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, models.target(cfg.Provider, base, nil).String(), nil)
	if err != nil {
		return err
	}
	req.Header = header(cfg.Provider, http.Header{})
	cfg.authorize(req.Header)
	up := newUpstream(ctx, cfg)
	defer up.CloseIdleConnections()
	resp, err := up.RoundTrip(req)
	switch {
	case ctx.Err() != nil: // slow, which says nothing about models
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return fmt.Errorf("%w (%s)", ErrRefused, http.StatusText(resp.StatusCode))
	}
	return nil
}
