package containerd

// ID returns the run's random id, which is also the name of its lease and directory.
func (r *Run) ID() string { return r.id }
