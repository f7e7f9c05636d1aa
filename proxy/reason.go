package proxy

// A reason says why an access was refused, failed or was cut. The zero reason says that it was not.
type reason struct {
	Word   string // for the log and the client
	Status int    // the HTTP status that the client gets
	Cure   string // what the author of the tester file or of the sandbox's command can do about it
}

const useLess = "nothing but to use less: this is a limit of the sandbox's network access"

// Reasons found in the request itself.
var (
	reasonMalformed      = reason{"malformed_request", 400, "send one well-formed HTTP/1.1 request"}                    // no valid HTTP request, or an ambiguous request
	reasonHeaderTooLarge = reason{"header_too_large", 431, "send smaller headers"}                                      // Limits.HeaderBytes
	reasonHeaderTimeout  = reason{"header_timeout", 408, "send the whole request head at once"}                         // Limits.HeaderTime
	reasonNotProxy       = reason{"not_a_proxy_request", 400, "send an absolute URL, or CONNECT name:port"}             // neither an absolute URL nor a CONNECT
	reasonScheme         = reason{"scheme_not_allowed", 403, "use CONNECT for https; the proxy serves no other scheme"} // an absolute URL that is not http
	reasonMethod         = reason{"method_not_allowed", 403, "use a method that the policy lists"}
	reasonUpgrade        = reason{"upgrade_not_allowed", 403, "use the protocol over TLS"}                      // of plain HTTP to another protocol
	reasonLength         = reason{"length_required", 411, "send the body with a Content-Length, or over TLS"}   // a body of plain HTTP in chunks
	reasonAuthority      = reason{"bad_authority", 403, "name the host as name:port, without user information"} // not "name:port", or with user information
	reasonBadPort        = reason{"bad_port", 403, "give the port as a decimal number from 1 to 65535"}         // not a decimal number from 1 to 65535
	reasonPort           = reason{"port_not_allowed", 403, "use a port that the policy lists"}
	reasonBadName        = reason{"bad_name", 403, "use the host's ASCII DNS name"}                      // not an ASCII DNS name
	reasonIPLiteral      = reason{"ip_literal", 403, "use the host's name; the proxy refuses addresses"} // an address, in whatever spelling
	reasonHost           = reason{"host_not_allowed", 403, "add HOST to harness.config.allowed_domains"}
	reasonLookup         = reason{"lookup_not_served", 403, "use the proxy variables, or set runtime.network.transparent"} // Config.Explicit
	reasonHostMismatch   = reason{"host_mismatch", 403, "ask the host whose name was looked up"}                           // a redirected request names another host than its address does
)

// Reasons that arise on the way to the host.
var (
	reasonAddress  = reason{"address_not_allowed", 403, "nothing; the proxy connects only to public addresses (a build, with --mirror, also to those of private networks)"} // the name leads to an address that is not public
	reasonResolve  = reason{"resolve_failed", 502, "check the name and the name server of the host"}
	reasonDial     = reason{"dial_failed", 502, "check that the host is up and listens on the port"}
	reasonUpstream = reason{"upstream_failed", 502, "check the host's own log"} // the host's answer is not HTTP, or incomplete
)

// Reasons found in the first bytes of a tunnel.
var (
	reasonNotTLS       = reason{"not_tls", 403, "speak TLS through CONNECT; plain HTTP goes as an absolute URL"}
	reasonBadHello     = reason{"bad_hello", 403, "use a usual TLS client"}               // a malformed TLS ClientHello
	reasonHelloTimeout = reason{"hello_timeout", 403, "send the TLS ClientHello at once"} // Limits.HelloTime
	reasonSNIMissing   = reason{"sni_missing", 403, "send the host's name in the TLS ClientHello"}
	reasonSNIMismatch  = reason{"sni_mismatch", 403, "send the name of the CONNECT in the TLS ClientHello"} // the ClientHello names another host than the CONNECT
	reasonECH          = reason{"ech", 403, "switch Encrypted Client Hello off in the client"}              // the ClientHello hides a name
)

// Limits, and the end of the sandbox.
var (
	reasonConnections = reason{"too_many_connections", 429, useLess}
	reasonRequests    = reason{"too_many_requests", 429, useLess}
	reasonNames       = reason{"too_many_names", 403, useLess}
	reasonUp          = reason{"bytes_up", 403, useLess}   // Limits.Up
	reasonDown        = reason{"bytes_down", 403, useLess} // Limits.Down
	reasonIdle        = reason{"idle", 504, useLess}
	reasonLifetime    = reason{"lifetime", 504, useLess}
	reasonShutdown    = reason{"shutdown", 503, "nothing; the sandbox has ended"}                                                // the sandbox has ended
	reasonLog         = reason{"log_failed", 503, "nothing inside the sandbox; the disk of the run's records is full or broken"} // nothing leaves without a log entry
)
