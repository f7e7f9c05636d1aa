package verifiers

import (
	"crypto/rand"
	"encoding/hex"
)

// randomName is a name that no candidate can know.
func randomName() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // never fails, crypto/rand
	return hex.EncodeToString(b)
}
