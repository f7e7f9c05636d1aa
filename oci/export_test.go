package oci

// WithArchitecture makes the system call filter for arch, a GOARCH name, instead of the host's
// architecture.
func WithArchitecture(arch string) Option {
	return always(func(s *draft) { s.arch = arch })
}
