package main

import "testing"

// TestTaskNarrows: --task selects among what the tester file's run.tasks selects.
func TestTaskNarrows(t *testing.T) {
	for _, c := range []struct {
		name          string
		tester, flags []string
		id            string
		want          bool
	}{
		{"neither", nil, nil, "pack/a", true},
		{"the file's", []string{"*/a"}, nil, "pack/a", true},
		{"not the file's", []string{"*/a"}, nil, "pack/b", false},
		{"the flag's", nil, []string{"*/b"}, "pack/b", true},
		{"not the flag's", nil, []string{"*/b"}, "pack/a", false},
		{"the flag's alone", []string{"*/a"}, []string{"*/b"}, "pack/b", false},
		{"the file's alone", []string{"*/a"}, []string{"*/b"}, "pack/a", false},
		{"both", []string{"*/a", "*/b"}, []string{"*/b"}, "pack/b", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			selects := both(selector(c.tester), selector(c.flags))
			if got := selects == nil || selects(c.id); got != c.want {
				t.Errorf("%v and %v select %s: %v", c.tester, c.flags, c.id, got)
			}
		})
	}
}
