package relay

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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
	checkAgain   = time.Second // until an unreachable provider is tried again
	checkBytes   = 64 << 10    // of an answer
)

// Check finds out before the first attempt whether the key is wrong or the provider unreachable, by
// asking for the list of models, which costs nothing. Other errors of the provider do not count: a
// gateway may lack the list, and a valid key may not be allowed to read it. No error contains the
// key.
func Check(ctx context.Context, cfg Config) error {
	if err := cfg.check(); err != nil {
		return fmt.Errorf("provider relay: %w", err)
	}
	cfg.Limits = cmp.Or(cfg.Limits, DefaultLimits())
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
	api := apis()[cfg.Provider]
	models := route{path: api.models}.target(cfg.Provider, cmp.Or(cfg.BaseURL, api.publicURL()), nil)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, models.String(), nil)
	if err != nil {
		return err
	}
	req.Header = header(cfg.Provider, http.Header{})
	cfg.authorize(req.Header)
	up := newUpstream(ctx, cfg)
	defer up.CloseIdleConnections()
	resp, err := up.RoundTrip(req)
	switch {
	case ctx.Err() != nil: // slowness says nothing about models
		return nil
	case err != nil:
		return fmt.Errorf("%w: %w", ErrUnreachable, err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, checkBytes))
	if err == nil && wrongKey(resp.StatusCode, body) {
		return fmt.Errorf("%w (%s)", ErrRefused, http.StatusText(resp.StatusCode))
	}
	return nil
}

// wrongKey reports whether a provider's error says that there is no such key: for Anthropic in the
// type, for OpenAI in the code, for Google in a reason in the details.
func wrongKey(status int, body []byte) bool {
	var reply struct {
		Error struct {
			Type, Code any
			Details    []struct{ Reason string }
		}
	}
	if json.Unmarshal(body, &reply) != nil {
		return false
	}
	switch e := reply.Error; status {
	case http.StatusUnauthorized:
		return e.Type == "authentication_error" || e.Code == "invalid_api_key"
	case http.StatusBadRequest:
		return len(e.Details) > 0 && e.Details[0].Reason == "API_KEY_INVALID"
	}
	return false
}
