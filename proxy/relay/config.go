package relay

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/securebench/sbench/proxy"
)

// Provider names a company's API, which determines authentication, paths and request
// formats. The zero Provider is invalid.
type Provider string

// The providers that a [Relay] knows.
const (
	Anthropic Provider = "anthropic" // Messages
	OpenAI    Provider = "openai"    // Responses and Chat Completions
	Google    Provider = "google"    // generateContent of the Gemini API
)

// AgentURL returns the base URL for an agent whose relay listens at host, an address with a
// port such as "127.0.0.1:8099". As the providers' own clients expect, OpenAI's ends in /v1
// and the others' do not.
func (p Provider) AgentURL(host string) string { return "http://" + host + apis()[p].base }

// Config describes a relay to one provider and one model for one attempt.
type Config struct {
	Provider Provider
	// BaseURL is the provider's address in the form that its own clients use: OpenAI's with
	// /v1, the others' without. Nil means the public API. The operator is trusted: http and
	// loopback addresses are allowed.
	BaseURL *url.URL
	// RootCAs verify the provider's certificate. Nil means the system's.
	RootCAs *x509.CertPool
	// Proxy returns the proxy for reaching the provider; nil means none, whatever the
	// environment says.
	Proxy func(*http.Request) (*url.URL, error)

	Key Key // required; printable ASCII without white space
	// MinSecret is how many characters of a key make it a secret. A shorter key, or a
	// shorter beginning of it at the end of an answer, is not cut out of answers, since it
	// may be there by chance.
	MinSecret int
	// Bearer sends an Anthropic key as a bearer token instead of x-api-key. OpenAI keys are
	// always bearer tokens, Google's never.
	Bearer bool
	// KeyHeader is the header for the key instead of the provider's own, such as Azure's
	// api-key; "" for the provider's own.
	KeyHeader string

	Model string // required; the only one that may be asked for

	// AllowExternalTools lets the provider act outside the sandbox (search, fetch, run code,
	// contact MCP servers). Fields that raise the cost or refer to state that the provider
	// keeps still do not pass.
	AllowExternalTools bool
	// RefuseExternalTools refuses a request for external tools, instead of removing them,
	// logging that and sending the rest.
	RefuseExternalTools bool

	// These are budgets for generations (see [Facts]); 0 means none. Requests in progress are
	// not cut off, and so may exceed the budgets for tokens and cost.
	MaxTotalTokens int64
	MaxRequests    int64
	MaxCostUSD     float64       // what the tokens cost at Prices
	Prices         *proxy.Prices // nil: unknown
	// Pace bounds how fast the relays that share it may generate; nil is no bound. A request
	// that is too early waits.
	Pace *Pace

	Limits HostLimits

	Log     *proxy.Log // nil: none
	Task    string     // of the log's entries
	Attempt int        // of the log's entries
}

// HostLimits bound what one sandbox may cost the host. A field that is 0 means the default
// stated beside it.
type HostLimits struct {
	Body     int64 // bytes of a request; 32 MiB
	Bodies   int64 // bytes of all requests at once, more get 429; twice Body
	InFlight int   // requests at once, more get 429; 16
	Conns    int   // connections at once, more are closed; 64
	// Inspect is how many bytes of requests may be inspected per second on average, each
	// counted as often as it is processed; 32 MiB. Up to 32 seconds' worth may be used at
	// once; more gets 429. It is no time, so that results do not depend on the host's speed.
	Inspect  int64
	Requests int64 // in total, including malformed ones; each is a line of the log; 100,000

	Head     time.Duration // for a request's head; 10 s
	Upload   time.Duration // for a request's body; 1 min
	Silence  time.Duration // without a byte from the provider; 15 min
	Download time.Duration // for the agent to read what was sent to it; 1 min
	Linger   time.Duration // for an answer's token counts after the agent has left; 30 s
}

func (l HostLimits) withDefaults() HostLimits {
	body := cmp.Or(l.Body, 32<<20)
	return HostLimits{
		Body: body, Bodies: max(cmp.Or(l.Bodies, 2*body), body), InFlight: cmp.Or(l.InFlight, 16), Conns: cmp.Or(l.Conns, 64),
		Inspect: cmp.Or(l.Inspect, 32<<20), Requests: cmp.Or(l.Requests, proxy.DefaultLimits().Requests),
		Head: cmp.Or(l.Head, 10*time.Second), Upload: cmp.Or(l.Upload, time.Minute), Silence: cmp.Or(l.Silence, 15*time.Minute),
		Download: cmp.Or(l.Download, time.Minute), Linger: cmp.Or(l.Linger, 30*time.Second),
	}
}

// check returns all errors at once. No message contains the key.
func (c Config) check() error {
	var errs []error
	refuse := func(wrong bool, format string, args ...any) {
		if wrong {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	_, known := apis()[c.Provider]
	refuse(!known, "provider %q: must be %q, %q or %q", c.Provider, Anthropic, OpenAI, Google)
	refuse(c.Key.IsZero(), "key: there is none")
	refuse(strings.ContainsFunc(c.Key.value(), notInKey), "key: holds white space or what is no printable ASCII")
	refuse(c.KeyHeader != "" && !isKeyHeader(c.KeyHeader),
		"key header %q: must be a header of its own, such as api-key", c.KeyHeader)
	refuse(c.Model == "", "model: there is none")
	inPath := c.Model != "" && c.Provider == Google
	refuse(inPath && (cleanName(c.Model) != c.Model || strings.ContainsAny(c.Model, "/:")),
		"model %q: is part of a path, so it must consist of letters, digits, '-', '_' and '.'", c.Model)
	refuse(c.MaxTotalTokens < 0 || c.MaxRequests < 0 || c.MaxCostUSD < 0, "budget: is negative")
	for field, limit := range reflect.ValueOf(c.Limits).Fields() {
		refuse(limit.Int() < 0, "limit %s: is negative", field.Name)
	}
	return errors.Join(append(errs, checkBase(c.BaseURL))...)
}

// Host returns the provider's host, with a port if the base URL has one.
func (c Config) Host() string { return cmp.Or(c.BaseURL, apis()[c.Provider].publicURL()).Host }

// isKeyHeader reports whether a header may carry a key: it is a name that the relay does not use
// for anything else.
func isKeyHeader(name string) bool {
	lower := strings.ToLower(name)
	return lower != "" && strings.Trim(lower, "abcdefghijklmnopqrstuvwxyz0123456789-") == "" && strings.HasSuffix(lower, "key")
}

func notInKey(r rune) bool { return r <= ' ' || r > '~' }

// checkBase never prints the URL, which may contain a password.
func checkBase(u *url.URL) error {
	switch {
	case u == nil:
		return nil
	case u.Scheme != "https" && u.Scheme != "http", u.Host == "", u.Opaque != "":
		return errors.New("base URL: must be https://host or http://host, with or without a path")
	case u.User != nil:
		return errors.New("base URL: must not hold a user or password")
	case u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return errors.New("base URL: must not have a query or fragment")
	}
	return nil
}
