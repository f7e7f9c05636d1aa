package relay

import (
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/securebench/sbench/proxy"
)

// Provider is a company's API, with its ways of authentication, paths and
// shapes of requests. The zero Provider is invalid.
type Provider string

// The providers that a [Relay] knows.
const (
	Anthropic Provider = "anthropic" // Messages
	OpenAI    Provider = "openai"    // Responses and Chat Completions
)

// AgentURL returns the base URL for an agent whose relay listens at host, an address
// with a port such as "127.0.0.1:8099". As the provider's own clients expect, OpenAI's
// ends in /v1 and Anthropic's does not.
func (p Provider) AgentURL(host string) string {
	if p == OpenAI {
		return "http://" + host + "/v1"
	}
	return "http://" + host
}

// publicURL is where the provider is found unless the operator says otherwise.
func (p Provider) publicURL() *url.URL {
	if p == OpenAI {
		return &url.URL{Scheme: "https", Host: "api.openai.com", Path: "/v1"}
	}
	return &url.URL{Scheme: "https", Host: "api.anthropic.com"}
}

// Config describes a relay to one provider and one model for one attempt.
type Config struct {
	Provider Provider
	// BaseURL is the provider's address, in the form of its own clients' setting:
	// OpenAI's with /v1, Anthropic's without. Nil means the public API. It is the
	// operator's word: http and loopback addresses are good.
	BaseURL *url.URL
	// RootCAs verify the provider's certificate. Nil means the system's.
	RootCAs *x509.CertPool
	// Proxy is asked for the proxy to the provider; nil means none, whatever the
	// environment says.
	Proxy func(*http.Request) (*url.URL, error)

	Key Key
	// MinSecret is the length from which a key is looked for in answers, and what begins
	// like it at the end of one. Shorter texts stand anywhere by chance.
	MinSecret int
	// Bearer sends an Anthropic key as a bearer token instead of x-api-key.
	// OpenAI keys are always sent as one.
	Bearer bool

	Model string // the only one that may be asked for

	// AllowExternalTools lets the provider act outside. Whatever makes it cost
	// more or keep state stays refused.
	AllowExternalTools bool
	// RefuseExternalTools answers a request that asks the provider to act outside
	// (search, fetch, run code, speak to MCP servers) with an error, instead of
	// taking that out of it, logging it and sending the rest.
	RefuseExternalTools bool

	// MaxTotalTokens and MaxRequests are budgets of the requests that make a
	// model write; 0 means none. A request that was let in is not cut off, so the
	// first may be exceeded by what was under way when it was reached.
	MaxTotalTokens int64
	MaxRequests    int64

	Limits Limits

	Log     *proxy.Log // nil: none
	Task    string
	Attempt int
}

// Limits bound what one sandbox may cost the host. A field that is 0 means its default,
// which is given beside it.
type Limits struct {
	Body     int64 // bytes of a request; 32 MiB
	Bodies   int64 // bytes of all requests at once, more are answered with 429; two of the largest
	InFlight int   // requests at once, more are answered with 429; 16
	Conns    int   // connections at once, more are closed; 64
	// Inspect is how many bytes of requests are gone through a second, each as often as
	// it is, in the long run; 32 MiB. What 32 seconds allow may be taken at once, more is
	// answered with 429. It is in bytes so that no agent's fate depends on the host's speed.
	Inspect  int64
	Requests int64 // in all, malformed ones too; each is a line of the log; 100,000

	Head     time.Duration // for a request's head; 10 s
	Upload   time.Duration // for a request's body; 1 min
	Silence  time.Duration // without a byte of the provider; 15 min
	Download time.Duration // for the agent to take what was sent to it; 1 min
	Linger   time.Duration // for the counts of an answer whose agent left; 30 s
}

func (l Limits) withDefaults() Limits {
	fill(&l.Body, 32<<20)
	fill(&l.Bodies, 2*l.Body)
	l.Bodies = max(l.Bodies, l.Body)
	fill(&l.Inspect, 32<<20)
	fill(&l.InFlight, 16)
	fill(&l.Conns, 64)
	fill(&l.Requests, proxy.DefaultLimits().Requests)
	fill(&l.Linger, 30*time.Second)
	fill(&l.Head, 10*time.Second)
	fill(&l.Upload, time.Minute)
	fill(&l.Silence, 15*time.Minute)
	fill(&l.Download, time.Minute)
	return l
}

func fill[T int | int64 | time.Duration](v *T, fallback T) {
	if *v <= 0 {
		*v = fallback
	}
}

// check returns everything that is wrong at once. No message holds the key.
func (c Config) check() error {
	var errs []error
	if c.Provider != Anthropic && c.Provider != OpenAI {
		errs = append(errs, fmt.Errorf("provider %q: must be %q or %q", c.Provider, Anthropic, OpenAI))
	}
	if c.Key.IsZero() {
		errs = append(errs, errors.New("key: there is none"))
	} else if strings.ContainsFunc(c.Key.value(), notInKey) {
		errs = append(errs, errors.New("key: holds white space or what is no printable ASCII"))
	}
	if c.Model == "" {
		errs = append(errs, errors.New("model: there is none"))
	}
	if c.MaxTotalTokens < 0 || c.MaxRequests < 0 {
		errs = append(errs, errors.New("budget: is negative"))
	}
	return errors.Join(append(errs, checkBase(c.BaseURL))...)
}

func notInKey(r rune) bool { return r <= ' ' || r > '~' }

// checkBase never prints the URL, since who writes one with a password into it
// has no other place to look for it in than the message.
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
