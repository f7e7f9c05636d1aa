package relay

import (
	"cmp"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/securebench/sbench/proxy"
	"github.com/securebench/sbench/proxy/relay/request"
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

// AgentURL returns the base URL for the agent of a relay that listens at host, an address with a
// port such as "127.0.0.1:8099". As the providers' own clients expect, only OpenAI's URL ends in /v1.
func (p Provider) AgentURL(host string) string { return "http://" + host + apis()[p].base }

// Config describes a relay to one provider and one model for one attempt.
type Config struct {
	Provider Provider
	// BaseURL is the provider's address in the form that its own clients use: with /v1 only for
	// OpenAI, and without credentials and query. Nil means the public API. The operator is trusted: http
	// and loopback addresses are allowed.
	BaseURL *url.URL
	// RootCAs verify the provider's certificate. Nil means the system's.
	RootCAs *x509.CertPool
	// Proxy returns the proxy for reaching the provider; nil means none, whatever the
	// environment says.
	Proxy func(*http.Request) (*url.URL, error)

	Key Key // required; printable ASCII without white space
	// MinSecret is the number of characters of the key that the relay redacts in answers. Fewer
	// characters, of a shorter key or at the end of an answer, may be there by chance.
	MinSecret int
	// Bearer sends an Anthropic key as a bearer token instead of x-api-key. OpenAI keys are
	// always bearer tokens, Google keys never.
	Bearer bool
	// KeyHeader is the header for the key, such as Azure's api-key, which the relay uses for nothing else; ""
	// means the provider's usual header.
	KeyHeader string

	Model string // required; the relay refuses requests for another model

	// AllowExternalTools lets the provider act outside the sandbox (search, fetch, run code,
	// contact MCP servers). The relay still removes or refuses fields that raise the cost or refer
	// to state at the provider.
	AllowExternalTools bool
	// RefuseExternalTools refuses a request for external tools. Otherwise the relay removes the
	// tools, logs this and sends the rest.
	RefuseExternalTools bool

	// NoPromptCache asks the provider to keep no prompt in its cache, by which attempts could exchange bits.
	NoPromptCache bool

	// Budgets (see [Facts]); 0 means none. MaxRequests counts all requests to the provider. The
	// relay cuts no request in progress, which may exceed the budgets for tokens and cost.
	MaxTotalTokens int64
	MaxRequests    int64
	MaxCostUSD     float64       // the cost of the tokens at Prices
	Prices         *proxy.Prices // nil: unknown
	// Pace bounds how fast the relays that share it may ask; nil means no bound. A request
	// that is too early waits.
	Pace *Pace
	// Token is the placeholder for the key without which no request passes; "" means that any request does. It keeps
	// out what shares the agent's network but not its environment.
	Token string

	Limits HostLimits // the zero HostLimits mean DefaultLimits

	Log     *proxy.Log // nil: none
	Task    string     // of the log's entries
	Attempt int        // of the log's entries
}

// HostLimits bound what one sandbox may cost the host. A limit of 0 allows nothing.
type HostLimits struct {
	Body     int64 // bytes of a request
	Bodies   int64 // bytes in memory of all requests and answers at once, more get 429
	InFlight int   // requests at once, more get 429
	Conns    int   // connections at once, more are closed
	// Inspect bounds the bytes of requests that the relay inspects per second on average, each
	// counted as often as it is processed. A burst may use 32 seconds' worth; more get 429.
	// It bounds bytes and not time, so that results do not depend on the host's speed.
	Inspect  int64
	Requests int64 // in total, including malformed requests; each is a line of the log

	Head     time.Duration // for a request's head
	Upload   time.Duration // for a request's body
	Silence  time.Duration // without a byte from the provider
	Download time.Duration // for the agent to read a part of the answer
	Linger   time.Duration // for an answer's token counts after the agent has closed the connection
}

// DefaultLimits returns the limits of a [Config] without limits.
func DefaultLimits() HostLimits {
	return HostLimits{
		Body: 32 << 20, Bodies: 40 << 20, InFlight: 16, Conns: 64, Inspect: 32 << 20, Requests: proxy.DefaultLimits().Requests,
		Head: 10 * time.Second, Upload: time.Minute, Silence: 15 * time.Minute, Download: time.Minute, Linger: 30 * time.Second,
	}
}

// maxHead bounds the head of a request, in bytes.
const maxHead = 16 << 10

// SandboxBytes returns the most memory that a relay and the kernel hold for one sandbox. Of the zero
// HostLimits, it is the memory of [DefaultLimits].
func (l HostLimits) SandboxBytes() int64 {
	l = cmp.Or(l, DefaultLimits())
	return int64(l.Conns)*(proxy.SocketBytes+proxy.HeadCost*maxHead) + int64(l.InFlight)*(proxy.SocketBytes+streamBytes) + 2*(l.Bodies+maxQuestion) + request.TreeBytes
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
	refuse(strings.ContainsFunc(c.Key.value(), notInKey), "key: contains white space or a character that is not printable ASCII")
	refuse(c.Model == "", "model: there is none")
	refuse(c.NoPromptCache && c.Provider == Google, "prompt_cache: Google's API cannot switch its cache off")
	inPath := c.Model != "" && c.Provider == Google
	refuse(inPath && (request.CleanName(c.Model) != c.Model || strings.ContainsAny(c.Model, "/:")),
		"model %q: is part of a path, so it must consist of letters, digits, '-', '_' and '.'", c.Model)
	refuse(c.MaxTotalTokens < 0 || c.MaxRequests < 0 || c.MaxCostUSD < 0, "budget: is negative")
	return errors.Join(errs...)
}

// Host returns the provider's host, with a port if the base URL has one.
func (c Config) Host() string { return cmp.Or(c.BaseURL, apis()[c.Provider].publicURL()).Host }

func notInKey(r rune) bool { return r <= ' ' || r > '~' }
