package oci

// For returns c with the system call filter for arch, a GOARCH name, instead of the host's
// architecture.
func (c Config) For(arch string) Config {
	c.arch = arch
	return c
}
