package cgroup

// At returns hierarchies of version 2 alone, mounted at dir and showing the group top.
func At(dir, top string) Hierarchies { return Hierarchies{unified: dir, top: top} }

// AtV1 returns hierarchies of version 1 alone.
func AtV1(dir string) Hierarchies {
	return Hierarchies{byController: map[string]string{"memory": dir}}
}

// DelegatedTo is Usable for the process self in the group own.
func (h Hierarchies) DelegatedTo(own string, self int, delegates func(string) (bool, error)) Hierarchies {
	return h.delegatedTo(own, self, delegates)
}

// Listed is Mounted for another table of mounts.
func Listed(table string) (Hierarchies, error) { return listed(table) }

func (g *Group) Shown() string { return g.shown() }
