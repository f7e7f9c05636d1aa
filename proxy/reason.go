package proxy

// reason is a word that says why an access was refused, failed or was cut. See [reasons].
type reason string

// Reasons found in the request itself.
const (
	reasonMalformed      reason = "malformed_request"   // no valid HTTP request, or an ambiguous request
	reasonHeaderTooLarge reason = "header_too_large"    // Limits.HeaderBytes
	reasonHeaderTimeout  reason = "header_timeout"      // Limits.HeaderTime
	reasonNotProxy       reason = "not_a_proxy_request" // neither an absolute URL nor a CONNECT
	reasonScheme         reason = "scheme_not_allowed"  // an absolute URL that is not http
	reasonMethod         reason = "method_not_allowed"
	reasonUpgrade        reason = "upgrade_not_allowed" // of plain HTTP to another protocol
	reasonLength         reason = "length_required"     // a body of plain HTTP in chunks
	reasonAuthority      reason = "bad_authority"       // not "name:port", or with user information
	reasonBadPort        reason = "bad_port"            // not a decimal number from 1 to 65535
	reasonPort           reason = "port_not_allowed"
	reasonBadName        reason = "bad_name"   // not an ASCII DNS name
	reasonIPLiteral      reason = "ip_literal" // an address, in whatever spelling
	reasonHost           reason = "host_not_allowed"
	reasonLookup         reason = "lookup_not_served" // Config.Explicit
	reasonHostMismatch   reason = "host_mismatch"     // a redirected request names another host than its address does
)

// Reasons that arise on the way to the host.
const (
	reasonAddress  reason = "address_not_allowed" // the name leads to an address that is not public
	reasonResolve  reason = "resolve_failed"
	reasonDial     reason = "dial_failed"
	reasonUpstream reason = "upstream_failed" // the host's answer is not HTTP, or incomplete
)

// Reasons found in the first bytes of a tunnel.
const (
	reasonNotTLS       reason = "not_tls"
	reasonBadHello     reason = "bad_hello"     // a malformed TLS ClientHello
	reasonHelloTimeout reason = "hello_timeout" // Limits.HelloTime
	reasonSNIMissing   reason = "sni_missing"
	reasonSNIMismatch  reason = "sni_mismatch" // the ClientHello names another host than the CONNECT
	reasonECH          reason = "ech"          // the ClientHello hides a name
)

// Limits, and the end of the sandbox.
const (
	reasonConnections reason = "too_many_connections"
	reasonRequests    reason = "too_many_requests"
	reasonNames       reason = "too_many_names"
	reasonUp          reason = "bytes_up"   // Limits.Up
	reasonDown        reason = "bytes_down" // Limits.Down
	reasonIdle        reason = "idle"
	reasonLifetime    reason = "lifetime"
	reasonShutdown    reason = "shutdown"   // the sandbox has ended
	reasonLog         reason = "log_failed" // nothing leaves without a log entry
)

// A refusal is the HTTP status that the client gets, and what the author of the tester file or of the
// sandbox's command can do about it.
type refusal struct {
	Status int
	Cure   string
}

// reasons returns the refusal for every reason.
func reasons() map[reason]refusal {
	const limit = "nothing but to use less: this is a limit of the sandbox's network access"
	return map[reason]refusal{
		reasonMalformed:      {400, "send one well-formed HTTP/1.1 request"},
		reasonHeaderTooLarge: {431, "send smaller headers"},
		reasonHeaderTimeout:  {408, "send the whole request head at once"},
		reasonNotProxy:       {400, "send an absolute URL, or CONNECT name:port"},
		reasonScheme:         {403, "use CONNECT for https; the proxy serves no other scheme"},
		reasonMethod:         {403, "use a method that the policy lists"},
		reasonUpgrade:        {403, "use the protocol over TLS"},
		reasonLength:         {411, "send the body with a Content-Length, or over TLS"},
		reasonAuthority:      {403, "name the host as name:port, without user information"},
		reasonBadPort:        {403, "give the port as a decimal number from 1 to 65535"},
		reasonPort:           {403, "use a port that the policy lists"},
		reasonBadName:        {403, "use the host's ASCII DNS name"},
		reasonIPLiteral:      {403, "use the host's name; the proxy refuses addresses"},
		reasonHost:           {403, "add the host to harness.config.allowed_domains"},
		reasonLookup:         {403, "use the proxy variables, or set runtime.network.transparent"},
		reasonHostMismatch:   {403, "ask the host whose name was looked up"},
		reasonAddress:        {403, "nothing; the proxy connects only to public addresses (a build, with --mirror, also to those of private networks)"},
		reasonResolve:        {502, "check the name and the name server of the host"},
		reasonDial:           {502, "check that the host is up and listens on the port"},
		reasonUpstream:       {502, "check the host's own log"},
		reasonNotTLS:         {403, "speak TLS through CONNECT; plain HTTP goes as an absolute URL"},
		reasonBadHello:       {403, "use a usual TLS client"},
		reasonHelloTimeout:   {403, "send the TLS ClientHello at once"},
		reasonSNIMissing:     {403, "send the host's name in the TLS ClientHello"},
		reasonSNIMismatch:    {403, "send the name of the CONNECT in the TLS ClientHello"},
		reasonECH:            {403, "switch Encrypted Client Hello off in the client"},
		reasonConnections:    {429, limit},
		reasonRequests:       {429, limit},
		reasonNames:          {403, limit},
		reasonUp:             {403, limit},
		reasonDown:           {403, limit},
		reasonIdle:           {504, limit},
		reasonLifetime:       {504, limit},
		reasonShutdown:       {503, "nothing; the sandbox has ended"},
		reasonLog:            {503, "nothing inside the sandbox; the disk of the run's records is full or broken"},
	}
}
