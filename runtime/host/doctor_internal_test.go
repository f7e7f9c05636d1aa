package host

import "testing"

// TestEscapable: the versions of runc without the ways out of a container of 2024 and 2025 are known.
func TestEscapable(t *testing.T) {
	for version, want := range map[string]bool{
		"runc version 1.1.5+ds1\ncommit: x": true, "runc version 1.1.15": true, "runc version 1.2.7": true, "runc version 1.2.8": false,
		"runc version 1.3.2": true, "runc version 1.3.3": false, "runc version 1.4.0-rc.2": true, "runc version 1.4.0-rc.3": false,
		"runc version 1.4.0": false, "runc version 1.5.2": false, "runc version 0.1.1": true, "crun version 1.8.1": false, "": false,
	} {
		if got := escapable(version); got != want {
			t.Errorf("%q: %v", version, got)
		}
	}
}
