package proxy

// Reason is a word that says why something was refused, failed or was cut off. See
// [Reasons].
type Reason string

// Reasons found in the request itself.
const (
	ReasonMalformed      Reason = "malformed_request"   // no valid HTTP request, or one with two readings
	ReasonHeaderTooLarge Reason = "header_too_large"    // Limits.HeaderBytes
	ReasonHeaderTimeout  Reason = "header_timeout"      // Limits.HeaderTime
	ReasonNotProxy       Reason = "not_a_proxy_request" // neither an absolute URL nor a CONNECT
	ReasonScheme         Reason = "scheme_not_allowed"  // an absolute URL that is not http
	ReasonMethod         Reason = "method_not_allowed"
	ReasonUpgrade        Reason = "upgrade_not_allowed" // of plain HTTP to another protocol
	ReasonAuthority      Reason = "bad_authority"       // not "name:port", or with user information
	ReasonBadPort        Reason = "bad_port"            // not a decimal number from 1 to 65535
	ReasonPort           Reason = "port_not_allowed"
	ReasonBadName        Reason = "bad_name"   // not an ASCII DNS name
	ReasonIPLiteral      Reason = "ip_literal" // an address, in whatever spelling
	ReasonHost           Reason = "host_not_allowed"
	ReasonHostMismatch   Reason = "host_mismatch" // a redirected request for a name other than its address stands for
)

// Reasons that arise on the way to the host.
const (
	ReasonAddress  Reason = "address_not_allowed" // the name leads to an address that is not public
	ReasonResolve  Reason = "resolve_failed"
	ReasonDial     Reason = "dial_failed"
	ReasonUpstream Reason = "upstream_failed" // the host's answer is not HTTP, or broke off
)

// Reasons found in the first bytes of a tunnel.
const (
	ReasonNotTLS       Reason = "not_tls"
	ReasonBadHello     Reason = "bad_hello"     // a malformed TLS ClientHello
	ReasonHelloTimeout Reason = "hello_timeout" // Limits.HelloTime
	ReasonSNIMissing   Reason = "sni_missing"
	ReasonSNIMismatch  Reason = "sni_mismatch" // the ClientHello names another host than the CONNECT
	ReasonECH          Reason = "ech"          // the ClientHello hides a name
)

// Limits, and the end of the sandbox.
const (
	ReasonConnections Reason = "too_many_connections"
	ReasonTunnels     Reason = "too_many_tunnels"
	ReasonRequests    Reason = "too_many_requests"
	ReasonNames       Reason = "too_many_names"
	ReasonUp          Reason = "bytes_up"   // Limits.Up or Limits.TunnelUp
	ReasonDown        Reason = "bytes_down" // Limits.Down or Limits.TunnelDown
	ReasonBody        Reason = "body_too_large"
	ReasonIdle        Reason = "idle"
	ReasonLifetime    Reason = "lifetime"
	ReasonShutdown    Reason = "shutdown"   // the sandbox has ended
	ReasonLog         Reason = "log_failed" // what cannot be logged does not leave
)

// A Cure is what the author of the tester file or of the sandbox's command can do about a
// refusal, and the HTTP status with which the client is told.
type Cure struct {
	Status int
	Text   string
}

// Reasons returns every reason with its cure.
func Reasons() map[Reason]Cure {
	const limit = "a limit of the sandbox's way out; ask for less"
	return map[Reason]Cure{
		ReasonMalformed:      {400, "send one well-formed HTTP/1.1 request"},
		ReasonHeaderTooLarge: {431, "send smaller headers"},
		ReasonHeaderTimeout:  {408, "send the whole request head at once"},
		ReasonNotProxy:       {400, "send an absolute URL, or CONNECT name:port"},
		ReasonScheme:         {403, "use CONNECT for https; other schemes have no way out"},
		ReasonMethod:         {403, "use a method that the policy lists"},
		ReasonUpgrade:        {403, "use the protocol over TLS"},
		ReasonAuthority:      {403, "name the host as name:port, without user information"},
		ReasonBadPort:        {403, "give the port as a decimal number from 1 to 65535"},
		ReasonPort:           {403, "use a port that the policy lists"},
		ReasonBadName:        {403, "use the host's ASCII DNS name"},
		ReasonIPLiteral:      {403, "use the host's name; addresses have no way out"},
		ReasonHost:           {403, "add the host to harness.config.allowed_domains"},
		ReasonHostMismatch:   {403, "ask the host whose name was looked up"},
		ReasonAddress:        {403, "nothing; only public addresses have a way out"},
		ReasonResolve:        {502, "check the name and the name server of the host"},
		ReasonDial:           {502, "check that the host is up and listens on the port"},
		ReasonUpstream:       {502, "check the host's own log"},
		ReasonNotTLS:         {403, "speak TLS through CONNECT; plain HTTP goes as an absolute URL"},
		ReasonBadHello:       {403, "use a usual TLS client"},
		ReasonHelloTimeout:   {403, "send the TLS ClientHello at once"},
		ReasonSNIMissing:     {403, "send the host's name in the TLS ClientHello"},
		ReasonSNIMismatch:    {403, "send the name of the CONNECT in the TLS ClientHello"},
		ReasonECH:            {403, "switch Encrypted Client Hello off in the client"},
		ReasonConnections:    {429, limit},
		ReasonTunnels:        {429, limit},
		ReasonRequests:       {429, limit},
		ReasonNames:          {403, limit},
		ReasonUp:             {403, limit},
		ReasonDown:           {403, limit},
		ReasonBody:           {413, limit},
		ReasonIdle:           {504, limit},
		ReasonLifetime:       {504, limit},
		ReasonShutdown:       {503, "nothing; the sandbox is over"},
		ReasonLog:            {503, "nothing inside the sandbox; the disk of the run's records is full or broken"},
	}
}
