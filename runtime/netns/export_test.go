package netns

// WithoutRules returns o changed to behave as on a kernel without nftables.
func WithoutRules(o Options) Options {
	o.noRules = true
	return o
}

// ShortenReplies gives the kernel less room for the answers to n's next counts than they
// need, until the result is called.
func ShortenReplies(n *Namespace) (restore func()) {
	whole := n.diagnosis.reply
	n.diagnosis.reply = whole[:100]
	return func() { n.diagnosis.reply = whole }
}
