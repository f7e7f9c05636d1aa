// Package relay gives an agent in a sandbox one provider of models and nothing
// else of it. The agent speaks to a loopback address with a placeholder for a
// key; the relay, outside, drops the placeholder, looks at the request, adds the
// real credential and sends it on.
//
// What passes is said by lists: of methods and paths, of headers, of the fields
// of a request, of the types of tools and content. What is in no list is taken
// out of the request and logged, or the request is refused. A provider would
// otherwise be a second way out: it searches the web, fetches URLs, speaks to
// MCP servers and keeps files, all on the agent's word.
//
// The relay counts: requests, failures of the provider, tokens. [Facts] is what
// it saw, for whoever judges how an attempt ended.
package relay
