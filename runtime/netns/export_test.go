package netns

// WithoutRules returns o changed to behave as on a kernel without nftables.
func WithoutRules(o Options) Options {
	o.noRules = true
	return o
}
