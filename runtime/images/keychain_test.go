package images_test

import "github.com/google/go-containerregistry/pkg/authn"

// keychain returns the credentials with which the tests pull, to push with them.
func keychain() authn.Keychain { return authn.DefaultKeychain }
