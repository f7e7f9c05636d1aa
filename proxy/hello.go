package proxy

import (
	"encoding/binary"
	"slices"
)

// Numbers of TLS (RFC 8446, RFC 6066, RFC 9849).
const (
	recordAlert     = 21
	recordHandshake = 22
	clientHello     = 1
	extensionSNI    = 0
	maxRecord       = 1 << 14
	maxHello        = 1 << 15
	maxRecords      = 32 // of a hello: readHello parses all records again after each read
)

// hidesName reports whether an extension is Encrypted Client Hello, one of its drafts,
// or the encrypted SNI that preceded it.
func hidesName(extension uint16) bool {
	return extension == 0xfe0d || extension >= 0xfe08 && extension <= 0xfe0c || extension == 0xffce
}

// A hello is the part of a ClientHello that names the server.
type hello struct {
	name  string // as sent; "" if there is none
	named bool   // it has a server_name extension
	ech   bool   // it has an extension that hides a name
}

// parseHello reads a ClientHello from the first bytes of a connection. whole is false while
// more bytes are needed. why is set if the bytes cannot become a ClientHello.
//
// The parser of crypto/tls would be too lenient: it ignores server names of other types, and accepts
// records that contain more than the ClientHello.
func parseHello(b []byte) (h hello, whole bool, why reason) {
	message, why := firstMessage(b)
	if message == nil {
		return hello{}, false, why
	}
	if h, whole = parseBody(message); !whole {
		why = reasonBadHello
	}
	return h, whole, why
}

// firstMessage assembles the first handshake message from its records. It returns nil while
// more bytes are needed.
func firstMessage(b []byte) (message []byte, why reason) {
	for records := 1; len(b) > 0; records++ {
		switch {
		case len(message) == 0 && (b[0] != recordHandshake || len(b) > 1 && b[1] != 3):
			return nil, reasonNotTLS
		case records > maxRecords, b[0] != recordHandshake || len(b) > 1 && b[1] != 3:
			return nil, reasonBadHello
		case len(b) < 5:
			return nil, ""
		}
		size := int(binary.BigEndian.Uint16(b[3:]))
		part := b[5:min(len(b), 5+size)]
		message = append(message, part...)
		if size == 0 || size > maxRecord || len(message) > 0 && message[0] != clientHello {
			return nil, reasonBadHello
		}
		if len(message) >= 4 {
			length := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
			switch {
			case length > maxHello, len(message) > length:
				return nil, reasonBadHello
			case len(message) == length && len(part) == size:
				return message[4:], ""
			}
		}
		if len(part) < size {
			return nil, ""
		}
		b = b[5+size:]
	}
	return nil, ""
}

// A field reads numbers and vectors (RFC 8446, 3.4). After bytes were missing, bad stays true.
type field struct {
	b   []byte
	bad bool
}

// take returns the next n bytes.
func (f *field) take(n int) []byte {
	if f.bad || len(f.b) < n {
		f.bad = true
		return nil
	}
	var head []byte
	head, f.b = f.b[:n], f.b[n:]
	return head
}

// number returns the next number, which has the given number of bytes.
func (f *field) number(bytes int) int {
	n := 0
	for _, c := range f.take(bytes) {
		n = n<<8 | int(c)
	}
	return n
}

// vector returns the next vector, which has a length of the given number of bytes before it.
func (f *field) vector(lengthBytes int) []byte { return f.take(f.number(lengthBytes)) }

// done reports whether everything was read and nothing was missing.
func (f *field) done() bool { return !f.bad && len(f.b) == 0 }

func parseBody(message []byte) (hello, bool) {
	f := &field{b: message}
	f.take(2 + 32) // version, random
	f.vector(1)    // session
	f.vector(2)    // cipher suites
	f.vector(1)    // compression methods
	if f.done() {
		return hello{}, true // TLS 1.2 and before, without extensions
	}
	extensions := &field{b: f.vector(2)}
	if !f.done() {
		return hello{}, false
	}
	var h hello
	var seen []uint16
	for len(extensions.b) > 0 {
		kind, content := uint16(extensions.number(2)), extensions.vector(2)
		if extensions.bad || slices.Contains(seen, kind) || len(seen) > 256 {
			return hello{}, false
		}
		seen = append(seen, kind)
		h.ech = h.ech || hidesName(kind)
		if kind == extensionSNI {
			var ok bool
			if h.name, ok = parseSNI(content); !ok {
				return hello{}, false
			}
			h.named = true
		}
	}
	return h, true
}

// parseSNI accepts exactly one name, of the only type that exists (RFC 6066, 3).
func parseSNI(content []byte) (string, bool) {
	f := &field{b: content}
	list := &field{b: f.vector(2)}
	kind := list.take(1)
	name := list.vector(2)
	if !f.done() || !list.done() || len(name) == 0 || kind[0] != 0 {
		return "", false
	}
	return string(name), true
}

// checkHello returns why the proxy must not send a ClientHello to the normalised host, or "". It also
// refuses the meaningless extension that Chromium and Firefox send to servers without ECH (GREASE,
// RFC 9849), because this looks like an extension that hides a name.
func checkHello(h hello, host string) reason {
	switch name, bad := normalise(h.name); {
	case h.named && (bad != "" || name != host):
		return reasonSNIMismatch
	case h.ech:
		return reasonECH
	case !h.named:
		return reasonSNIMissing
	}
	return ""
}
