package netns

// WithoutRules returns the options for a kernel without nftables.
func WithoutRules(o Options) Options {
	o.noRules = true
	return o
}
