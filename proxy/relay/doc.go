// Package relay gives an agent in a sandbox access to the models of one provider, and to
// nothing else that the provider offers. The agent sends its requests to a loopback
// address, with a placeholder for the key. The relay, outside the sandbox, removes the
// placeholder, checks the request, adds the real credential and forwards it.
//
// Lists say what may pass: methods and paths (route.go), headers, fields of requests, types of
// tools and content (package request). The relay removes anything else from
// the request and logs this, or refuses the request. Otherwise the provider would be a second way out
// of the sandbox, since it searches the web, fetches URLs, contacts MCP servers and stores files at the
// agent's request.
//
// The relay counts requests, provider failures and tokens. From these [Facts], its caller
// decides how an attempt ended. The path of one request is exchange.go, then answer.go.
package relay
