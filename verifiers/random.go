package verifiers

import (
	"crypto/rand"
	"encoding/hex"
)

// randomName returns a name that no candidate can guess.
func randomName() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return hex.EncodeToString(b)
}
