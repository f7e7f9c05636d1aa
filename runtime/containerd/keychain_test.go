package containerd_test

import "github.com/google/go-containerregistry/pkg/authn"

// keychain lets a test push with the credentials it pulls with.
func keychain() authn.Keychain { return authn.DefaultKeychain }
