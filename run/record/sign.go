package record

import (
	"bytes"
	"crypto/ed25519"
	"crypto/sha256"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/securebench/sbench/workspace/foreign"
)

// payloadType is the DSSE type of the signed payload, the bytes of seal.json.
const payloadType = "application/vnd.sbench.seal+json"

// envelope is a DSSE envelope (github.com/secure-systems-lab/dsse). JSON has bytes as base64.
type envelope struct {
	PayloadType string      `json:"payloadType"`
	Payload     []byte      `json:"payload"`
	Signatures  []signature `json:"signatures"`
}

type signature struct {
	KeyID string `json:"keyid"` // SHA-256 of the key's PKIX form, in hexadecimal
	Sig   []byte `json:"sig"`
}

// A Key is a private key that signs seals. Make one with [LoadKey].
type Key struct{ private ed25519.PrivateKey }

// LoadKey reads an ed25519 private key from the file name. The file is PKCS #8 in PEM,
// as "openssl genpkey -algorithm ed25519" writes it.
func LoadKey(name string) (*Key, error) {
	private, err := readKey[ed25519.PrivateKey](name, "PRIVATE KEY", "PKCS #8", x509.ParsePKCS8PrivateKey)
	if err != nil {
		return nil, err
	}
	return &Key{private}, nil
}

// LoadPublicKey reads an ed25519 public key from the file name. The file is PKIX in
// PEM, as "openssl pkey -pubout" writes it.
func LoadPublicKey(name string) (ed25519.PublicKey, error) {
	return readKey[ed25519.PublicKey](name, "PUBLIC KEY", "PKIX", x509.ParsePKIXPublicKey)
}

func readKey[K any](name, block, format string, parse func([]byte) (any, error)) (key K, err error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return key, err
	}
	b, _ := pem.Decode(data)
	if b == nil || b.Type != block {
		return key, fmt.Errorf("%s: no PEM block %q", name, block)
	}
	parsed, err := parse(b.Bytes)
	if err != nil {
		return key, fmt.Errorf("%s: no %s key", name, format) // x509's error is left out: it may quote the file
	}
	key, ok := parsed.(K)
	if !ok {
		return key, fmt.Errorf("%s: a %T, not an ed25519 key", name, parsed)
	}
	return key, nil
}

func (k *Key) sign(payload []byte) ([]byte, error) {
	public, err := x509.MarshalPKIXPublicKey(k.Public())
	if err != nil {
		return nil, err
	}
	return indented(envelope{
		PayloadType: payloadType, Payload: payload,
		Signatures: []signature{{fmt.Sprintf("%x", sha256.Sum256(public)), ed25519.Sign(k.private, authenticated(payload))}},
	})
}

// authenticated returns what DSSE signs, its pre-authentication encoding of the payload.
func authenticated(payload []byte) []byte {
	return fmt.Appendf(nil, "DSSEv1 %d %s %d %s", len(payloadType), payloadType, len(payload), payload)
}

// Public returns the public key that verifies what k signs.
func (k *Key) Public() ed25519.PublicKey { return k.private.Public().(ed25519.PublicKey) }

// checkSignature returns an error unless data is an envelope of the seal, signed by public unless that is nil.
func checkSignature(data, seal []byte, public ed25519.PublicKey) error {
	var e envelope
	if err := foreign.Decode(data, &e, maxValues); err != nil {
		return fmt.Errorf("no envelope: %w", err)
	}
	switch {
	case e.PayloadType != payloadType:
		return fmt.Errorf("payload type %q, want %q", e.PayloadType, payloadType)
	case !bytes.Equal(e.Payload, seal):
		return errors.New("it signs another seal")
	case public == nil:
		return nil
	}
	if slices.ContainsFunc(e.Signatures, func(s signature) bool { return ed25519.Verify(public, authenticated(e.Payload), s.Sig) }) {
		return nil
	}
	return errors.New("no signature by this key")
}
