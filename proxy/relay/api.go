package relay

import (
	"cmp"
	"net/http"
	"net/url"
)

// An api is everything in which a provider's API differs, besides its [routes] and the rules for their
// fields.
type api struct {
	host        string         // of the public API
	base        string         // the path that its clients take as a part of their base URL
	models      string         // the path of the list of models
	headers     []string       // that pass, beside those that pass for all
	key, prefix string         // the header for the credential, and what precedes that in it
	forbidden   int            // the status for what is not permitted; see [refusal]
	errors      map[int]string // names of errors by status; 400 and 500 also for statuses without a name
}

func apis() map[Provider]api {
	return map[Provider]api{
		Anthropic: {
			host: "api.anthropic.com", models: "/v1/models", headers: []string{"Anthropic-Version"},
			key: "X-Api-Key", forbidden: http.StatusForbidden,
			errors: map[int]string{
				400: "invalid_request_error", 401: "authentication_error", 403: "permission_error", 404: "not_found_error",
				429: "rate_limit_error", 500: "api_error",
			},
		},
		OpenAI: {
			host: "api.openai.com", base: "/v1", models: "/v1/models",
			key: "Authorization", prefix: "Bearer ", forbidden: http.StatusBadRequest,
			errors: map[int]string{
				400: "invalid_request_error", 401: "authentication_error", 403: "permission_error",
				429: "rate_limit_error", 500: "server_error",
			},
		},
		Google: {
			host: "generativelanguage.googleapis.com", models: "/v1beta/models", headers: []string{"X-Goog-Api-Client"},
			key: "X-Goog-Api-Key", forbidden: http.StatusBadRequest,
			errors: map[int]string{ // google.rpc.Code
				400: "INVALID_ARGUMENT", 401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND",
				429: "RESOURCE_EXHAUSTED", 500: "INTERNAL", 503: "UNAVAILABLE",
			},
		},
	}
}

// publicURL returns the address of the public API.
func (a api) publicURL() *url.URL { return &url.URL{Scheme: "https", Host: a.host, Path: a.base} }

// errorName returns the API's name for the error of a status.
func (a api) errorName(status int) string {
	if status >= 500 {
		return cmp.Or(a.errors[status], a.errors[500])
	}
	return cmp.Or(a.errors[status], a.errors[400])
}
